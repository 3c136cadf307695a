#include "backend/cpu/walk.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tutti::backend::cpu {
namespace {

// Strides of an operand of `shape` seen at the shape `to`: 0 where it is repeated.
Shape broadcast_strides(const Shape& shape, const Shape& strides, const Shape& to) {
    Shape result = to;
    const int added = to.rank() - shape.rank();
    for (int d = 0; d < to.rank(); ++d)
        result[d] = d < added || (shape[d - added] == 1 && to[d] != 1) ? 0 : strides[d - added];
    return result;
}

Shape permuted(const Shape& values, std::span<const int> order) {
    Shape result;
    for (int d : order) result.push_back(values[d]);
    return result;
}

template <class T>
void gather_run(const std::byte* from, std::int64_t stride, std::byte* to, std::int64_t count) {
    const T* x = reinterpret_cast<const T*>(from);
    T* y = reinterpret_cast<T*>(to);
    for (std::int64_t i = 0; i < count; ++i) y[i] = x[i * stride];
}
template <class T>
void scatter_run(const std::byte* from, std::byte* to, std::int64_t stride, std::int64_t count) {
    const T* x = reinterpret_cast<const T*>(from);
    T* y = reinterpret_cast<T*>(to);
    for (std::int64_t i = 0; i < count; ++i) y[i * stride] = x[i];
}

// Calls visit with a value of an unsigned type of that size.
template <class Visit>
void with_size(std::int64_t size, Visit visit) {
    switch (size) {
    case 1: return visit(std::uint8_t{});
    case 2: return visit(std::uint16_t{});
    case 4: return visit(std::uint32_t{});
    default: return visit(std::uint64_t{});
    }
}

} // namespace

Walk::Walk(const Operand& output, std::span<const Operand> inputs) : elements_(output.elements()) {
    std::vector<int> order(static_cast<std::size_t>(output.type.shape.rank()));
    std::iota(order.begin(), order.end(), 0);
    if (!output.dense())
        std::ranges::stable_sort(order, [&](int a, int b) { return output.strides[a] > output.strides[b]; });
    const Shape shape = permuted(output.type.shape, order);
    for (const Operand& input : inputs) {
        const Shape strides = broadcast_strides(input.type.shape, input.strides, output.type.shape);
        lines_.emplace_back(shape, permuted(strides, order), size_of(input.type.dtype));
    }
    lines_.emplace_back(shape, permuted(output.strides, order), size_of(output.type.dtype));
}

Walk::Line::Line(const Shape& shape, const Shape& all_strides, std::int64_t size) : element_size(size) {
    for (int d = 0; d < shape.rank(); ++d) {
        if (shape[d] == 1) continue;
        const int last = sizes.rank() - 1;
        if (last >= 0 && strides[last] == all_strides[d] * shape[d]) { // continues the dimension before
            sizes[last] *= shape[d];
            strides[last] = all_strides[d];
        } else {
            sizes.push_back(shape[d]);
            strides.push_back(all_strides[d]);
        }
    }
}

template <class Visit>
void Walk::Line::for_each_run(std::int64_t begin, std::int64_t count, Visit visit) const {
    const int last = sizes.rank() - 1;
    if (last < 0) return visit(std::int64_t{0}, std::int64_t{0}, count); // one element
    Shape index = sizes;
    std::int64_t rest = begin, offset = 0;
    for (int d = last; d >= 0; --d) {
        index[d] = d > 0 ? rest % sizes[d] : rest;
        rest /= sizes[d];
        offset += index[d] * strides[d];
    }
    for (std::int64_t done = 0; done < count;) {
        const std::int64_t run = std::min(sizes[last] - index[last], count - done);
        visit(offset, done, run);
        done += run;
        index[last] += run;
        offset += run * strides[last];
        for (int d = last; d > 0 && index[d] == sizes[d]; --d) {
            offset += strides[d - 1] - sizes[d] * strides[d];
            index[d] = 0;
            ++index[d - 1];
        }
    }
}

std::int64_t Walk::Line::contiguous_at(std::int64_t begin, std::int64_t count) const {
    if (sizes.empty()) return 0;
    if (strides.back() != 1) return -1;
    if (sizes.rank() == 1) return begin;
    const std::int64_t row = begin / sizes.back();
    if ((begin + count - 1) / sizes.back() != row) return -1;
    std::int64_t at = -1;
    for_each_run(begin, 1, [&](std::int64_t offset, std::int64_t, std::int64_t) { at = offset; });
    return at;
}

const std::byte* Walk::read(std::size_t input, const std::byte* data, std::int64_t index, std::byte* buffer) const {
    const Line& line = lines_[input];
    const std::int64_t size = line.element_size;
    const std::int64_t direct = line.contiguous_at(begin(index), count(index));
    if (direct >= 0) return data + direct * size;
    const std::int64_t stride = line.run_stride();
    line.for_each_run(begin(index), count(index), [&](std::int64_t offset, std::int64_t at, std::int64_t run) {
        if (stride == 1)
            std::memcpy(buffer + at * size, data + offset * size, static_cast<std::size_t>(run * size));
        else
            with_size(size, [&]<class T>(T) { gather_run<T>(data + offset * size, stride, buffer + at * size, run); });
    });
    return buffer;
}

std::byte* Walk::open(std::size_t input, std::byte* data, std::int64_t index, std::byte* buffer) const {
    const Line& line = lines_[input];
    const std::int64_t direct = line.contiguous_at(begin(index), count(index));
    return direct >= 0 ? data + direct * line.element_size : buffer;
}

void Walk::finish(std::size_t input, std::byte* data, std::int64_t index, const std::byte* from) const {
    const Line& line = lines_[input];
    const std::int64_t size = line.element_size, stride = line.run_stride();
    line.for_each_run(begin(index), count(index), [&](std::int64_t offset, std::int64_t at, std::int64_t run) {
        if (stride == 1)
            std::memcpy(data + offset * size, from + at * size, static_cast<std::size_t>(run * size));
        else
            with_size(size, [&]<class T>(T) { scatter_run<T>(from + at * size, data + offset * size, stride, run); });
    });
}

} // namespace tutti::backend::cpu
