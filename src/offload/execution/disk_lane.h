// DiskLane: a thread that copies between a file and a device's memory, in one direction and one copy at a time. Copies
// alternate between two staging buffers, so that the disk works while the device copies.
#pragma once

#include "backend/device.h"
#include "backend/thread_queue.h"
#include "offload/execution/spill_file.h"

#include <memory>
#include <vector>

namespace tutti::offload {

class DiskLane {
  public:
    using Events = std::vector<std::shared_ptr<const backend::Event>>;

    // `largest` of its copies: buffers are no larger.
    DiskLane(const backend::Device& device, const SpillFile& file, Bytes largest);

    // After these events. The event returned tells that it is done. What is copied has room in the file up to the next
    // multiple of disk_alignment.
    std::shared_ptr<const backend::Event> read(std::int64_t offset, std::span<std::byte> to, Events after);
    std::shared_ptr<const backend::Event> write(std::int64_t offset, std::span<const std::byte> from, Events after);
    void synchronize() { thread_.synchronize(); }

  private:
    struct Piece {
        std::size_t begin = 0, end = 0; // of what is copied
        std::byte* buffer = nullptr;
        std::span<std::byte> in_file() const; // the buffer, as far as it goes to the file
    };
    std::vector<Piece> pieces_of(std::size_t size) const;

    const SpillFile* file_;
    std::unique_ptr<backend::Arena> memory_;
    std::byte* buffers_; // in it, aligned
    std::unique_ptr<backend::Queue> copies_;
    std::size_t piece_;           // of a buffer
    backend::ThreadQueue thread_; // ends first
};

} // namespace tutti::offload
