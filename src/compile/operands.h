// Operands: where the instructions of a stage find values of its graph, gradients of its parameters, and chunks that
// are sharded over ranks.
#pragma once

#include "compile/placement.h"
#include "compile/stored_places.h"

namespace tutti::compile {

// Elements side by side.
Argument flat(Address address, DType dtype, std::int64_t elements, Access access);

class Operands {
  public:
    Operands(const Graph& graph, const StoredPlaces& places, const Placement& placement, DType gradients)
        : graph_(graph), places_(places), placement_(placement), gradients_(gradients) {}

    // As a part of the stage sees them.
    Argument value(ValueId value, Access access, Part part) const;
    // In the gradient chunk, in the parameter's own layout.
    Argument gradient_of(ValueId parameter, Part part) const;

  private:
    // A chunk that is sharded is looked at through the part's window.
    Address seen(Address address, Part part) const;

    const Graph& graph_;
    const StoredPlaces& places_;
    const Placement& placement_;
    DType gradients_;
};

} // namespace tutti::compile
