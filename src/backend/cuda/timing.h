// Which of several ways to do a piece of work is the fastest on this GPU.
#pragma once

#include "backend/cuda/cuda.h"

#include <functional>

namespace tutti::backend::cuda {

// Nothing where there is no room.
class DeviceBlock {
  public:
    explicit DeviceBlock(std::int64_t bytes) {
        if (cudaMalloc(&data_, static_cast<std::size_t>(bytes)) == cudaSuccess) return;
        (void)cudaGetLastError();
        data_ = nullptr;
    }
    ~DeviceBlock() { cudaFree(data_); }
    DeviceBlock(const DeviceBlock&) = delete;
    DeviceBlock& operator=(const DeviceBlock&) = delete;

    std::byte* data() const { return static_cast<std::byte*>(data_); }

  private:
    void* data_ = nullptr;
};

// Of the work of a stream.
class Stopwatch {
  public:
    explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
        for (cudaEvent_t* event : {&begin_, &end_}) check(cudaEventCreate(event), "making an event");
    }
    ~Stopwatch() {
        for (const cudaEvent_t event : {begin_, end_})
            if (event) cudaEventDestroy(event);
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

    // The time that `work`, given to it, takes on the device.
    template <class Work>
    double microseconds(const Work& work) const {
        check(cudaEventRecord(begin_, stream_), "timing kernels");
        work();
        check(cudaEventRecord(end_, stream_), "timing kernels");
        check(cudaEventSynchronize(end_), "timing kernels");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing kernels");
        return 1000.0 * milliseconds;
    }

  private:
    cudaStream_t stream_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The number of the fastest of `candidates`, and its time; 0 and no time where none of them runs. `time` gives the mean
// time of some runs of a candidate in microseconds, infinity where it does not run after all.
std::size_t fastest(std::size_t candidates, const std::function<double(std::size_t candidate, int runs)>& time,
                    double& microseconds);

} // namespace tutti::backend::cuda
