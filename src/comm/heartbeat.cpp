#include "comm/heartbeat.h"

#include <algorithm>

namespace tutti::comm {

Heartbeat::Heartbeat(int ranks, Seconds limit)
    : beat_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit.count / 30))),
      last_(Clock::now()), asked_(ranks), heard_(ranks) {}

bool Heartbeat::go_on(Clock::time_point now) {
    if (now < next_look()) return false;
    lived_ += std::min(now - last_, 2 * beat_); // the rest is time in which this engine was held up itself
    last_ = now;
    return true;
}

bool Heartbeat::should_ask(int rank) {
    if (asked_[rank] || (heard_[rank] && lived_ - *heard_[rank] < 5 * beat_)) return false;
    asked_[rank] = lived_;
    return true;
}

void Heartbeat::heard(int rank) {
    asked_[rank].reset();
    heard_[rank] = lived_;
}

std::vector<int> members_to_ask(int rank, int size) {
    std::vector<int> members;
    for (int distance = 1; distance < size; distance *= 2) members.push_back((rank + distance) % size);
    return members;
}

} // namespace tutti::comm
