// The CUDA backend: matrix products by cuBLASLt, attention by cuDNN or own kernels, everything else by own kernels.
// A plug-in: backend/plugin.h opens it by name and calls the one function it exports.
#pragma once

#include "backend/device.h"
#include "backend/kernel_table.h"

#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <vector>

namespace tutti::backend::cuda {

constexpr const char* backend_name = "cuda";

// WorldError naming what was done and what CUDA says.
void check(cudaError_t status, const char* what);

// The GPU at hand, as kernels need to know it.
struct Gpu {
    int number = 0;
    std::string name;
    int multiprocessors = 0;
    int major = 0, minor = 0; // compute capability
    std::int64_t l2_bytes = 0;
    int shared_bytes = 0; // a block may have at most; TUTTI_GPU_SHARED_MEMORY may lower it
    std::string identity; // of this GPU among all there are
    int compiled_for = 0; // the compute capability that its kernels here were compiled for, at most its own: 80, 90
};

// Of the current GPU, by compute capability; 0 where there are no kernels for it.
int compiled_for();
// Error where the GPU is too old, or this plug-in was built for others.
Gpu describe_gpu(int number);
GpuFigures figures_of(const Gpu& gpu);

// The streams of a device's queues. CUDA's own way to wait for a device, and its stream for copies at once, take in
// what other ranks of this process do there, and fail while one of them records a step.
class Streams {
  public:
    cudaStream_t make();
    void end(cudaStream_t stream);
    void synchronize() const;

  private:
    mutable std::mutex mutex_;
    std::vector<cudaStream_t> all_;
};

// From or to any host memory, done when it returns.
void copy_now(void* to, const void* from, std::size_t bytes, const char* what);

class CudaQueue : public Queue {
  public:
    explicit CudaQueue(std::shared_ptr<Streams> streams);
    ~CudaQueue() override;
    CudaQueue(const CudaQueue&) = delete;
    CudaQueue& operator=(const CudaQueue&) = delete;

    cudaStream_t stream() const { return stream_; }
    void copy_in(std::byte* to, std::span<const std::byte> from) override;
    void copy_out(std::span<std::byte> to, const std::byte* from) override;
    void copy_blocks(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                     std::int64_t bytes, std::int64_t count) override;
    void clear(std::span<std::byte> bytes) override;
    std::shared_ptr<const Event> mark() override;
    void note_time(Seconds& moment) override;
    void wait(const std::shared_ptr<const Event>& event) override;
    void synchronize() override;
    std::unique_ptr<Recording> record(const std::function<void()>& work) override;
    void replay(const Recording& recording) override;
    void* native() const override { return stream_; }

  private:
    std::shared_ptr<Streams> streams_;
    cudaStream_t stream_;
};

std::unique_ptr<Arena> make_staging(Bytes size); // staging.cpp

inline cudaStream_t stream_of(const Launch& launch) { return static_cast<CudaQueue*>(launch.queue)->stream(); }

// The kernels, by family. Each file of this folder holds one or two.
class Cublas;                                      // cublas.h
class AttentionChoice;                             // attention_choice.h
void add_element_kernels(KernelTable&);            // elements.cu: unary, binary, where, cast, accumulate
void add_copy_kernels(KernelTable&);               // copy.cu: contiguous, concat, slice_gradient
void add_reduction_kernels(KernelTable&);          // reduction.cu: reduce_*, cumsum, softmax and its gradient
void add_index_kernels(KernelTable&);              // index.cu: embedding, gather and their gradients
void add_source_kernels(KernelTable&);             // source.cu: fill, iota, rotary_table, step_scalar, dropout
void add_step_kernels(KernelTable&);               // step.cu: squared_norm, finish_norm, adamw
void add_norm_kernels(KernelTable&, const Gpu&);   // norm.cu: layer_norm, rms_norm, fused with residuals; gradients
void add_column_kernels(KernelTable&, const Gpu&); // columns.cu: bias_gradient, norm weight gradients
void add_activation_kernels(KernelTable&);         // activation.cu: gated, its gradient; rotary
void add_loss_kernels(KernelTable&, const Gpu&);   // loss.cu: cross_entropy, its parts and gradient
void add_attention_kernels(KernelTable&, const std::shared_ptr<AttentionChoice>&);
void add_matrix_kernels(KernelTable&, const std::shared_ptr<Cublas>&); // matrix.cpp: linear, matmul and gradients
void add_head_kernels(KernelTable&, const Gpu&,
                      const std::shared_ptr<Cublas>&); // head.cpp: linear_cross_entropy_gradient

} // namespace tutti::backend::cuda
