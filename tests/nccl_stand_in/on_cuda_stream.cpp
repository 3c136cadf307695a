// Over CUDA's streams, for ranks that share a GPU. A stream is held until a thread has done the work: it waits for a
// number in host memory. (A function that the driver calls may not wait for other ranks: one thread calls them all.)
#include "nccl_stand_in/on_stream.h"

#include "base/error.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
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

// Host memory that the device sees, allocated at once and before anything waits: later that might wait for all streams.
struct Pinned {
    static constexpr std::size_t most_streams = 4096, piece = std::size_t{4} << 20;
    Pinned() {
        void* memory = nullptr;
        check(cudaHostAlloc(&memory, most_streams * sizeof *counters + piece,
                            cudaHostAllocMapped | cudaHostAllocPortable));
        counters = static_cast<unsigned*>(memory);
        std::fill_n(counters, most_streams, 0U);
        staging = counters + most_streams;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    unsigned* counters = nullptr; // per stream, the number of the last operation that was done
    void* staging = nullptr;
    cudaStream_t stream = nullptr; // of all copies: a device has 32 queues, and streams that share one wait for another
    std::mutex mutex;
};
Pinned& pinned() {
    static Pinned& value = *new Pinned;
    return value;
}

class CudaCopies final : public DeviceCopies {
  public:
    std::vector<std::byte> read(const void* from, std::size_t bytes) override {
        std::vector<std::byte> content(bytes);
        in_pieces(bytes, [&](std::size_t at, std::size_t size) {
            copy(pinned().staging, static_cast<const std::byte*>(from) + at, size);
            std::memcpy(content.data() + at, pinned().staging, size);
        });
        return content;
    }
    void write(void* to, std::span<const std::byte> from) override {
        in_pieces(from.size(), [&](std::size_t at, std::size_t size) {
            std::memcpy(pinned().staging, from.data() + at, size);
            copy(static_cast<std::byte*>(to) + at, pinned().staging, size);
        });
    }

  private:
    template <class Act>
    static void in_pieces(std::size_t bytes, Act act) {
        const std::lock_guard lock(pinned().mutex);
        for (std::size_t at = 0; at < bytes; at += Pinned::piece) act(at, std::min(Pinned::piece, bytes - at));
    }
    static void copy(void* to, const void* from, std::size_t bytes) {
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, pinned().stream));
        check(cudaStreamSynchronize(pinned().stream));
    }
};

// The thread that works for a stream. It lives as long as the program.
class Worker {
  public:
    Worker(cudaStream_t stream, unsigned* done) : stream_(stream), done_(done) {
        int device = 0;
        check(cudaGetDevice(&device));
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
    unsigned* done_;       // the number of the last that was done
    void* seen_ = nullptr; // the same, as the device sees it
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Given> waiting_;
    unsigned given_ = 0;
};

} // namespace

void give(comm::nccl::Stream stream, std::function<void(DeviceCopies&)> work) {
    static std::mutex mutex;
    static auto& workers = *new std::map<comm::nccl::Stream, Worker*>; // used until the very end
    Worker* worker = nullptr;
    {
        const std::lock_guard lock(mutex);
        auto& place = workers[stream];
        if (place == nullptr) {
            TUTTI_CHECK(workers.size() <= Pinned::most_streams, "{} streams", workers.size());
            place = new Worker(static_cast<cudaStream_t>(stream), &pinned().counters[workers.size() - 1]);
        }
        worker = place;
    }
    worker->give(std::move(work));
}

} // namespace tutti::test
