// Where and when the updates of a program run: on the device, or by the host in host memory; where the program has
// them, or in the next step.
//
// At the end of a step, no computation is left that could hide the copies of an update's optimizer states. If the
// update is left to the next step, it runs right before its weights are first read, and its states are copied during
// the forward.
#pragma once

#include "program/program.h"

#include <cstdint>
#include <set>
#include <vector>

namespace tutti {

class UpdatePlaces {
  public:
    explicit UpdatePlaces(Program& program);

    const std::vector<std::int32_t>& chunks() const { return chunks_; } // that are updated, in their order

    // Changes the program: instructions move, and those who point to them look again. The host's updates stay where the
    // program has them; at the end of the step they come first, so that the host begins when the device does. Of the
    // others, where `later` says so, the next step gets those that it can run; returns how many.
    int place(const std::set<std::int32_t>& on_host, bool later) const;

  private:
    struct Use {
        std::int32_t segment = -1, instruction = -1;
    };
    void find_first_readers();
    int move_later() const;

    Program& program_;
    const std::vector<Segment> segments_; // with all updates on the device, and where they were
    std::vector<std::int32_t> chunks_;
    std::vector<Use> readers_; // per chunk: who reads its weights first in a step; none: it is not to be left
};

} // namespace tutti
