// StoredPlaces: where the stored tensors of a stage's graph lie in the chunks of the rank.
#pragma once

#include "compile/ownership.h"

#include <vector>

namespace tutti::compile {

class StoredPlaces {
  public:
    // Bug where the chunks were laid out for another graph.
    StoredPlaces(const Graph& graph, const Ownership& ownership);

    const memory::ChunkTensor& of(std::int32_t stored) const {
        return layout_.tensor(tensors_[static_cast<std::size_t>(stored)]);
    }
    const memory::ChunkTensor& of(const Parameter& parameter) const { return of(parameter.stored); }
    std::int32_t chunk_of(const Parameter& parameter) const { return of(parameter).chunk; }
    std::int64_t elements_of(std::int32_t chunk) const {
        return layout_.chunks[static_cast<std::size_t>(chunk)].elements;
    }

  private:
    const memory::ChunkLayout& layout_;
    std::vector<std::int32_t> tensors_; // of the rank, per stored tensor
};

} // namespace tutti::compile
