#include "backend/cpu/cpu.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/onednn.h"
#include "backend/host_device.h"
#include "base/counted.h"

#include <omp.h>

namespace tutti::backend::cpu {
namespace {

// OpenMP's number of threads belongs to the calling thread; ranks may be threads of one process.
void use_threads(int threads) {
    if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

class ThreadedKernel : public Kernel {
  public:
    ThreadedKernel(std::unique_ptr<Kernel> kernel, int threads) : kernel_(std::move(kernel)), threads_(threads) {}
    Bytes workspace() const override { return kernel_->workspace(); }
    void run(const Launch& launch) const override {
        use_threads(threads_);
        kernel_->run(launch);
    }

  private:
    std::unique_ptr<Kernel> kernel_;
    int threads_;
};

class CpuDevice : public HostDevice {
  public:
    explicit CpuDevice(int threads) : threads_(threads > 0 ? threads : omp_get_num_procs()) {
        for (auto add : {add_element_kernels, add_random_kernels, add_copy_kernels, add_norm_kernels,
                         add_column_kernels, add_loss_kernels, add_reduction_kernels, add_index_kernels,
                         add_source_kernels, add_step_kernels, add_attention_kernels, add_head_kernels})
            add(kernels_);
        add_matrix_kernels(kernels_, std::make_shared<Onednn>());
    }

    std::string name() const override { return backend_name; }
    std::string model() const override { return counted(threads_, "thread"); }
    bool supports(DType dtype) const override { return dtype != DType::float64 && dtype != DType::float16; }

    std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
        use_threads(threads_); // workspaces are sized for it
        return std::make_unique<ThreadedKernel>(kernels_.prepare(name(), request), threads_);
    }

  private:
    int threads_;
    KernelTable kernels_;
};

} // namespace

std::unique_ptr<Device> make_cpu_device(int threads) { return std::make_unique<CpuDevice>(threads); }

} // namespace tutti::backend::cpu
