// How the engine ends a run: late operations, failures of other ranks, and the leave that ranks take at the end.
#include "base/error.h"
#include "comm/engine.h"

#include <algorithm>

namespace tutti::comm {
namespace {

constexpr auto time_to_hear = std::chrono::milliseconds(500);
constexpr auto between_signs = std::chrono::seconds(1); // of life, while ranks wait for each other's end
constexpr auto longest_silence = std::chrono::seconds(5);

std::string in_words(Seconds time) { return time.count < 60 ? fmt::format("{:g} s", time.count) : to_string(time); }

OperationLabel label_of(const Operation& operation) {
    const GroupState& group = operation.group();
    return {.group = group.name,
            .members = group.members,
            .channel = group.channel,
            .kind = operation.kind(),
            .sequence = operation.sequence(),
            .bytes = operation.bytes(),
            .rank = group.rank,
            .peer = operation.peer()};
}

std::vector<int> waited_for(const Operation& operation) { // ranks of the world
    const GroupState& group = operation.group();
    if (operation.peer() >= 0) return {group.members[operation.peer()]};
    std::vector<int> ranks = members_to_ask(group.rank, group.size());
    for (int& rank : ranks) rank = group.members[rank];
    return ranks;
}

} // namespace

void Engine::watch(Clock::time_point now) {
    if (told_at_ && (unaware_.empty() || now >= *told_at_ + time_to_hear)) all_know();
    if (has_failed_) return;
    // All have the same time, so the first is the first to be late.
    if (!inquiry_->under_way() && !active_.empty() && now >= active_.front()->deadline())
        inquire(fmt::format("did not finish within {}", in_words(timeout_)), active_.front().get());
    ask_for_signs(now);
    if (const auto sentence = inquiry_->sentence(now)) end_run({*sentence}, true);
}

// Of those that operations wait for. One that gives none in time is asked once more where it stands, by all.
void Engine::ask_for_signs(Clock::time_point now) {
    if (!heartbeat_->go_on(now) || inquiry_->under_way()) return;
    for (const OperationPointer& operation : active_) {
        if (now - operation->started() < heartbeat_->time_to_wait()) return; // the later ones were started after it
        for (const int rank : waited_for(*operation)) {
            if (inquiry_->has_left(rank)) continue;
            if (heartbeat_->should_ask(rank)) transport_->send_control(rank, encode(Ask{}));
            if (heartbeat_->is_lost(rank)) return inquire(held_up, operation.get());
        }
    }
}

Clock::time_point Engine::next_watch(Clock::time_point now) const {
    auto next = Clock::time_point::max();
    if (told_at_) next = *told_at_ + time_to_hear;
    if (is_leaving_) next = std::min(next, next_sign_);
    if (has_failed_) return next;
    if (inquiry_->under_way()) return std::min(next, inquiry_->next_look(now));
    if (!active_.empty()) next = std::min({next, active_.front()->deadline(), heartbeat_->next_look()});
    return next;
}

void Engine::inquire(std::string complaint, const Operation* late) {
    Standing mine = standing(std::move(complaint), late);
    tell_all(mine);
    inquiry_->begin(std::move(mine), Clock::now());
}

void Engine::handle(int from, const Control& control) {
    if (is_leaving_) heard_of_[from] = Clock::now();
    heartbeat_->heard(from);
    if (const auto* verdict = std::get_if<Verdict>(&control)) {
        transport_->send_control(from, encode(Heard{})); // before this process may end
        if (is_told_) return;
        end_run({verdict->failure.sentence, verdict->failure.status, from}, false);
        all_know();
    } else if (std::holds_alternative<Heard>(control)) {
        unaware_.erase(from);
    } else if (std::holds_alternative<Leaving>(control)) {
        inquiry_->leave(from);
    } else if (std::holds_alternative<Ask>(control)) {
        transport_->send_control(from, encode(Here{}));
    } else if (const auto* standing = std::get_if<Standing>(&control); standing && !has_failed_) {
        inquiry_->answer(from, *standing);
        if (!inquiry_->under_way()) inquire("", nullptr);
    }
}

Standing Engine::standing(std::string complaint, const Operation* late) {
    Standing result;
    result.complaint = std::move(complaint);
    if (late) result.late = label_of(*late);
    for (int rank = 0; rank < size_; ++rank)
        if (heartbeat_->is_silent(rank)) result.silent.push_back(rank);
    const std::lock_guard lock(mutex_);
    for (const GroupPointer& group : groups_)
        result.counts.push_back({group->members, group->channel, group->collectives, group->sends, group->receives});
    const Operation* oldest = nullptr;
    for (const Operation* one : awaited_)
        if (!one->is_finished() && (!oldest || one->started() < oldest->started())) oldest = one;
    if (oldest) result.awaited = label_of(*oldest);
    return result;
}

// Waits throw from here on; so before that the transport lets go of all buffers.
void Engine::end_run(Failure failure, bool tell) {
    if (!has_failed_) transport_->abandon(); // operations stay alive: some transports cannot take back every message
    has_failed_ = true;
    tell = tell && !is_told_;
    if (tell) {
        failure.teller = rank_;
        tell_all(Verdict{failure});
        is_told_ = true;
        told_at_ = Clock::now();
        for (int other = 0; other < size_; ++other)
            if (other != rank_ && inquiry_->is_expected(other)) unaware_.insert(other);
    }
    const std::lock_guard lock(mutex_);
    if (!failure_ || tell) failure_ = std::move(failure);
    changed_.notify_all();
}

void Engine::all_know() {
    is_told_ = true;
    told_at_.reset();
    const std::lock_guard lock(mutex_);
    others_know_ = true;
    changed_.notify_all();
}

void Engine::leave() {
    is_leaving_ = true;
    if (!has_failed_) tell_all(Leaving{});
    const auto now = Clock::now();
    heard_of_.assign(size_, now);
    next_sign_ = now + between_signs;
}

// Where ranks must end together, each waits for the last; one that shows no sign of life holds nobody up.
bool Engine::may_leave(Clock::time_point now) {
    if (has_failed_) return !told_at_;
    if (!transport_->closes_together() || all_have_left()) return true;
    if (now >= next_sign_) {
        tell_all(Ask{});
        next_sign_ = now + between_signs;
    }
    for (int other = 0; other < size_; ++other)
        if (other != rank_ && !inquiry_->has_left(other) && now - heard_of_[other] > longest_silence) return true;
    return false;
}

bool Engine::all_have_left() const {
    for (int other = 0; other < size_; ++other)
        if (other != rank_ && !inquiry_->has_left(other)) return false;
    return true;
}

} // namespace tutti::comm
