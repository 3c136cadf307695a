#include "profiling/disk_speed.h"

#include "base/checked.h"
#include "base/clock.h"
#include "offload/execution/spill_file.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>

namespace tutti::profiling {
namespace {

class Buffer {
  public:
    explicit Buffer(std::int64_t size)
        : size_(static_cast<std::size_t>(size)),
          memory_(static_cast<std::byte*>(std::aligned_alloc(offload::disk_alignment, size_)), &std::free) {
        if (!memory_) throw std::bad_alloc();
        std::fill_n(memory_.get(), size_, std::byte{1});
    }
    std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

  private:
    std::size_t size_;
    std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

// Seconds for `count` pieces of the file from this one on.
template <class Copy>
double time(std::int64_t first, std::int64_t count, std::int64_t piece, const Copy& copy) {
    const Buffer buffer(piece);
    const Seconds begin = steady_now();
    for (std::int64_t i = first; i < first + count; ++i) copy(i * piece, buffer.bytes());
    return std::max(steady_now().count - begin.count, 1e-9);
}

} // namespace

// All of the file is written once before: that finds room for it.
CopySpeed measure_disk(const fs::path& folder, Bytes most) {
    constexpr std::int64_t most_pieces = 16;
    const std::int64_t piece =
        round_up(std::clamp<std::int64_t>(most.count / (2 * most_pieces), offload::disk_alignment, 32 << 20),
                 offload::disk_alignment);
    const offload::SpillFile file(folder, {2 * most_pieces * piece});
    auto write = [&](std::int64_t offset, std::span<const std::byte> bytes) { file.write(offset, bytes); };
    auto read = [&](std::int64_t offset, std::span<std::byte> bytes) { file.read(offset, bytes); };
    const double first = time(0, 1, piece, write);
    const std::int64_t half =
        first < 0.05 ? most_pieces : 1; // a slow disk is known by one, and would take long for all
    time(1, 2 * half - 1, piece, write);
    const double reading = time(0, half, piece, read), writing = time(half, half, piece, write);
    auto other = std::async(std::launch::async, [&] { return time(0, half, piece, read); });
    const double writing_too = time(half, half, piece, write), reading_too = other.get();
    const auto bytes = static_cast<double>(half * piece);
    constexpr double latency = 1e-3; // of a copy, through two buffers
    return copy_speed(bytes, {reading, writing}, {reading_too, writing_too}, latency);
}

} // namespace tutti::profiling
