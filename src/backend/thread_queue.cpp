#include "backend/thread_queue.h"

#include "base/clock.h"
#include "base/error.h"

#include <cstring>

namespace tutti::backend {
namespace {

struct Moment {
    std::mutex mutex;
    std::condition_variable came;
    bool here = false;
    std::exception_ptr failure;

    void come(std::exception_ptr why) {
        const std::lock_guard lock(mutex);
        here = true;
        failure = std::move(why);
        came.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex);
        came.wait(lock, [this] { return here; });
        if (failure) std::rethrow_exception(failure);
    }
};

class ThreadEvent : public Event {
  public:
    explicit ThreadEvent(std::shared_ptr<Moment> moment) : moment_(std::move(moment)) {}
    void synchronize() const override { moment_->wait(); }
    bool has_come() const override {
        const std::lock_guard lock(moment_->mutex);
        return moment_->here;
    }

  private:
    std::shared_ptr<Moment> moment_;
};

} // namespace

ThreadQueue::ThreadQueue() : thread_([this] { work(); }) {}

ThreadQueue::~ThreadQueue() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void ThreadQueue::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        const std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        std::exception_ptr failure;
        try {
            job();
        } catch (...) {
            failure = std::current_exception();
        }
        lock.lock();
        if (failure && !failure_) failure_ = failure;
    }
}

void ThreadQueue::run(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back([this, work = std::move(work)] {
        {
            const std::lock_guard state(mutex_);
            if (failure_) return;
        }
        work();
    });
    changed_.notify_all();
}

void ThreadQueue::copy_in(std::byte* to, std::span<const std::byte> from) {
    run([to, from] { std::memcpy(to, from.data(), from.size()); });
}

void ThreadQueue::copy_out(std::span<std::byte> to, const std::byte* from) {
    run([to, from] { std::memcpy(to.data(), from, to.size()); });
}

void ThreadQueue::copy_blocks(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                              std::int64_t bytes, std::int64_t count) {
    run([=] {
        for (std::int64_t i = 0; i < count; ++i)
            std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<std::size_t>(bytes));
    });
}

void ThreadQueue::clear(std::span<std::byte> bytes) {
    run([bytes] { std::memset(bytes.data(), 0, bytes.size()); });
}

std::shared_ptr<const Event> ThreadQueue::mark() {
    auto moment = std::make_shared<Moment>();
    const std::lock_guard lock(mutex_);
    jobs_.push_back([this, moment] {
        std::exception_ptr failure;
        {
            const std::lock_guard state(mutex_);
            failure = failure_;
        }
        moment->come(failure);
    });
    changed_.notify_all();
    return std::make_shared<ThreadEvent>(std::move(moment));
}

void ThreadQueue::note_time(Seconds& moment) {
    run([&moment] { moment = steady_now(); });
}

void ThreadQueue::wait(const std::shared_ptr<const Event>& event) {
    run([event] { event->synchronize(); });
}

void ThreadQueue::synchronize() { mark()->synchronize(); }

void ThreadQueue::replay(const Recording&) { TUTTI_CHECK(false, "a thread's queue records nothing"); }

} // namespace tutti::backend
