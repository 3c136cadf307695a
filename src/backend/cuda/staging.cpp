// Pinned host memory. The driver takes minutes to hand out a hundred GiB page by page; so all threads touch it first,
// in large pages where the system has them, and the driver only pins what is there.
#include "backend/cuda/cuda.h"

#include "base/error.h"

#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace tutti::backend::cuda {
namespace {

constexpr std::int64_t page = 4096;
constexpr std::int64_t stretch = std::int64_t{64} << 20; // of a thread

void touch(std::byte* data, std::int64_t size) {
    std::vector<std::jthread> threads;
    const auto wanted = std::min<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()), size / stretch + 1);
    for (std::int64_t t = 0; t < wanted; ++t)
        threads.emplace_back([=] {
            for (std::int64_t at = size * t / wanted / page * page; at < size * (t + 1) / wanted; at += page)
                data[at] = std::byte{0};
        });
}

class StagingArena : public Arena {
  public:
    explicit StagingArena(Bytes size) : size_(size), mapped_(static_cast<std::size_t>(std::max(size.count, page))) {
        void* const memory =
            mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) fail_world("no room for {} of host memory", to_string(size));
        data_ = static_cast<std::byte*>(memory);
        madvise(data_, mapped_, MADV_HUGEPAGE); // or not
        touch(data_, static_cast<std::int64_t>(mapped_));
        if (cudaHostRegister(data_, mapped_, cudaHostRegisterDefault) == cudaSuccess) return;
        (void)cudaGetLastError();
        munmap(data_, mapped_);
        fail_world("{} of host memory cannot be pinned for the GPU", to_string(size));
    }
    ~StagingArena() override {
        cudaHostUnregister(data_);
        munmap(data_, mapped_);
    }
    StagingArena(const StagingArena&) = delete;
    StagingArena& operator=(const StagingArena&) = delete;

    std::byte* data() const override { return data_; }
    Bytes size() const override { return size_; }

  private:
    Bytes size_;
    std::size_t mapped_;
    std::byte* data_ = nullptr;
};

} // namespace

std::unique_ptr<Arena> make_staging(Bytes size) { return std::make_unique<StagingArena>(size); }

} // namespace tutti::backend::cuda
