#include "comm/operation.h"

#include "base/error.h"

namespace tutti::comm {

const char* name_of(OperationKind kind) {
    switch (kind) {
    case OperationKind::all_reduce: return "all_reduce";
    case OperationKind::all_gather: return "all_gather";
    case OperationKind::reduce_scatter: return "reduce_scatter";
    case OperationKind::all_to_all: return "all_to_all";
    case OperationKind::broadcast: return "broadcast";
    case OperationKind::send: return "send";
    case OperationKind::receive: return "receive";
    }
    return "?";
}

bool Operation::start(Transport& transport) {
    transport_ = &transport;
    begin();
    return under_way_ == 0;
}

bool Operation::advance(const Part& part) {
    --under_way_;
    go_on(part);
    return under_way_ == 0;
}

void Operation::send(int peer, std::span<const std::byte> data, int phase, int piece) {
    ++under_way_;
    transport_->send(group_->members[peer], tag(phase), data,
                     {this, {Part::Way::sent, static_cast<std::uint8_t>(phase), peer, piece}});
}

void Operation::receive(int peer, std::span<std::byte> data, int phase, int piece) {
    ++under_way_;
    transport_->receive(group_->members[peer], tag(phase), data,
                        {this, {Part::Way::received, static_cast<std::uint8_t>(phase), peer, piece}});
}

// channel (12 bits) | sequence (14) | phase (2): the operations of a group pass each other freely; a number comes again
// only after 16384 operations of its group.
Tag Operation::tag(int phase) const {
    const bool is_message = kind_ == OperationKind::send || kind_ == OperationKind::receive;
    return static_cast<Tag>(group_->channel << 16 | (sequence_ & 0x3fff) << 2 | (is_message ? 2 : phase));
}

} // namespace tutti::comm
