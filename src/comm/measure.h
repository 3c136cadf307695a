// Measurements between ranks: the speed of messages, and the difference of clocks. Every rank of the group calls these
// in the same order.
#pragma once

#include "base/clock.h"
#include "base/speed.h"
#include "comm/group.h"

#include <functional>

namespace tutti::comm {

// Neighbours (0 and 1, 2 and 3, ..) exchange messages, all pairs at once; then all ranks sum and gather together. All
// get the mean. `room`: about the most memory that a rank may take for it; the least of all ranks' counts.
LinkSpeed measure_link(Group& group, Bytes room = {std::int64_t{32} << 20});

// How far a rank's clock is ahead of that of rank 0: what it reads, less this, is rank 0's time. Found by messages to
// and fro, of which the quickest errs by half of its duration at most; a difference within that is taken as none, so
// that ranks of one machine agree exactly.
Seconds clock_offset(Group& group, const std::function<Seconds()>& clock = steady_now);

} // namespace tutti::comm
