// A queue that does nothing of what it is given before somebody waits for it: what a GPU may do at the latest.
#pragma once

#include "backend/device.h"

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

namespace tutti::test {

class LateQueue final : public backend::Queue {
  public:
    // Any work.
    void give(std::function<void()> work) {
        if (recording_) return recording_->push_back(std::move(work));
        work_.push_back(std::move(work));
    }
    std::int64_t done() const { return done_; }
    std::int64_t pending() const { return static_cast<std::int64_t>(work_.size()); }
    int recorded = 0, replayed = 0;

    void copy_in(std::byte* to, std::span<const std::byte> from) override {
        give([=] { std::memcpy(to, from.data(), from.size()); });
    }
    void copy_out(std::span<std::byte> to, const std::byte* from) override {
        give([=] { std::memcpy(to.data(), from, to.size()); });
    }
    void copy_blocks(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                     std::int64_t bytes, std::int64_t count) override {
        give([=] {
            for (std::int64_t i = 0; i < count; ++i)
                std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<std::size_t>(bytes));
        });
    }
    void clear(std::span<std::byte> bytes) override {
        give([=] { std::memset(bytes.data(), 0, bytes.size()); });
    }
    std::shared_ptr<const backend::Event> mark() override { return std::make_shared<Mark>(*this, done_ + pending()); }
    void note_time(Seconds& moment) override {
        give([&moment] { moment = {42}; });
    }
    void wait(const std::shared_ptr<const backend::Event>& event) override {
        give([event] { event->synchronize(); });
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
