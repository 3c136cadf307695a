#include "comm/threads/thread_world.h"

#include "base/error.h"
#include "comm/engine_world.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace tutti::comm::threads {
namespace {

template <class Queue>
typename Queue::value_type take_first(Queue& queue) {
    auto first = std::move(queue.front());
    queue.erase(queue.begin());
    return first;
}

// Where messages meet. One lock serves all ranks; data is copied outside it, by whichever engine comes second.
class Mailboxes {
  public:
    explicit Mailboxes(int ranks) : places_(ranks) {}
    int size() const { return static_cast<int>(places_.size()); }

    struct Send {
        std::span<const std::byte> data;
        Receipt receipt;
    };
    struct Receive {
        std::span<std::byte> data;
        Receipt receipt;
    };

    void send(int from, int to, Tag tag, const Send& send) {
        std::unique_lock lock(mutex_);
        const auto place = places_[to].lines.try_emplace({from, tag}).first;
        Line& line = place->second;
        if (line.receives.empty()) return line.sends.push_back(send);
        const Receive receive = take_first(line.receives);
        if (line.receives.empty()) places_[to].lines.erase(place);
        copy(from, send, to, receive, lock);
    }

    void receive(int to, int from, Tag tag, const Receive& receive) {
        std::unique_lock lock(mutex_);
        const auto place = places_[to].lines.try_emplace({from, tag}).first;
        Line& line = place->second;
        if (line.sends.empty()) return line.receives.push_back(receive);
        const Send send = take_first(line.sends);
        if (line.sends.empty()) places_[to].lines.erase(place);
        copy(from, send, to, receive, lock);
    }

    void send_control(int to, ControlMessage message) {
        const std::lock_guard lock(mutex_);
        places_[to].control.push_back(std::move(message));
        places_[to].changed.notify_all();
    }

    void take_done(int rank, std::vector<Receipt>& done) {
        const std::lock_guard lock(mutex_);
        auto& mine = places_[rank].done;
        done.insert(done.end(), mine.begin(), mine.end());
        mine.clear();
    }

    std::optional<ControlMessage> take_control(int rank) {
        const std::lock_guard lock(mutex_);
        auto& mine = places_[rank].control;
        if (mine.empty()) return std::nullopt;
        return take_first(mine);
    }

    void wait(int rank, Clock::time_point until) {
        std::unique_lock lock(mutex_);
        Place& place = places_[rank];
        const auto happened = [&] { return place.is_woken || !place.done.empty() || !place.control.empty(); };
        if (until == Clock::time_point::max())
            place.changed.wait(lock, happened);
        else
            place.changed.wait_until(lock, until, happened);
        place.is_woken = false;
    }

    void wake(int rank) {
        const std::lock_guard lock(mutex_);
        places_[rank].is_woken = true;
        places_[rank].changed.notify_all();
    }

    // Takes back what the rank has posted; returns when no other engine is copying from or to its buffers.
    void abandon(int rank) {
        std::unique_lock lock(mutex_);
        Place& mine = places_[rank];
        for (auto& [from, line] : mine.lines) line.receives.clear();
        for (Place& place : places_)
            for (auto& [key, line] : place.lines)
                if (key.first == rank) line.sends.clear();
        mine.changed.wait(lock, [&] { return mine.copies == 0; });
        mine.done.clear();
    }

  private:
    struct Line { // messages from one rank with one tag; few, and at most one side waits
        std::vector<Send> sends;
        std::vector<Receive> receives;
    };
    struct Place {
        std::map<std::pair<int, Tag>, Line> lines;
        std::vector<Receipt> done;
        std::deque<ControlMessage> control;
        int copies = 0; // under way, from or to this rank's buffers
        bool is_woken = false;
        std::condition_variable changed;
    };

    void copy(int from, const Send& send, int to, const Receive& receive, std::unique_lock<std::mutex>& lock) {
        TUTTI_CHECK(send.data.size() == receive.data.size(), "rank {} sends {} bytes, rank {} receives {}", from,
                    send.data.size(), to, receive.data.size());
        ++places_[from].copies;
        ++places_[to].copies;
        lock.unlock();
        if (!send.data.empty()) std::memcpy(receive.data.data(), send.data.data(), send.data.size());
        lock.lock();
        finish(from, send.receipt);
        finish(to, receive.receipt);
    }

    void finish(int rank, const Receipt& receipt) {
        Place& place = places_[rank];
        --place.copies;
        place.done.push_back(receipt);
        place.changed.notify_all();
    }

    std::mutex mutex_;
    std::vector<Place> places_;
};

class ThreadTransport final : public Transport {
  public:
    ThreadTransport(std::shared_ptr<Mailboxes> mailboxes, int rank) : mailboxes_(std::move(mailboxes)), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return mailboxes_->size(); }
    bool shares_process() const override { return true; }
    void send(int to, Tag tag, std::span<const std::byte> data, const Receipt& receipt) override {
        mailboxes_->send(rank_, to, tag, {data, receipt});
    }
    void receive(int from, Tag tag, std::span<std::byte> data, const Receipt& receipt) override {
        mailboxes_->receive(rank_, from, tag, {data, receipt});
    }
    void poll(std::vector<Receipt>& done) override { mailboxes_->take_done(rank_, done); }
    void send_control(int to, std::vector<std::byte> content) override {
        mailboxes_->send_control(to, {rank_, std::move(content)});
    }
    std::optional<ControlMessage> receive_control() override { return mailboxes_->take_control(rank_); }
    void wait(Clock::time_point until) override { mailboxes_->wait(rank_, until); }
    void wake() override { mailboxes_->wake(rank_); }
    void abandon() override { mailboxes_->abandon(rank_); }
    void close(bool) override { mailboxes_->abandon(rank_); }
    bool closes_together() const override { return false; }

  private:
    std::shared_ptr<Mailboxes> mailboxes_;
    int rank_;
};

} // namespace

std::vector<std::unique_ptr<World>> make_thread_worlds(int ranks, Seconds timeout, Seconds silence) {
    const auto mailboxes = std::make_shared<Mailboxes>(ranks);
    std::vector<std::unique_ptr<World>> worlds;
    for (int rank = 0; rank < ranks; ++rank)
        worlds.push_back(
            make_world([&, rank] { return std::make_unique<ThreadTransport>(mailboxes, rank); }, timeout, silence));
    return worlds;
}

} // namespace tutti::comm::threads
