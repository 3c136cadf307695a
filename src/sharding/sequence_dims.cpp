#include "sharding/sequence_dims.h"

namespace tutti::sharding {

void SequenceDims::follow(const Node& node) {
    const LoopDims dims = loops_of(graph_, node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const int along = loop(node, dims, i);
        if (along < 0) continue;
        for (std::size_t o = 0; o < node.outputs.size(); ++o)
            for (std::size_t d = 0; d < dims.outputs[o].size(); ++d)
                if (dims.outputs[o][d] == LoopDims::Dimension{along}) set(node.outputs[o], static_cast<int>(d));
    }
}

int SequenceDims::loop(const Node& node, const LoopDims& dims, std::size_t input) const {
    const int dim = of(node.inputs[input]);
    if (dim < 0) return -1;
    const LoopDims::Dimension& dimension = dims.inputs[input][static_cast<std::size_t>(dim)];
    return dimension.size() == 1 ? dimension[0] : -1;
}

} // namespace tutti::sharding
