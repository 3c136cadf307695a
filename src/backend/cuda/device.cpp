// The device itself: memory, queues, recordings. CUDA's runtime is linked statically; the driver is found by it.
#include "backend/cuda/attention_choice.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/cuda.h"

#include "base/clock.h"
#include "base/error.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace tutti::backend::cuda {

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    fail_world("{}: CUDA says {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

void copy_now(void* to, const void* from, std::size_t bytes, const char* what) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread), what);
    check(cudaStreamSynchronize(cudaStreamPerThread), what);
}

cudaStream_t Streams::make() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    const std::lock_guard lock(mutex_);
    all_.push_back(stream);
    return stream;
}
void Streams::end(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, stream);
    cudaStreamDestroy(stream);
}
void Streams::synchronize() const {
    const std::lock_guard lock(mutex_); // none may end meanwhile
    for (const cudaStream_t stream : all_) check(cudaStreamSynchronize(stream), "waiting for the device");
}

namespace {

class DeviceArena : public Arena {
  public:
    explicit DeviceArena(Bytes size) : size_(size) {
        const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(size.count, 1));
        if (cudaMalloc(&data_, wanted) != cudaSuccess) {
            (void)cudaGetLastError();
            std::size_t free = 0, total = 0;
            cudaMemGetInfo(&free, &total);
            fail_world("no room for {} of device memory: {} of {} are free", to_string(size),
                       to_string(Bytes{static_cast<std::int64_t>(free)}),
                       to_string(Bytes{static_cast<std::int64_t>(total)}));
        }
        check(cudaMemsetAsync(data_, 0, wanted, cudaStreamPerThread), "clearing device memory");
        check(cudaStreamSynchronize(cudaStreamPerThread), "clearing device memory"); // queues do not wait for it
    }
    ~DeviceArena() override { cudaFree(data_); }
    DeviceArena(const DeviceArena&) = delete;
    DeviceArena& operator=(const DeviceArena&) = delete;

    std::byte* data() const override { return static_cast<std::byte*>(data_); }
    Bytes size() const override { return size_; }

  private:
    Bytes size_;
    void* data_ = nullptr;
};

class CudaEvent : public Event {
  public:
    explicit CudaEvent(cudaStream_t stream) {
        check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
        check(cudaEventRecord(event_, stream), "recording an event");
    }
    ~CudaEvent() override { cudaEventDestroy(event_); }
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;

    cudaEvent_t get() const { return event_; }
    void synchronize() const override { check(cudaEventSynchronize(event_), "waiting for the device"); }
    bool has_come() const override {
        const cudaError_t status = cudaEventQuery(event_);
        if (status == cudaErrorNotReady) return false;
        check(status, "waiting for the device");
        return true;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

class CudaRecording : public Recording {
  public:
    explicit CudaRecording(cudaGraph_t graph) {
        const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
        cudaGraphDestroy(graph);
        check(status, "preparing a recorded step");
    }
    ~CudaRecording() override { cudaGraphExecDestroy(executable_); }
    CudaRecording(const CudaRecording&) = delete;
    CudaRecording& operator=(const CudaRecording&) = delete;

    cudaGraphExec_t get() const { return executable_; }

  private:
    cudaGraphExec_t executable_ = nullptr;
};

class CudaDevice : public Device {
  public:
    // GPUs are handed out in turn to the ranks of this machine.
    explicit CudaDevice(int local_rank) {
        // Streams that wait for other ranks must not share a hardware queue with one that these wait for.
        [[maybe_unused]] static const int done = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
        int count = 0;
        const cudaError_t status = cudaGetDeviceCount(&count);
        if (status != cudaSuccess && ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) // its driver
            fail("the device cuda cannot be used here: no NVIDIA driver is installed");
        if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
            fail("the device cuda cannot be used here: there is no NVIDIA GPU");
        if (status != cudaSuccess) fail("the device cuda cannot be used here: {}", cudaGetErrorString(status));
        gpu_ = describe_gpu(local_rank % count);
        use_here();
        for (auto add : {add_element_kernels, add_copy_kernels, add_reduction_kernels, add_index_kernels,
                         add_source_kernels, add_step_kernels, add_activation_kernels})
            add(kernels_);
        for (auto add : {add_norm_kernels, add_column_kernels, add_loss_kernels}) add(kernels_, gpu_);
        attention_ = std::make_shared<AttentionChoice>(gpu_);
        add_attention_kernels(kernels_, attention_);
        cublas_ = std::make_shared<Cublas>(gpu_);
        add_matrix_kernels(kernels_, cublas_);
        add_head_kernels(kernels_, gpu_, cublas_);
    }

    std::string name() const override { return backend_name; }
    std::string model() const override { return gpu_.name; }
    std::string identity() const override { return gpu_.identity; }
    bool asynchronous() const override { return true; }
    bool supports(DType dtype) const override { return dtype != DType::float64 && dtype != DType::float16; }
    std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
        return kernels_.prepare(name(), request);
    }
    std::map<std::string, std::string> timed_choices() const override {
        std::map<std::string, std::string> all = cublas_->timed_choices();
        all.merge(attention_->timed_choices());
        return all;
    }
    void follow_timed_choices(const std::map<std::string, std::string>& choices) override {
        cublas_->follow_timed_choices(choices);
        attention_->follow_timed_choices(choices);
    }
    std::vector<std::string> chosen_kernels() const override { return attention_->chosen(); }
    std::vector<std::string> slow_kernels() const override { return attention_->slow(); }
    std::unique_ptr<Queue> make_queue() const override { return std::make_unique<CudaQueue>(streams_); }
    std::unique_ptr<Arena> allocate(Bytes size) const override { return std::make_unique<DeviceArena>(size); }
    std::unique_ptr<Arena> allocate_staging(Bytes size) const override { return make_staging(size); }
    void copy_in(std::byte* to, std::span<const std::byte> from) const override {
        use_here();
        synchronize();
        copy_now(to, from.data(), from.size(), "copying to the device");
    }
    void copy_out(std::span<std::byte> to, const std::byte* from) const override {
        use_here();
        synchronize();
        copy_now(to.data(), from, to.size(), "copying from the device");
    }
    void synchronize() const override { streams_->synchronize(); }
    std::optional<GpuFigures> figures() const override { return figures_of(gpu_); }
    std::optional<DeviceMemory> memory() const override {
        std::size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "asking for free device memory");
        return DeviceMemory{{static_cast<std::int64_t>(total)}, {static_cast<std::int64_t>(free)}};
    }

  private:
    // Every thread has a GPU of its own choice, which is the first one until it says so.
    void use_here() const { check(cudaSetDevice(gpu_.number), "opening the GPU"); }

    Gpu gpu_;
    std::shared_ptr<Streams> streams_ = std::make_shared<Streams>();
    std::shared_ptr<Cublas> cublas_;
    std::shared_ptr<AttentionChoice> attention_;
    KernelTable kernels_;
};

} // namespace

CudaQueue::CudaQueue(std::shared_ptr<Streams> streams) : streams_(std::move(streams)), stream_(streams_->make()) {}
CudaQueue::~CudaQueue() { streams_->end(stream_); }

void CudaQueue::copy_in(std::byte* to, std::span<const std::byte> from) {
    check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_), "copying to the device");
}
void CudaQueue::copy_out(std::span<std::byte> to, const std::byte* from) {
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_), "copying from the device");
}
void CudaQueue::copy_blocks(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                            std::int64_t bytes, std::int64_t count) {
    constexpr std::int64_t longest_stride = std::numeric_limits<std::int32_t>::max(); // of a copy in two dimensions
    const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
    if (count > 1 && std::max(to_stride, from_stride) <= longest_stride)
        return check(cudaMemcpy2DAsync(to, size(to_stride), from, size(from_stride), size(bytes), size(count),
                                       cudaMemcpyDeviceToDevice, stream_),
                     "copying on the device");
    for (std::int64_t i = 0; i < count; ++i)
        check(
            cudaMemcpyAsync(to + i * to_stride, from + i * from_stride, size(bytes), cudaMemcpyDeviceToDevice, stream_),
            "copying on the device");
}
void CudaQueue::clear(std::span<std::byte> bytes) {
    check(cudaMemsetAsync(bytes.data(), 0, bytes.size(), stream_), "clearing memory");
}
std::shared_ptr<const Event> CudaQueue::mark() { return std::make_shared<CudaEvent>(stream_); }
void CudaQueue::note_time(Seconds& moment) {
    const cudaHostFn_t note = [](void* to) { *static_cast<Seconds*>(to) = steady_now(); };
    check(cudaLaunchHostFunc(stream_, note, &moment), "noting the time");
}
// Events of the host's own queues are waited for here and now.
void CudaQueue::wait(const std::shared_ptr<const Event>& event) {
    const auto* own = dynamic_cast<const CudaEvent*>(event.get());
    if (own == nullptr) return event->synchronize();
    check(cudaStreamWaitEvent(stream_, own->get(), 0), "waiting for another stream");
}
void CudaQueue::synchronize() { check(cudaStreamSynchronize(stream_), "waiting for the device"); }

std::unique_ptr<Recording> CudaQueue::record(const std::function<void()>& work) {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a step");
    cudaGraph_t graph = nullptr;
    try {
        work();
    } catch (...) {
        if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
        (void)cudaGetLastError();
        throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "recording a step");
    return std::make_unique<CudaRecording>(graph);
}

void CudaQueue::replay(const Recording& recording) {
    check(cudaGraphLaunch(static_cast<const CudaRecording&>(recording).get(), stream_), "running a recorded step");
}

} // namespace tutti::backend::cuda

// What the program looks for in the plug-in. Throws Error where there is no GPU.
extern "C" __attribute__((visibility("default"))) tutti::backend::Device* tutti_open_device(int local_rank) {
    return new tutti::backend::cuda::CudaDevice(local_rank);
}
