// Attention and its gradient: by cuDNN where it is there and supports the operands, else by own kernels.
#include "backend/cuda/attention.h"

#include "backend/attention.h"
#include "backend/cuda/attention_choice.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn_attention.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace tutti::backend::cuda {
namespace {

// Error for what these kernels do not compute.
void expect_supported(const KernelRequest& request) {
    static constexpr std::string_view known[] = {"causal",       "dropout", "engine", "first_head",
                                                 "first_sample", "scale",   "takes"};
    expect_attributes(backend_name, request, known);
    const std::size_t required = request.op == "attention" ? 3 : 6;
    const AttentionInputs given(request.attributes, required, request.inputs.size());
    if (given.bias || given.sinks || given.documents) fail_unsupported(backend_name, request);
}

bool aligned(const std::byte* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Only the pointers of a launch tell whether cuDNN's loads are possible, so own kernels are always at hand.
class ChosenAttention : public Kernel {
  public:
    ChosenAttention(std::shared_ptr<const Kernel> cudnn, std::unique_ptr<Kernel> own, std::string how)
        : cudnn_(std::move(cudnn)), own_(std::move(own)), how_(std::move(how)) {}

    Bytes workspace() const override {
        return {std::max(own_->workspace().count, cudnn_ ? cudnn_->workspace().count : 0)};
    }
    void run(const Launch& launch) const override {
        const bool fits =
            cudnn_ && std::ranges::all_of(launch.inputs, aligned) && std::ranges::all_of(launch.outputs, aligned);
        (fits ? *cudnn_ : *own_).run(launch);
    }
    const std::string& how() const { return how_; }

  private:
    std::shared_ptr<const Kernel> cudnn_;
    std::unique_ptr<Kernel> own_;
    std::string how_;
};

// cuDNN's kernels are compiled when they are prepared, which takes a second or more: equal requests share them.
class CudnnKernels {
  public:
    struct Found {
        std::shared_ptr<const Kernel> kernel; // null where cuDNN does not serve it
        std::string how;
    };

    const Found& find(const KernelRequest& request) {
        const std::string key = key_of(request);
        auto found = kernels_.find(key);
        if (found == kernels_.end()) found = kernels_.emplace(key, make(request)).first;
        return found->second;
    }

  private:
    Found make(const KernelRequest& request) {
        if (request.attributes.has("engine") && request.attributes.text("engine") == "own")
            return {nullptr, "own kernels: as asked for"};
        if (const std::string lacks = cudnn_attention_lacks(request); !lacks.empty())
            return {nullptr, "own kernels: " + lacks};
        try {
            std::shared_ptr<const Kernel> kernel = request.op == "attention"
                                                       ? make_cudnn_attention(library(), request)
                                                       : make_cudnn_attention_gradient(library(), request);
            return {kernel, engine_of(*kernel)};
        } catch (const CudnnError& error) {
            return {nullptr, std::string("own kernels: cuDNN says ") + error.what()};
        }
    }

    // Opened when it is first needed; not looked for again where it is not there.
    std::shared_ptr<const Cudnn> library() {
        if (!missing_.empty()) throw CudnnError(missing_);
        try {
            if (library_ == nullptr) library_ = std::make_shared<const Cudnn>();
        } catch (const CudnnError& error) {
            missing_ = error.what();
            throw;
        }
        return library_;
    }

    static std::string key_of(const KernelRequest& request) {
        std::string key = describe(request);
        for (const auto* operands : {&request.inputs, &request.outputs})
            for (const Operand& operand : *operands) key += to_string(operand.strides);
        for (const auto& [name, value] : request.attributes.entries()) key += name + "=" + to_string(value) + ",";
        return key;
    }

    std::map<std::string, Found> kernels_;
    std::shared_ptr<const Cudnn> library_;
    std::string missing_; // why the library is not there
};

} // namespace

std::string how_attention_runs(const Kernel& kernel) { return dynamic_cast<const ChosenAttention&>(kernel).how(); }

void add_attention_kernels(KernelTable& table, const Gpu& gpu) {
    auto kernels = std::make_shared<CudnnKernels>();
    auto add = [&](const char* op, auto make_own) {
        table.add(op, PrepareKernel([kernels, gpu, make_own](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                      expect_supported(request);
                      const auto& [kernel, how] = kernels->find(request);
                      return std::make_unique<ChosenAttention>(kernel, make_own(request, gpu), how);
                  }));
    };
    add("attention", make_own_attention);
    add("attention_gradient", make_own_attention_gradient);
}

} // namespace tutti::backend::cuda
