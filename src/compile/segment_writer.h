// SegmentWriter: the position of a stage's compiler. It goes through the nodes in order and adds instructions to the
// segment of the current part.
#pragma once

#include "base/checked.h"
#include "compile/placement.h"

#include <array>
#include <utility>

namespace tutti::compile {

class SegmentWriter {
  public:
    SegmentWriter(std::array<Segment, part_count>& segments, const Placement& placement)
        : segments_(segments), placement_(placement) {}

    void go_to(std::int32_t position) {
        position_ = position;
        part_ = part_at(position);
    }
    void go_to(Part part) { part_ = part; } // behind its last node

    Part part() const { return part_; }
    std::int32_t position() const { return position_; }
    std::size_t node() const { return placement_.order[static_cast<std::size_t>(position_)]; }
    Part part_at(std::int32_t position) const {
        return placement_.parts[placement_.order[static_cast<std::size_t>(position)]];
    }
    bool is_last_of_part() const {
        return position_ + 1 == std::ssize(placement_.order) || part_at(position_ + 1) != part_;
    }

    Segment& segment() { return segments_[static_cast<std::size_t>(part_)]; }
    // Its number in the segment.
    std::int32_t add(Instruction instruction) {
        segment().instructions.push_back(std::move(instruction));
        return narrow<std::int32_t>(segment().instructions.size() - 1);
    }

  private:
    std::array<Segment, part_count>& segments_;
    const Placement& placement_;
    Part part_ = Part::setup;
    std::int32_t position_ = 0;
};

} // namespace tutti::compile
