#include "compile/stored_places.h"

#include "base/error.h"

namespace tutti::compile {

StoredPlaces::StoredPlaces(const Graph& graph, const Ownership& ownership)
    : layout_(ownership.layout), tensors_(ownership.tensors_of(graph)) {
    for (const Parameter& parameter : graph.parameters()) {
        const memory::ChunkTensor& first = of(parameter);
        std::int64_t offset = first.offset;
        for (std::int32_t stored : parameter.run()) {
            const memory::ChunkTensor& place = of(stored);
            TUTTI_CHECK(place.chunk == first.chunk && place.offset == offset, "{} is not laid out as one",
                        graph.value(parameter.value).name);
            offset += graph.stored()[static_cast<std::size_t>(stored)].type.elements();
        }
    }
}

} // namespace tutti::compile
