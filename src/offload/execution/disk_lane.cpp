#include "offload/execution/disk_lane.h"

#include "base/checked.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::offload {
DiskLane::DiskLane(const backend::Device& device, const SpillFile& file, Bytes largest)
    : file_(&file), memory_(device.allocate_staging(disk_staging(largest))), copies_(device.make_copy_queue()),
      piece_(static_cast<std::size_t>(disk_buffer(largest))) {
    const auto address = reinterpret_cast<std::intptr_t>(memory_->data());
    buffers_ = memory_->data() + (round_up(address, disk_alignment) - address);
}

std::vector<DiskLane::Piece> DiskLane::pieces_of(std::size_t size) const {
    std::vector<Piece> pieces;
    for (std::size_t begin = 0; begin < size; begin += piece_)
        pieces.push_back({begin, std::min(begin + piece_, size), buffers_ + pieces.size() % 2 * piece_});
    return pieces;
}

std::span<std::byte> DiskLane::Piece::in_file() const {
    return {buffer, static_cast<std::size_t>(round_up(static_cast<std::int64_t>(end - begin), disk_alignment))};
}

std::shared_ptr<const backend::Event> DiskLane::read(std::int64_t offset, std::span<std::byte> to, Events after) {
    thread_.run([this, offset, to, after = std::move(after)] {
        for (const auto& event : after) event->synchronize();
        std::array<std::shared_ptr<const backend::Event>, 2> copied; // from each buffer
        for (const Piece& piece : pieces_of(to.size())) {
            if (const auto& last = copied[0]) last->synchronize();
            file_->read(offset + static_cast<std::int64_t>(piece.begin), piece.in_file());
            copies_->copy_in(to.data() + piece.begin, {piece.buffer, piece.end - piece.begin});
            copied = {std::move(copied[1]), copies_->mark()};
        }
        copies_->synchronize();
    });
    return thread_.mark();
}

std::shared_ptr<const backend::Event> DiskLane::write(std::int64_t offset, std::span<const std::byte> from,
                                                      Events after) {
    thread_.run([this, offset, from, after = std::move(after)] {
        for (const auto& event : after) event->synchronize();
        const std::vector<Piece> pieces = pieces_of(from.size());
        auto copy = [&](const Piece& piece) {
            copies_->copy_out({piece.buffer, piece.end - piece.begin}, from.data() + piece.begin);
            return copies_->mark();
        };
        std::shared_ptr<const backend::Event> copied = copy(pieces.front());
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            copied->synchronize();
            if (i + 1 < pieces.size()) copied = copy(pieces[i + 1]);
            file_->write(offset + static_cast<std::int64_t>(pieces[i].begin), pieces[i].in_file());
        }
    });
    return thread_.mark();
}

} // namespace tutti::offload
