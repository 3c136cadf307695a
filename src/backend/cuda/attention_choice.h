// Which kernels run attention and its gradient: cuDNN's engines or own ones, by their times.
//
// Every shape is timed once on a machine, like matrix products (cublas_timing.cpp), and what was the fastest is kept in
// a file and in plans. Own kernels are preferred where nothing is timed: for shapes that take no time, where the file
// cannot be written, and for operands that cuDNN does not take.
#pragma once

#include "backend/cuda/attention_tiled.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/tuning_cache.h"
#include "backend/device.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti::backend::cuda {

class AttentionChoice {
  public:
    explicit AttentionChoice(const Gpu& gpu) : gpu_(gpu) {}

    // The attribute `engine` asks for some of them: "own", or the name of a candidate.
    std::unique_ptr<Kernel> prepare(const KernelRequest& request);

    // As in Cublas.
    std::map<std::string, std::string> timed_choices() const;
    void follow_timed_choices(const std::map<std::string, std::string>& choices);

    // As in Device.
    std::vector<std::string> chosen() const;
    std::vector<std::string> slow() const;

  private:
    // cuDNN's kernels for a request, or why there are none.
    struct CudnnKernels {
        std::vector<AttentionCandidate> kernels;
        std::string lacks;
    };
    const CudnnKernels& cudnn_kernels(const KernelRequest& request);
    const AttentionCandidate& fastest_of(const KernelRequest& request, const std::vector<AttentionCandidate>& all,
                                         bool with_cudnn);
    std::shared_ptr<const Cudnn> library();
    TuningCache& cache();

    Gpu gpu_;
    mutable std::mutex mutex_;
    std::map<std::string, CudnnKernels> cudnn_kernels_; // equal requests share them: to compile them takes long
    std::shared_ptr<const Cudnn> library_;
    std::string missing_; // why the library is not there
    std::optional<TuningCache> cache_;
    std::map<std::string, std::string> chosen_, given_; // names of candidates, by the request in words
    std::set<std::string> how_, slow_;                  // sentences
};

// The number of the fastest of them, and its time.
std::size_t time_attention(const KernelRequest& request, const std::vector<AttentionCandidate>& candidates,
                           double& microseconds);

// How a kernel for attention or its gradient runs: "cuDNN 91900 engine 2", "tiles of 128 queries ...".
std::string how_attention_runs(const Kernel& kernel);

} // namespace tutti::backend::cuda
