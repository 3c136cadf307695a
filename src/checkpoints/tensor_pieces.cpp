#include "checkpoints/tensor_pieces.h"

#include "formats/tensor_store.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <vector>

namespace tutti::checkpoints {
namespace {

constexpr std::int64_t piece_elements = std::int64_t{1} << 20;
// Every thread has one or two of those that are filled.
constexpr std::int64_t filled_elements = std::int64_t{1} << 18;
// Reading this much that is not needed takes no longer than asking once more.
constexpr std::int64_t closest_elements = 4096;

std::vector<Range> pieces_of(Range range, std::int64_t size) {
    std::vector<Range> pieces;
    for (std::int64_t first = range.begin; first < range.end; first += size)
        pieces.push_back({first, std::min(first + size, range.end)});
    return pieces;
}

std::size_t bytes_of(std::int64_t elements, DType dtype) { return static_cast<std::size_t>(elements * size_of(dtype)); }

std::vector<Stretch> stretches_of(const sharding::TensorSlice& slice, Range piece) {
    std::vector<Stretch> stretches;
    slice.for_each_run(piece.begin, piece.size(), [&](std::int64_t held, std::int64_t whole, std::int64_t count) {
        stretches.push_back({whole, held - piece.begin, count});
    });
    return stretches;
}

// Writes what is held of a piece in the type of the region.
void write_part(const offload::ModelData& data, Region region, std::int32_t stored, Range piece, DType dtype,
                std::span<const std::byte> bytes, std::vector<std::byte>& rounded) {
    const Range held = data.held(region, stored);
    const std::int64_t begin = std::max(piece.begin, held.begin), end = std::min(piece.end, held.end);
    if (begin >= end) return;
    std::span part = bytes.subspan(bytes_of(begin - piece.begin, dtype), bytes_of(end - begin, dtype));
    if (data.dtype(region) != dtype) {
        rounded.resize(bytes_of(end - begin, data.dtype(region)));
        formats::convert_elements(dtype, part, data.dtype(region), rounded);
        part = rounded;
    }
    data.write(region, stored, begin, part);
}

// The same values for several regions, made once in the type of the first. Threads share the pieces.
void fill(const offload::ModelData& data, std::span<const Region> regions, std::int32_t stored, const MakePiece& make) {
    const DType dtype = data.dtype(regions[0]);
    Range all;
    for (Region region : regions) {
        const Range held = data.held(region, stored);
        if (all.size() == 0)
            all = held;
        else if (held.size() > 0)
            all = {std::min(all.begin, held.begin), std::max(all.end, held.end)};
    }
    const std::vector<Range> pieces = pieces_of(all, filled_elements);
    std::exception_ptr failure;
#pragma omp parallel if (pieces.size() > 1)
    {
        std::vector<std::byte> bytes, rounded;
#pragma omp for schedule(dynamic)
        for (const Range& piece : pieces) {
            try {
                bytes.resize(bytes_of(piece.size(), dtype));
                make(stretches_of(data.tensor(stored).slice, piece), bytes);
                for (Region region : regions) write_part(data, region, stored, piece, dtype, bytes, rounded);
            } catch (...) {
#pragma omp critical
                failure = std::current_exception();
            }
        }
    }
    if (failure) std::rethrow_exception(failure);
}

} // namespace

void for_each_stretch(const sharding::TensorSlice& slice, std::int64_t first, std::span<const std::byte> bytes,
                      DType dtype, const std::function<void(std::int64_t, std::span<const std::byte>)>& use) {
    const std::int64_t count = static_cast<std::int64_t>(bytes.size()) / size_of(dtype);
    slice.for_each_run(first, count, [&](std::int64_t held, std::int64_t whole, std::int64_t run) {
        use(whole, bytes.subspan(bytes_of(held - first, dtype), bytes_of(run, dtype)));
    });
}

void for_each_saved(const offload::ModelData& data, Region region, std::int32_t stored,
                    const std::function<void(std::int64_t, std::span<const std::byte>)>& use) {
    std::vector<std::byte> bytes;
    for (const Range& piece : pieces_of(data.saved(region, stored), piece_elements)) {
        bytes.resize(bytes_of(piece.size(), data.dtype(region)));
        data.read(region, stored, piece.begin, bytes);
        for_each_stretch(data.tensor(stored).slice, piece.begin, bytes, data.dtype(region), use);
    }
}

void fill_held(const offload::ModelData& data, Region region, std::int32_t stored, const MakePiece& make) {
    fill(data, std::span(&region, 1), stored, make);
}

Region optimizer_weights(const offload::ModelData& data) {
    return data.has(Region::master) ? Region::master : Region::weights;
}

void fill_weights(const offload::ModelData& data, std::int32_t stored, const MakePiece& make) {
    if (!data.has(Region::master)) return fill_held(data, Region::weights, stored, make);
    const Region both[] = {Region::master, Region::weights};
    fill(data, both, stored, make);
}

void read_stretches(std::span<const Stretch> stretches, std::span<std::byte> piece, std::int64_t element_size,
                    const std::function<void(std::int64_t, std::span<std::byte>)>& read) {
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * element_size); };
    std::vector<std::byte> buffer;
    for (std::size_t i = 0; i < stretches.size();) {
        const std::int64_t first = stretches[i].whole;
        std::int64_t last = first + stretches[i].count;
        std::size_t next = i + 1; // the stretches of one read end before it
        for (; next < stretches.size() && stretches[next].whole - last <= closest_elements &&
               stretches[next].whole + stretches[next].count - first <= piece_elements;
             ++next)
            last = stretches[next].whole + stretches[next].count;
        if (next == i + 1) {
            read(first, piece.subspan(bytes(stretches[i].piece), bytes(stretches[i].count)));
        } else {
            buffer.resize(bytes(last - first));
            read(first, buffer);
            for (const Stretch& one : stretches.subspan(i, next - i))
                std::memcpy(piece.data() + bytes(one.piece), buffer.data() + bytes(one.whole - first),
                            bytes(one.count));
        }
        i = next;
    }
}

} // namespace tutti::checkpoints
