#include "comm/engine.h"

#include "base/error.h"

#include <algorithm>
#include <new>

namespace tutti::comm {
namespace {

constexpr auto longest_rest = std::chrono::seconds(1);
constexpr auto longest_farewell = std::chrono::seconds(2);

Seconds seconds(Clock::time_point time) { return {std::chrono::duration<double>(time.time_since_epoch()).count()}; }

Clock::duration duration(Seconds seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds.count));
}

} // namespace

Engine::Engine(const OpenTransport& open, Seconds timeout, Seconds silence) : timeout_(timeout), silence_(silence) {
    std::promise<void> opened;
    thread_ = std::thread([&] { run(open, opened); });
    try {
        opened.get_future().get();
    } catch (...) {
        thread_.join();
        throw;
    }
}

Engine::~Engine() {
    {
        const std::lock_guard lock(mutex_);
        must_stop_ = true;
    }
    transport_->wake();
    thread_.join();
}

void Engine::observe(Observer observer) {
    const std::lock_guard lock(mutex_);
    observer_ = std::move(observer);
}

void Engine::add_group(const GroupPointer& group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(group);
}

void Engine::remove_group(const GroupPointer& group) {
    const std::lock_guard lock(mutex_);
    std::erase(groups_, group);
}

void Engine::start(const OperationPointer& operation) {
    {
        const std::lock_guard lock(mutex_);
        GroupState& group = operation->group();
        std::int64_t& started = operation->kind() == OperationKind::send      ? group.sends[operation->peer()]
                                : operation->kind() == OperationKind::receive ? group.receives[operation->peer()]
                                                                              : group.collectives;
        operation->enqueue(++started, Clock::now(), duration(timeout_));
        if (failure_) return; // waiting for it will tell
        new_.push_back(operation);
        if (new_.size() > 1) return; // the thread has been woken and has not come yet
    }
    transport_->wake();
}

bool Engine::is_done(const Operation& operation) {
    if (operation.is_finished()) return true;
    const std::lock_guard lock(mutex_);
    return failure_.has_value();
}

void Engine::wait(const Operation& operation) {
    if (operation.is_finished()) return;
    std::unique_lock lock(mutex_);
    awaited_.push_back(&operation);
    changed_.wait(lock, [&] { return operation.is_finished() || failure_; });
    std::erase(awaited_, &operation);
    if (!operation.is_finished()) throw WorldError(failure_->sentence);
}

void Engine::fail(Failure failure) noexcept {
    std::unique_lock lock(mutex_);
    if (!requested_failure_) requested_failure_ = std::move(failure);
    transport_->wake();
    changed_.wait_for(lock, longest_farewell, [&] { return others_know_; });
}

void Engine::complain(std::string complaint) noexcept {
    std::unique_lock lock(mutex_);
    complaint_ = std::move(complaint);
    transport_->wake();
    changed_.wait(lock, [&] { return failure_.has_value(); });
}

std::optional<Failure> Engine::failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void Engine::abandon() noexcept {
    std::unique_lock lock(mutex_);
    must_abandon_ = true;
    transport_->wake();
    changed_.wait(lock, [&] { return failure_.has_value(); });
}

void Engine::run(const OpenTransport& open, std::promise<void>& opened) {
    try {
        transport_ = open();
        rank_ = transport_->rank();
        size_ = transport_->size();
        inquiry_.emplace(rank_, size_);
        heartbeat_.emplace(size_, silence_);
    } catch (...) {
        opened.set_exception(std::current_exception());
        return;
    }
    opened.set_value();
    for (bool goes_on = true; goes_on;) {
        try {
            goes_on = take_turn();
        } catch (const WorldError& error) { // a connection broke; whose end it was, the others may know
            if (has_failed_) break;
            if (!inquiry_->under_way()) inquire(error.what(), active_.empty() ? nullptr : active_.front().get());
        } catch (const std::bad_alloc&) {
            if (has_failed_) break;
            end_run({out_of_memory}, true);
        } catch (const std::exception& error) {
            if (has_failed_) break;
            end_run({defect + std::string(error.what()), status_bug}, true);
        }
    }
    transport_->close(!has_failed_ && all_have_left());
    const std::lock_guard lock(mutex_);
    others_know_ = true;
    if (!failure_) failure_ = Failure{"this rank has ended"};
    changed_.notify_all();
}

bool Engine::take_turn() {
    bool did_something = start_new_ones();
    did_something |= go_on_with_receipts();
    if (!is_told_ || told_at_) did_something |= handle_control();
    const auto now = Clock::now();
    watch(now);
    if (is_leaving_ && may_leave(now)) return false;
    if (did_something) return true;
    rest(next_watch(now));
    return true;
}

// Where this process was stopped for a while, that time does not count: all were, perhaps, and all go on.
void Engine::rest(Clock::time_point until) {
    constexpr auto usual_delay = std::chrono::seconds(1);
    const auto latest = std::min(until, Clock::now() + longest_rest);
    transport_->wait(latest);
    const auto delay = Clock::now() - latest;
    if (delay < usual_delay) return;
    for (const OperationPointer& operation : active_) operation->postpone(delay);
}

bool Engine::start_new_ones() {
    std::vector<OperationPointer> started;
    std::optional<Failure> failure;
    std::optional<std::string> complaint;
    bool abandons = false, stops = false;
    {
        const std::lock_guard lock(mutex_);
        started.swap(new_);
        failure.swap(requested_failure_);
        complaint.swap(complaint_);
        abandons = must_abandon_;
        stops = must_stop_;
    }
    if (failure) end_run(*failure, true);
    if (abandons && !has_failed_) end_run({fmt::format("rank {} gave up what was under way", rank_)}, false);
    if (stops && !is_leaving_) leave();
    if (has_failed_) return false;
    if (complaint && !inquiry_->under_way()) inquire(std::move(*complaint), nullptr);
    for (OperationPointer& operation : started) {
        active_.push_back(operation);
        places_.emplace(operation.get(), std::prev(active_.end()));
        Turns& turns = turns_[&operation->group()];
        if (operation->reduces() && !(turns.waiting.empty() && turns.fits(*operation)))
            turns.waiting.push_back(operation);
        else
            begin(*operation);
    }
    return !started.empty();
}

// The first of those that are not finished always fits: so all ranks get on, whatever room each needs.
bool Engine::Turns::fits(const Operation& next) const {
    return under_way == 0 || room + next.room() <= most_reducing(next.group().size());
}

void Engine::begin(Operation& operation) {
    if (operation.reduces()) {
        Turns& turns = turns_[&operation.group()];
        ++turns.under_way;
        turns.room += operation.room();
    }
    if (operation.start(*transport_)) finish(operation);
}

bool Engine::go_on_with_receipts() {
    if (has_failed_) return false;
    receipts_.clear();
    transport_->poll(receipts_);
    for (const Receipt& receipt : receipts_) {
        if (receipt.part.way == Part::Way::received)
            heartbeat_->heard(receipt.operation->group().members[receipt.part.peer]);
        if (receipt.operation->advance(receipt.part)) finish(*receipt.operation);
    }
    return !receipts_.empty();
}

void Engine::finish(Operation& operation) {
    const auto place = places_.find(&operation);
    const OperationPointer kept = *place->second;
    active_.erase(place->second);
    places_.erase(place);
    Observer observer;
    {
        const std::lock_guard lock(mutex_);
        operation.set_finished();
        observer = observer_;
    }
    changed_.notify_all();
    if (observer)
        observer({.group = operation.group().name,
                  .operation = name_of(operation.kind()),
                  .sequence = operation.sequence(),
                  .bytes = {operation.bytes()},
                  .peer = operation.peer(),
                  .begin = seconds(operation.started()),
                  .end = seconds(Clock::now())});
    if (operation.reduces()) pass_turn(operation);
}

void Engine::pass_turn(const Operation& ended) {
    Turns& turns = turns_[&ended.group()];
    --turns.under_way;
    turns.room -= ended.room();
    while (!turns.waiting.empty() && turns.fits(*turns.waiting.front())) {
        const OperationPointer next = std::move(turns.waiting.front());
        turns.waiting.pop_front();
        begin(*next);
    }
}

bool Engine::handle_control() {
    bool did_something = false;
    while (const auto message = transport_->receive_control()) {
        handle(message->from, decode(message->content));
        did_something = true;
    }
    return did_something;
}

void Engine::tell_all(const Control& control) {
    const auto content = encode(control);
    for (int other = 0; other < size_; ++other)
        if (other != rank_) transport_->send_control(other, content);
}

} // namespace tutti::comm
