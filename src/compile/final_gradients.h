// The instructions of the last micro-batch's backward that follow as soon as the gradients of a chunk are final: their
// reduction, the square for the norm, and with early updates the chunk's update. The rest of the backward overlaps with
// them.
#pragma once

#include "compile/contributions.h"
#include "compile/segment_writer.h"
#include "compile/stage_code.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tutti::compile {

class FinalGradients {
  public:
    FinalGradients(const Graph& graph, const Ownership& ownership, const StageCodeOptions& options,
                   const Contributions& contributions, const StoredPlaces& places, const Placement& placement,
                   SegmentWriter& writer);

    void reduce(); // chunks to which the node at hand is the last to contribute
    void update(); // those that may be updated from here on
    const std::set<std::int32_t>& updated() const { return updated_; }

  private:
    void find_early_updates();
    void update(std::int32_t chunk);

    const Graph& graph_;
    const Ownership& ownership_;
    const StageCodeOptions& options_;
    const Contributions& contributions_;
    const StoredPlaces& places_;
    const Placement& placement_;
    SegmentWriter& writer_;
    std::map<std::int32_t, std::int32_t> ready_;                    // per chunk that is updated early, a position
    std::vector<std::int32_t> waiting_;                             // chunks that are ready
    std::vector<std::pair<std::int32_t, std::int32_t>> reductions_; // begun in this part: chunk, instruction
    std::set<std::int32_t> updated_;
};

} // namespace tutti::compile
