#include "backend/cpu/cpu.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/onednn.h"

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

// Aligned to huge pages and made of them where the system has some: large models walk through a lot of memory.
class HostArena : public Arena {
  public:
    explicit HostArena(Bytes size) : size_(size) {
        const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(size.count, 1));
        mapped_ = wanted + huge_page;
        void* start = mapped_ < wanted
                          ? MAP_FAILED
                          : ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED) fail_world("no room for {} of host memory", to_string(size));
        start_ = static_cast<std::byte*>(start);
        const auto address = reinterpret_cast<std::uintptr_t>(start_);
        data_ = start_ + ((address + huge_page - 1) / huge_page * huge_page - address);
        ::madvise(data_, wanted, MADV_HUGEPAGE);
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

class CpuDevice : public Device {
  public:
    explicit CpuDevice(int threads) : threads_(threads > 0 ? threads : omp_get_num_procs()) {
        using namespace cpu;
        for (auto add : {add_element_kernels, add_random_kernels, add_copy_kernels, add_norm_kernels,
                         add_column_kernels, add_loss_kernels, add_reduction_kernels, add_index_kernels,
                         add_source_kernels, add_step_kernels, add_attention_kernels})
            add(kernels_);
        add_matrix_kernels(kernels_, std::make_shared<Onednn>());
    }

    std::string name() const override { return cpu::backend_name; }
    bool supports(DType dtype) const override { return dtype != DType::float64 && dtype != DType::float16; }

    std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
        use_threads(threads_); // workspaces are sized for it
        return std::make_unique<ThreadedKernel>(kernels_.prepare(name(), request), threads_);
    }
    std::unique_ptr<Arena> allocate(Bytes size) const override { return std::make_unique<HostArena>(size); }
    void copy_in(std::byte* to, std::span<const std::byte> from) const override {
        std::memcpy(to, from.data(), from.size());
    }
    void copy_out(std::span<std::byte> to, const std::byte* from) const override {
        std::memcpy(to.data(), from, to.size());
    }
    void synchronize() const override {} // kernels have run when `run` returns

  private:
    int threads_;
    KernelTable kernels_;
};

} // namespace

std::unique_ptr<Device> make_cpu_device(int threads) { return std::make_unique<CpuDevice>(threads); }

} // namespace tutti
