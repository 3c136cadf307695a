// A device in the place of CUDA's: the CPU's kernels, on queues that are threads, over memory that it calls its own. So
// programs run as they do on GPUs, without one. With TUTTI_STAND_IN_SHARED all ranks seem to have the same device.
#include "backend/device.h"
#include "backend/cpu/cpu.h"
#include "nccl_stand_in/worker_queue.h"

#include <fmt/format.h>

#include <cstdlib>
#include <set>

namespace tutti::test {

using namespace backend;
using namespace backend::cpu;
namespace {

// All queues of the device.
class Queues {
  public:
    void add(Queue& queue) {
        const std::lock_guard lock(mutex_);
        queues_.insert(&queue);
    }
    void remove(Queue& queue) {
        const std::lock_guard lock(mutex_);
        queues_.erase(&queue);
    }
    void synchronize() {
        const std::lock_guard lock(mutex_);
        for (Queue* queue : queues_) queue->synchronize();
    }

  private:
    std::mutex mutex_;
    std::set<Queue*> queues_;
};

class DeviceQueue final : public WorkerQueue {
  public:
    explicit DeviceQueue(std::shared_ptr<Queues> all) : all_(std::move(all)) { all_->add(*this); }
    ~DeviceQueue() override { all_->remove(*this); }

  private:
    std::shared_ptr<Queues> all_;
};

// Freed when all that was given is done, as memory of a GPU is.
class DeviceArena final : public Arena {
  public:
    DeviceArena(std::unique_ptr<Arena> memory, std::shared_ptr<Queues> queues)
        : memory_(std::move(memory)), queues_(std::move(queues)) {}
    ~DeviceArena() override { queues_->synchronize(); }
    std::byte* data() const override { return memory_->data(); }
    Bytes size() const override { return memory_->size(); }

  private:
    std::unique_ptr<Arena> memory_;
    std::shared_ptr<Queues> queues_;
};

// As CUDA may do, it lets everything on the device come to an end before it runs for the first time.
class LaterKernel final : public Kernel {
  public:
    LaterKernel(std::unique_ptr<Kernel> kernel, std::shared_ptr<Queues> queues)
        : kernel_(std::move(kernel)), queues_(std::move(queues)) {}
    Bytes workspace() const override { return kernel_->workspace(); }
    void run(const Launch& launch) const override {
        std::call_once(loaded_, [&] { queues_->synchronize(); });
        auto work = [kernel = kernel_, inputs = std::vector(launch.inputs.begin(), launch.inputs.end()),
                     outputs = std::vector(launch.outputs.begin(), launch.outputs.end()),
                     later = Launch(launch)]() mutable {
            later.inputs = inputs;
            later.outputs = outputs;
            later.queue = nullptr;
            kernel->run(later);
        };
        static_cast<WorkerQueue*>(launch.queue)->give(std::move(work));
    }

  private:
    std::shared_ptr<const Kernel> kernel_;
    std::shared_ptr<Queues> queues_;
    mutable std::once_flag loaded_;
};

class StandInDevice final : public Device {
  public:
    explicit StandInDevice(int local_rank) : local_rank_(local_rank) {}

    std::string name() const override { return "cuda"; }
    std::string model() const override { return "a stand-in"; }
    bool supports(DType dtype) const override { return cpu_->supports(dtype); }
    bool asynchronous() const override { return true; }
    std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
        return std::make_unique<LaterKernel>(cpu_->prepare(request), queues_);
    }
    std::unique_ptr<Queue> make_queue() const override { return std::make_unique<DeviceQueue>(queues_); }
    std::unique_ptr<Arena> allocate(Bytes size) const override {
        return std::make_unique<DeviceArena>(cpu_->allocate(size), queues_);
    }
    std::unique_ptr<Arena> allocate_staging(Bytes size) const override {
        return std::make_unique<DeviceArena>(cpu_->allocate_staging(size), queues_);
    }
    void copy_in(std::byte* to, std::span<const std::byte> from) const override {
        synchronize();
        cpu_->copy_in(to, from);
    }
    void copy_out(std::span<std::byte> to, const std::byte* from) const override {
        synchronize();
        cpu_->copy_out(to, from);
    }
    void synchronize() const override { queues_->synchronize(); }
    std::string identity() const override {
        return std::getenv("TUTTI_STAND_IN_SHARED") ? "the only one" : fmt::format("number {}", local_rank_);
    }
    std::optional<DeviceMemory> memory() const override {
        constexpr Bytes total{std::int64_t{8} << 30};
        return DeviceMemory{total, total};
    }

  private:
    int local_rank_;
    std::unique_ptr<Device> cpu_ = make_cpu_device(1);
    std::shared_ptr<Queues> queues_ = std::make_shared<Queues>();
};

} // namespace
} // namespace tutti::test

extern "C" __attribute__((visibility("default"))) tutti::backend::Device* tutti_open_device(int local_rank) {
    return new tutti::test::StandInDevice(local_rank);
}
