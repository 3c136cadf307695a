// Over CUDA's streams, for ranks that share a GPU. A stream is held until a thread has done the work: it waits for a
// number in host memory. (A function that the driver calls may not wait for other ranks: one thread calls them all.)
#include "nccl_stand_in/on_stream.h"

#include "base/error.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace tutti::test {
namespace {

void check(cudaError_t status) {
    if (status != cudaSuccess) fail_world("the stand-in of NCCL: CUDA says {}", cudaGetErrorString(status));
}

// The driver's function, without linking to the driver.
auto stream_wait_value() {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 12000, cudaEnableDefault, &result));
    TUTTI_CHECK(found != nullptr, "the driver has no cuStreamWaitValue32: {}", static_cast<int>(result));
    return reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(found);
}

// All copies of a process go through one stream: the device has 32 queues, and those of many streams wait for others.
class CudaCopies final : public DeviceCopies {
  public:
    std::vector<std::byte> read(const void* from, std::size_t bytes) override {
        std::vector<std::byte> content(bytes);
        copy(content.data(), from, bytes);
        return content;
    }
    void write(void* to, std::span<const std::byte> from) override { copy(to, from.data(), from.size()); }

  private:
    static void copy(void* to, const void* from, std::size_t bytes) {
        static std::mutex mutex;
        static cudaStream_t stream = nullptr;
        const std::lock_guard lock(mutex);
        if (stream == nullptr) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
        check(cudaStreamSynchronize(stream));
    }
};

// The thread that works for a stream. It lives as long as the program.
class Worker {
  public:
    explicit Worker(cudaStream_t stream) : stream_(stream) {
        int device = 0;
        check(cudaGetDevice(&device));
        check(cudaHostAlloc(&done_, sizeof *done_, cudaHostAllocMapped));
        *done_ = 0;
        check(cudaHostGetDevicePointer(&seen_, done_, 0));
        std::thread([this, device] {
            check(cudaSetDevice(device));
            work();
        }).detach();
    }

    void give(std::function<void(DeviceCopies&)> work) {
        cudaEvent_t ready = nullptr;
        check(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
        check(cudaEventRecord(ready, stream_));
        static const auto wait_value = stream_wait_value();
        const std::lock_guard lock(mutex_);
        ++given_;
        const CUresult status =
            wait_value(stream_, reinterpret_cast<CUdeviceptr>(seen_), given_, CU_STREAM_WAIT_VALUE_GEQ);
        TUTTI_CHECK(status == CUDA_SUCCESS, "cuStreamWaitValue32 failed: {}", static_cast<int>(status));
        waiting_.push_back({ready, std::move(work), given_});
        changed_.notify_all();
    }

  private:
    struct Given {
        cudaEvent_t ready;
        std::function<void(DeviceCopies&)> work;
        unsigned number;
    };
    void work() {
        CudaCopies copies;
        while (true) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return !waiting_.empty(); });
            Given next = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            check(cudaEventSynchronize(next.ready));
            check(cudaEventDestroy(next.ready));
            next.work(copies);
            std::atomic_ref(*done_).store(next.number);
        }
    }

    cudaStream_t stream_;
    unsigned* done_ = nullptr; // the number of the last that was done
    void* seen_ = nullptr;     // the same, as the device sees it
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Given> waiting_;
    unsigned given_ = 0;
};

} // namespace

void give(nccl::Stream stream, std::function<void(DeviceCopies&)> work) {
    static std::mutex mutex;
    static auto& workers = *new std::map<nccl::Stream, Worker*>; // used until the very end
    Worker* worker = nullptr;
    {
        const std::lock_guard lock(mutex);
        auto& place = workers[stream];
        if (place == nullptr) place = new Worker(static_cast<cudaStream_t>(stream));
        worker = place;
    }
    worker->give(std::move(work));
}

} // namespace tutti::test
