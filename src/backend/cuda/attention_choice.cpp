#include "backend/cuda/attention_choice.h"

#include "backend/attention.h"
#include "backend/cuda/attention_plain.h"
#include "backend/cuda/cudnn_attention.h"
#include "base/cache_folder.h"
#include "base/error.h"

#include <algorithm>
#include <cstdint>

namespace tutti::backend::cuda {
namespace {

bool aligned(const std::byte* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Only the pointers of a launch tell whether cuDNN's loads are possible, so own kernels are always at hand.
class ChosenAttention : public Kernel {
  public:
    ChosenAttention(std::shared_ptr<const Kernel> chosen, std::shared_ptr<const Kernel> own, std::string how)
        : chosen_(std::move(chosen)), own_(std::move(own)), how_(std::move(how)) {}

    Bytes workspace() const override { return {std::max(own_->workspace().count, chosen_->workspace().count)}; }
    void run(const Launch& launch) const override {
        const bool fits = std::ranges::all_of(launch.inputs, aligned) && std::ranges::all_of(launch.outputs, aligned);
        (fits ? *chosen_ : *own_).run(launch);
    }
    const std::string& how() const { return how_; }

  private:
    std::shared_ptr<const Kernel> chosen_, own_;
    std::string how_;
};

// Everything that may make another kernel the fastest, but for strides, which do so only by what they rule out.
std::string in_words(const KernelRequest& request) {
    std::string text = describe(request);
    for (const auto& [name, value] : request.attributes.entries()) {
        if (name == "scale" || name.starts_with("first_sample") || name.starts_with("first_head")) continue;
        text += fmt::format(", {} {}", name, name == "dropout" ? "on" : to_string(value));
    }
    return text;
}

const AttentionCandidate* find(const std::vector<AttentionCandidate>& candidates, const std::string& name) {
    const auto at = std::ranges::find(candidates, name, &AttentionCandidate::name);
    return at == candidates.end() ? nullptr : &*at;
}

// Where there are no tiles for it.
AttentionCandidate plain_attention(const KernelRequest& request, const Gpu& gpu) {
    if (request.op == "attention") return {"plain kernels", make_plain_attention(request, gpu)};
    return {"plain kernels", make_plain_attention_gradient(request, gpu)};
}

// Floating-point operations, but for what the positions rule out.
double flops_of(const KernelRequest& request) {
    const std::size_t q = request.op == "attention" ? 0 : 1;
    const Shape &qs = request.inputs[q].type.shape, &ks = request.inputs[q + 1].type.shape;
    const AttentionPositions positions(request.attributes, qs[1], ks[1]);
    const std::int64_t sizes = qs[3] + request.inputs[q + 2].type.shape[3];
    return (q == 0 ? 2 : 5) * positions.pairs() * static_cast<double>(qs[0] * qs[2] * sizes);
}

// What slows own kernels down, and what would avoid it; nothing where there is not much work.
std::vector<std::string> slow_parts(const KernelRequest& request) {
    constexpr double much = 1e9; // floating-point operations
    const bool forward = request.op == "attention";
    const Operand& q = request.inputs[forward ? 0 : 1];
    const std::int64_t head = q.type.shape[3], value_head = request.inputs[forward ? 2 : 3].type.shape[3];
    if (flops_of(request) < much) return {};
    if (q.type.dtype == DType::float32)
        return {"attention in float32 runs without tensor cores, which is slow; in bf16 it runs on them"};
    std::vector<std::string> parts;
    if (head % 8 != 0 || value_head % 8 != 0)
        parts.push_back(fmt::format("attention reads heads of {} elements one element at a time, which is slow; heads "
                                    "whose size is a multiple of 8 are read eight at a time",
                                    head % 8 != 0 ? head : value_head));
    if (!forward && wants_gradient(request.attributes, "bias"))
        parts.emplace_back("the gradient of attention's learned bias runs without tensor cores, which is slow; a mask, "
                           "which has no gradient, is not");
    return parts;
}

} // namespace

// Opened when it is first needed; not looked for again where it is not there.
std::shared_ptr<const Cudnn> AttentionChoice::library() {
    if (!missing_.empty()) throw CudnnError(missing_);
    try {
        if (library_ == nullptr) library_ = std::make_shared<const Cudnn>();
    } catch (const CudnnError& error) {
        missing_ = error.what();
        throw;
    }
    return library_;
}

TuningCache& AttentionChoice::cache() {
    if (!cache_) {
        std::string version = "without cudnn";
        try {
            version = fmt::format("cudnn {}", library()->version());
        } catch (const CudnnError&) {
        }
        cache_.emplace(cache_folder(), fmt::format("{} attention {}", gpu_.name, version));
    }
    return *cache_;
}

const AttentionChoice::CudnnKernels& AttentionChoice::cudnn_kernels(const KernelRequest& request) {
    std::string key = in_words(request);
    for (const auto* operands : {&request.inputs, &request.outputs})
        for (const Operand& operand : *operands) key += to_string(operand.strides);
    key += to_string(request.attributes);
    if (const auto known = cudnn_kernels_.find(key); known != cudnn_kernels_.end()) return known->second;
    CudnnKernels& made = cudnn_kernels_[key];
    made.lacks = cudnn_attention_lacks(request);
    if (!made.lacks.empty()) return made;
    try {
        for (auto& kernel : make_cudnn_attention(library(), request)) {
            std::string name = engine_of(*kernel);
            made.kernels.push_back({std::move(name), std::move(kernel)});
        }
    } catch (const CudnnError& error) {
        made.lacks = std::string("it says ") + error.what();
    }
    return made;
}

const AttentionCandidate& AttentionChoice::fastest_of(const KernelRequest& request,
                                                      const std::vector<AttentionCandidate>& all, bool with_cudnn) {
    const std::string words = in_words(request) + (with_cudnn ? "" : ", own kernels alone");
    auto taken = [&](const AttentionCandidate& one) -> const AttentionCandidate& {
        chosen_[words] = one.name;
        return one;
    };
    if (const auto given = given_.find(words); given != given_.end())
        if (const auto* found = find(all, given->second)) return taken(*found);
    if (const auto known = cache().find(words)) {
        if (const auto* found = find(all, known->algorithm)) return taken(*found);
        cache().refuse(words);
    }
    if (!cache().writable()) return all.front();
    double microseconds = 0;
    const std::size_t best = time_attention(request, all, microseconds);
    // What is not kept is not used: the next run would not know of it, and might measure another order.
    const auto kept = cache().keep(words, {all[best].name, microseconds});
    const auto* found = kept ? find(all, kept->algorithm) : nullptr;
    return found ? taken(*found) : all.front();
}

std::unique_ptr<Kernel> AttentionChoice::prepare(const KernelRequest& request) {
    constexpr double worth_measuring = 50e6; // floating-point operations; tests stay quick
    const std::lock_guard lock(mutex_);
    std::vector<AttentionCandidate> own = tiled_attention(request, gpu_);
    if (own.empty()) own.push_back(plain_attention(request, gpu_));
    const std::string asked = request.attributes.has("engine") ? request.attributes.text("engine") : "";
    for (std::string& part : slow_parts(request)) slow_.insert(std::move(part));
    if (asked.empty() && flops_of(request) < worth_measuring)
        return std::make_unique<ChosenAttention>(own.front().kernel, own.front().kernel, own.front().name);

    std::vector<AttentionCandidate> all = own;
    std::string how = ", not cuDNN: as asked for";
    if (asked != "own") {
        const CudnnKernels& cudnn = cudnn_kernels(request);
        all.insert(all.begin(), cudnn.kernels.begin(), cudnn.kernels.end());
        how = cudnn.lacks.empty() ? "" : ", not cuDNN: " + cudnn.lacks;
    }
    const AttentionCandidate* chosen = find(all, asked);
    if (chosen == nullptr) chosen = all.size() == 1 ? &all.front() : &fastest_of(request, all, all.size() > own.size());
    how_.insert(
        fmt::format("{} by {}{}", request.op == "attention" ? "attention" : "attention's gradient", chosen->name, how));
    return std::make_unique<ChosenAttention>(chosen->kernel, own.front().kernel, chosen->name + how);
}

std::map<std::string, std::string> AttentionChoice::timed_choices() const {
    const std::lock_guard lock(mutex_);
    return chosen_;
}

void AttentionChoice::follow_timed_choices(const std::map<std::string, std::string>& choices) {
    const std::lock_guard lock(mutex_);
    given_ = choices;
}

std::vector<std::string> AttentionChoice::chosen() const {
    const std::lock_guard lock(mutex_);
    return {how_.begin(), how_.end()};
}
std::vector<std::string> AttentionChoice::slow() const {
    const std::lock_guard lock(mutex_);
    return {slow_.begin(), slow_.end()};
}

std::string how_attention_runs(const Kernel& kernel) { return dynamic_cast<const ChosenAttention&>(kernel).how(); }

void add_attention_kernels(KernelTable& table, const std::shared_ptr<AttentionChoice>& choice) {
    for (const char* op : {"attention", "attention_gradient"})
        table.add(op, PrepareKernel([choice](const KernelRequest& request) { return choice->prepare(request); }));
}

} // namespace tutti::backend::cuda
