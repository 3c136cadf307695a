// A queue as a GPU has it, made of a thread: work is done later, in order, beside that of other queues. What is not
// ordered by events happens in any order, so that a wait too few gives wrong numbers.
#pragma once

#include "base/clock.h"
#include "nccl_stand_in/stream.h"
#include "support/given_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace tutti::test {

class WorkerEvent final : public backend::Event {
  public:
    void synchronize() const override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return has_come_; });
    }
    bool has_come() const override {
        const std::lock_guard lock(mutex_);
        return has_come_;
    }
    void come() {
        const std::lock_guard lock(mutex_);
        has_come_ = true;
        changed_.notify_all();
    }

  private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool has_come_ = false;
};

class WorkerQueue : public GivenQueue, public StandInStream {
  public:
    WorkerQueue() : thread_([this] { work(); }) {}
    ~WorkerQueue() override {
        {
            const std::lock_guard lock(mutex_);
            must_end_ = true;
            changed_.notify_all();
        }
        thread_.join();
    }
    WorkerQueue(const WorkerQueue&) = delete;
    WorkerQueue& operator=(const WorkerQueue&) = delete;

    void give(std::function<void()> work) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return given_.size() < most_given; });
        given_.push_back(std::move(work));
        changed_.notify_all();
    }
    void note_time(Seconds& moment) override {
        give([&moment] { moment = steady_now(); });
    }
    std::shared_ptr<const backend::Event> mark() override {
        const auto event = std::make_shared<WorkerEvent>();
        give([event] { event->come(); });
        return event;
    }
    void synchronize() override { mark()->synchronize(); }
    std::unique_ptr<backend::Recording> record(const std::function<void()>&) override { return nullptr; }
    void replay(const backend::Recording&) override {}
    void* native() const override { return const_cast<StandInStream*>(static_cast<const StandInStream*>(this)); }

  private:
    static constexpr std::size_t most_given = 1024; // as with CUDA, whoever gives more has to wait

    void work() {
        while (true) {
            std::function<void()> next;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return must_end_ || !given_.empty(); });
                if (given_.empty()) return;
                next = std::move(given_.front());
                given_.pop_front();
                changed_.notify_all();
            }
            next();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> given_;
    bool must_end_ = false;
    std::thread thread_;
};

} // namespace tutti::test
