// A queue that does nothing of what it is given before somebody waits for it: what a GPU may do at the latest.
#pragma once

#include "support/given_queue.h"

#include <deque>
#include <functional>
#include <memory>
#include <utility>

namespace tutti::test {

class LateQueue final : public GivenQueue {
  public:
    void give(std::function<void()> work) override {
        if (recording_) return recording_->push_back(std::move(work));
        work_.push_back(std::move(work));
    }
    std::int64_t done() const { return done_; }
    std::int64_t pending() const { return static_cast<std::int64_t>(work_.size()); }
    int recorded = 0, replayed = 0;

    std::shared_ptr<const backend::Event> mark() override { return std::make_shared<Mark>(*this, done_ + pending()); }
    void note_time(Seconds& moment) override {
        give([&moment] { moment = {42}; });
    }
    void synchronize() override { do_until(done_ + pending()); }
    std::unique_ptr<backend::Recording> record(const std::function<void()>& work) override {
        auto recording = std::make_unique<Kept>();
        recording_ = &recording->work;
        work();
        recording_ = nullptr;
        ++recorded;
        return recording;
    }
    void replay(const backend::Recording& recording) override {
        for (const auto& work : static_cast<const Kept&>(recording).work) give(work);
        ++replayed;
    }

  private:
    struct Kept final : backend::Recording {
        std::deque<std::function<void()>> work;
    };
    struct Mark final : backend::Event {
        Mark(LateQueue& of, std::int64_t number) : queue(&of), at(number) {}
        void synchronize() const override { queue->do_until(at); }
        bool has_come() const override { // every look lets one more piece of work be done
            if (queue->done_ < at) queue->do_until(queue->done_ + 1);
            return queue->done_ >= at;
        }
        LateQueue* queue;
        std::int64_t at;
    };
    void do_until(std::int64_t number) {
        while (done_ < number) {
            work_.front()();
            work_.pop_front();
            ++done_;
        }
    }

    std::deque<std::function<void()>> work_;
    std::int64_t done_ = 0;
    std::deque<std::function<void()>>* recording_ = nullptr;
};

} // namespace tutti::test
