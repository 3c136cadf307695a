// Engine: the communication thread of a rank. It advances all operations under way, serves the other engines' control
// messages, and ends the run, on all ranks with one sentence, when an operation is late or a rank fails. The callers'
// threads only hand operations over and wait.
#pragma once

#include "comm/control.h"
#include "comm/heartbeat.h"
#include "comm/inquiry.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

namespace tutti::comm {

class Engine {
  public:
    using OpenTransport = std::function<std::unique_ptr<Transport>()>;
    using Observer = std::function<void(const OperationRecord&)>;

    // Opens the transport in the engine's thread. silence: after which a rank is taken to be killed or stopped.
    Engine(const OpenTransport& open, Seconds timeout, Seconds silence);
    ~Engine();

    int rank() const { return rank_; }
    int size() const { return size_; }
    Seconds timeout() const { return timeout_; }
    bool shares_process() const { return transport_->shares_process(); }
    Bytes room_of_group(int ranks) const { return most_reducing(ranks) + transport_->room_of_group(ranks); }
    void observe(Observer observer);

    void add_group(const GroupPointer& group);
    void remove_group(const GroupPointer& group);
    void start(const OperationPointer& operation);
    bool is_done(const Operation& operation);
    void wait(const Operation& operation); // WorldError

    // Ends the run on all ranks; returns when they have heard it, or soon after.
    void fail(Failure failure) noexcept;
    // Asks the other ranks where they stand, and returns when the run has ended on all.
    void complain(std::string complaint) noexcept;
    std::optional<Failure> failure();
    // Ends it on this rank alone, so far: no buffer is touched any more when it returns.
    void abandon() noexcept;

  private:
    void run(const OpenTransport& open, std::promise<void>& opened);
    bool take_turn(); // false: there is nothing left to do
    void rest(Clock::time_point until);
    bool start_new_ones();
    bool go_on_with_receipts();
    void begin(Operation& operation);
    void finish(Operation& operation);
    void pass_turn(const Operation& ended); // a reduction
    bool handle_control();
    void handle(int from, const Control& control);

    void watch(Clock::time_point now);
    void ask_for_signs(Clock::time_point now);
    void inquire(std::string complaint, const Operation* late);
    Standing standing(std::string complaint, const Operation* late);
    Clock::time_point next_watch(Clock::time_point now) const;
    void end_run(Failure failure, bool tell);
    void all_know();
    void leave();
    bool may_leave(Clock::time_point now);
    bool all_have_left() const;
    void tell_all(const Control& control);

    Seconds timeout_, silence_;
    int rank_ = 0, size_ = 1;
    std::unique_ptr<Transport> transport_;

    std::mutex mutex_; // guards from here ...
    std::condition_variable changed_;
    std::vector<OperationPointer> new_;
    std::vector<GroupPointer> groups_;
    std::vector<const Operation*> awaited_; // by callers' threads
    Observer observer_;
    std::optional<Failure> failure_, requested_failure_;
    std::optional<std::string> complaint_;
    bool must_abandon_ = false, must_stop_ = false;
    bool others_know_ = false; // of the failure, as far as they answer
    // ... to here; the rest is the thread's own.

    std::list<OperationPointer> active_; // in the order they were started
    std::unordered_map<const Operation*, std::list<OperationPointer>::iterator> places_;
    // Reductions of a group take turns, since each needs room for what its peers send.
    struct Turns {
        Bytes room{}; // of those under way
        int under_way = 0;
        std::deque<OperationPointer> waiting{};
        bool fits(const Operation& next) const;
    };
    std::unordered_map<const GroupState*, Turns> turns_;
    std::vector<Receipt> receipts_;
    std::optional<Inquiry> inquiry_;
    std::optional<Heartbeat> heartbeat_;
    bool has_failed_ = false;                  // nothing is under way any more
    bool is_told_ = false;                     // the others were told, or it came from them
    std::optional<Clock::time_point> told_at_; // they were told then; these have not said that they heard it
    std::set<int> unaware_;
    bool is_leaving_ = false;
    std::vector<Clock::time_point> heard_of_; // while leaving: the last sign of life of every rank
    Clock::time_point next_sign_;
    std::thread thread_;
};

} // namespace tutti::comm
