#include "program/packing.h"

#include <cstring>

namespace tutti {
namespace {

// Calls visit(offset in the tensor, offset in the packed, bytes) for every stretch that lies together in both.
template <class Visit>
void for_each_stretch(const Packing& packing, Visit visit) {
    std::int64_t packed = 0;
    for (const Ranges& part : packing.parts)
        for (std::int64_t o = 0; o < packing.outer; ++o)
            for (const Range& range : part) {
                const std::int64_t bytes = range.size() * packing.inner;
                visit((o * packing.size + range.begin) * packing.inner, packed, static_cast<std::size_t>(bytes));
                packed += bytes;
            }
}

} // namespace

Packing::Packing(const TensorType& whole, const Attributes& attributes, std::string_view dim, std::string_view key)
    : parts(decode_parts(attributes.integers(key))) {
    const auto split = static_cast<int>(attributes.integer(dim));
    for (int d = 0; d < split; ++d) outer *= whole.shape[d];
    size = whole.shape[split];
    inner = size_of(whole.dtype);
    for (int d = split + 1; d < whole.shape.rank(); ++d) inner *= whole.shape[d];
}

std::vector<std::int64_t> Packing::counts() const {
    std::vector<std::int64_t> bytes;
    for (const Ranges& part : parts) bytes.push_back(outer * count(part) * inner);
    return bytes;
}

void Packing::pack(const std::byte* tensor, std::byte* packed) const {
    for_each_stretch(*this, [&](std::int64_t from, std::int64_t to, std::size_t bytes) {
        std::memcpy(packed + to, tensor + from, bytes);
    });
}

void Packing::unpack(const std::byte* packed, std::byte* tensor) const {
    for_each_stretch(*this, [&](std::int64_t to, std::int64_t from, std::size_t bytes) {
        std::memcpy(tensor + to, packed + from, bytes);
    });
}

Bytes packing_bytes(std::string_view op, const Attributes& attributes, const TensorType& input,
                    const TensorType& output) {
    auto needed = [](const Packing& packing) { return packing.in_place() ? 0 : packing.bytes(); };
    if (op == "all_gather") return {needed({output, attributes, "dim", "parts"})};
    if (op == "reduce_scatter") return {needed({input, attributes, "dim", "parts"})};
    if (op == "all_to_all")
        return {needed({input, attributes, "scatter_dim", "scatter_parts"}) +
                needed({output, attributes, "gather_dim", "gather_parts"})};
    return {};
}

} // namespace tutti
