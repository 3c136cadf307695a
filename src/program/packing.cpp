#include "program/packing.h"

#include <cstring>

namespace tutti {
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

std::vector<Packing::Blocks> Packing::blocks() const {
    std::vector<Blocks> result;
    std::int64_t packed = 0;
    for (const Ranges& part : parts) {
        const std::int64_t row = count(part) * inner;
        std::int64_t within = 0;
        for (const Range& range : part) {
            result.push_back({range.begin * inner, size * inner, packed + within, row, range.size() * inner, outer});
            within += range.size() * inner;
        }
        packed += outer * row;
    }
    return result;
}

void Packing::pack(const std::byte* tensor, std::byte* packed) const {
    for (const Blocks& b : blocks())
        for (std::int64_t i = 0; i < b.count; ++i)
            std::memcpy(packed + b.packed + i * b.packed_stride, tensor + b.tensor + i * b.tensor_stride,
                        static_cast<std::size_t>(b.bytes));
}

void Packing::unpack(const std::byte* packed, std::byte* tensor) const {
    for (const Blocks& b : blocks())
        for (std::int64_t i = 0; i < b.count; ++i)
            std::memcpy(tensor + b.tensor + i * b.tensor_stride, packed + b.packed + i * b.packed_stride,
                        static_cast<std::size_t>(b.bytes));
}

Bytes packing_bytes(AxisCollective what, const Attributes& attributes, const TensorType& input,
                    const TensorType& output) {
    auto needed = [](const Packing& packing) { return packing.in_place() ? 0 : packing.bytes(); };
    switch (what) {
    case AxisCollective::all_reduce: return {};
    case AxisCollective::all_gather: return {needed({output, attributes, "dim", "parts"})};
    case AxisCollective::reduce_scatter: return {needed({input, attributes, "dim", "parts"})};
    case AxisCollective::all_to_all:
        return {needed({input, attributes, "scatter_dim", "scatter_parts"}) +
                needed({output, attributes, "gather_dim", "gather_parts"})};
    }
    return {};
}

} // namespace tutti
