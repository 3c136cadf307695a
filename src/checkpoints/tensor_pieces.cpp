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

// Writes what this rank owns of a piece, in the type of the region.
void write_part(const offload::ModelData& data, Region region, std::int32_t stored, Range piece, DType dtype,
                std::span<const std::byte> bytes, std::vector<std::byte>& rounded) {
    const Range owned = data.owned(region, stored);
    const std::int64_t begin = std::max(piece.begin, owned.begin), end = std::min(piece.end, owned.end);
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
        const Range owned = data.owned(region, stored);
        if (all.size() == 0)
            all = owned;
        else if (owned.size() > 0)
            all = {std::min(all.begin, owned.begin), std::max(all.end, owned.end)};
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
                make(data.tensor(stored).slice.runs(piece), bytes);
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

void for_each_run(const sharding::TensorSlice& slice, std::int64_t first, std::span<const std::byte> bytes, DType dtype,
                  const std::function<void(std::int64_t, std::span<const std::byte>)>& use) {
    const std::int64_t count = static_cast<std::int64_t>(bytes.size()) / size_of(dtype);
    for (const sharding::SliceRun& run : slice.runs({first, first + count}))
        use(run.whole, bytes.subspan(bytes_of(run.part, dtype), bytes_of(run.count, dtype)));
}

void for_each_saved(const offload::ModelData& data, Region region, std::int32_t stored,
                    const std::function<void(std::int64_t, std::span<const std::byte>)>& use) {
    std::vector<std::byte> bytes;
    for (const Range& piece : pieces_of(data.saved(region, stored), piece_elements)) {
        bytes.resize(bytes_of(piece.size(), data.dtype(region)));
        data.read(region, stored, piece.begin, bytes);
        for_each_run(data.tensor(stored).slice, piece.begin, bytes, data.dtype(region), use);
    }
}

void fill_owned(const offload::ModelData& data, Region region, std::int32_t stored, const MakePiece& make) {
    fill(data, std::span(&region, 1), stored, make);
}

Region optimizer_weights(const offload::ModelData& data) {
    return data.has(Region::master) ? Region::master : Region::weights;
}

void fill_weights(const offload::ModelData& data, std::int32_t stored, const MakePiece& make) {
    if (!data.has(Region::master)) return fill_owned(data, Region::weights, stored, make);
    const Region both[] = {Region::master, Region::weights};
    fill(data, both, stored, make);
}

void read_runs(std::span<const sharding::SliceRun> runs, std::span<std::byte> piece, std::int64_t element_size,
               const std::function<void(std::int64_t, std::span<std::byte>)>& read) {
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * element_size); };
    std::vector<std::byte> buffer;
    for (std::size_t i = 0; i < runs.size();) {
        const std::int64_t first = runs[i].whole;
        std::int64_t last = first + runs[i].count;
        std::size_t next = i + 1; // the runs of one read end before it
        for (; next < runs.size() && runs[next].whole - last <= closest_elements &&
               runs[next].whole + runs[next].count - first <= piece_elements;
             ++next)
            last = runs[next].whole + runs[next].count;
        if (next == i + 1) {
            read(first, piece.subspan(bytes(runs[i].part), bytes(runs[i].count)));
        } else {
            buffer.resize(bytes(last - first));
            read(first, buffer);
            for (const sharding::SliceRun& one : runs.subspan(i, next - i))
                std::memcpy(piece.data() + bytes(one.part), buffer.data() + bytes(one.whole - first), bytes(one.count));
        }
        i = next;
    }
}

} // namespace tutti::checkpoints
