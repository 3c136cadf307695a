// ThreadQueue: a queue whose work is done by a thread of its own, in order: copies within host memory, reading and
// writing files.
#pragma once

#include "backend/device.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tutti::backend {

class ThreadQueue : public Queue {
  public:
    ThreadQueue();
    ~ThreadQueue() override; // what was given is still done
    ThreadQueue(const ThreadQueue&) = delete;
    ThreadQueue& operator=(const ThreadQueue&) = delete;

    // Any work. What it throws reaches whoever waits for it or for anything given after it.
    void run(std::function<void()> work);

    void copy_in(std::byte* to, std::span<const std::byte> from) override;
    void copy_out(std::span<std::byte> to, const std::byte* from) override;
    void copy_blocks(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                     std::int64_t bytes, std::int64_t count) override;
    void clear(std::span<std::byte> bytes) override;
    std::shared_ptr<const Event> mark() override;
    void note_time(Seconds& moment) override;
    void wait(const std::shared_ptr<const Event>& event) override;
    void synchronize() override;
    std::unique_ptr<Recording> record(const std::function<void()>&) override { return nullptr; }
    void replay(const Recording& recording) override;

  private:
    void work();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;
    std::exception_ptr failure_; // of the first job that failed; none is done after it
    bool ending_ = false;
    std::thread thread_;
};

} // namespace tutti::backend
