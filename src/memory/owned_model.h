// OwnedModel: what of a model a rank owns, and where it lies. Of every stored tensor of its stages a slice, where
// operators are split; the slices in chunks. Which elements of a chunk are in its memory differs from one list of
// chunks to the other, where ZeRO shards it: the Program says that (Program::owned_of).
#pragma once

#include "memory/chunks.h"
#include "sharding/slice.h"

#include <string>
#include <vector>

namespace tutti::memory {

struct OwnedTensor {
    std::string name;            // of the whole tensor
    sharding::TensorSlice slice; // what of it is owned: the stored tensor of the rank's graph
};

struct OwnedModel {
    std::vector<OwnedTensor> tensors;
    ChunkLayout layout; // of these tensors, in their order

    // Per chunk: the elements that this rank saves. Files hold whole tensors, and over all ranks every element is saved
    // once. Of ranks that own the same elements one does: the first replica, of a tied tensor the first stage that has
    // it, of one that the tensor axis does not split the first rank there. Where ZeRO shards optimizer states each
    // saves the part that it updates; the weights beside it are whole on every rank, but after a step only that part is
    // new.
    std::vector<Range> saved;
};

} // namespace tutti::memory
