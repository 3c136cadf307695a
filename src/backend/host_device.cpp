#include "backend/host_device.h"

#include "backend/thread_queue.h"
#include "base/clock.h"
#include "base/error.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace tutti::backend {
namespace {

// Aligned to huge pages and, unless it is small, made of them where the system has some: models walk through a lot of
// memory.
class HostArena : public Arena {
  public:
    explicit HostArena(Bytes size, bool small = false) : size_(size) {
        const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(size.count, 1));
        mapped_ = wanted + huge_page;
        void* start = mapped_ < wanted
                          ? MAP_FAILED
                          : ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED) fail_world("no room for {} of host memory", to_string(size));
        start_ = static_cast<std::byte*>(start);
        const auto address = reinterpret_cast<std::uintptr_t>(start_);
        data_ = start_ + ((address + huge_page - 1) / huge_page * huge_page - address);
        if (!small) ::madvise(data_, wanted, MADV_HUGEPAGE);
    }
    ~HostArena() override { ::munmap(start_, mapped_); }
    HostArena(const HostArena&) = delete;
    HostArena& operator=(const HostArena&) = delete;

    std::byte* data() const override { return data_; }
    Bytes size() const override { return size_; }

  private:
    static constexpr std::size_t huge_page = std::size_t{2} << 20;
    Bytes size_;
    std::size_t mapped_ = 0;
    std::byte *start_ = nullptr, *data_ = nullptr;
};

class Now : public Event {
  public:
    void synchronize() const override {}
    bool has_come() const override { return true; }
};

class HostQueue : public Queue {
  public:
    void copy_in(std::byte* to, std::span<const std::byte> from) override { std::memcpy(to, from.data(), from.size()); }
    void copy_out(std::span<std::byte> to, const std::byte* from) override { std::memcpy(to.data(), from, to.size()); }
    void copy_blocks(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                     std::int64_t bytes, std::int64_t count) override {
        for (std::int64_t i = 0; i < count; ++i)
            std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<std::size_t>(bytes));
    }
    std::shared_ptr<const Event> mark() override { return std::make_shared<Now>(); }
    void note_time(Seconds& moment) override { moment = steady_now(); }
    void clear(std::span<std::byte> bytes) override { std::memset(bytes.data(), 0, bytes.size()); }
    void wait(const std::shared_ptr<const Event>& event) override { event->synchronize(); }
    void synchronize() override {}
    std::unique_ptr<Recording> record(const std::function<void()>&) override { return nullptr; }
    void replay(const Recording&) override { TUTTI_CHECK(false, "a host queue records nothing"); }
};

} // namespace

std::unique_ptr<Queue> HostDevice::make_queue() const { return std::make_unique<HostQueue>(); }

std::unique_ptr<Queue> HostDevice::make_copy_queue() const { return std::make_unique<ThreadQueue>(); }

std::unique_ptr<Arena> HostDevice::allocate(Bytes size) const { return std::make_unique<HostArena>(size); }

std::unique_ptr<Arena> HostDevice::allocate_staging(Bytes size) const {
    return std::make_unique<HostArena>(size, true);
}

void HostDevice::copy_in(std::byte* to, std::span<const std::byte> from) const {
    std::memcpy(to, from.data(), from.size());
}

void HostDevice::copy_out(std::span<std::byte> to, const std::byte* from) const {
    std::memcpy(to.data(), from, to.size());
}

} // namespace tutti::backend
