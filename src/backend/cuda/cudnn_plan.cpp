// Which engine runs a graph, and running it.
#include "backend/cuda/cudnn.h"

#include "base/error.h"

#include <algorithm>

namespace tutti::backend::cuda {

constexpr std::int64_t most_kernels = 64; // of an engine

CudnnPlan::CudnnPlan(OperationGraph graph, std::span<const CudnnChoice> preferred) : graph_(std::move(graph)) {
    parts_.push_back(graph_.finish());
    std::int64_t engines = 0;
    parts_[0].get(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, 1, &engines);

    std::string refusals;
    auto made = [&](const CudnnChoice& choice, bool noted) {
        try {
            make(choice);
            return true;
        } catch (const CudnnError& error) {
            if (noted) refusals += fmt::format("{}{}", refusals.empty() ? "" : "; ", error.what());
            return false;
        }
    };
    for (const CudnnChoice& choice : preferred)
        if (choice.engine < engines && made(choice, true)) return;
    for (std::int64_t engine = 0; engine < engines; ++engine)
        if (made({engine}, true)) return;
    for (std::int64_t engine = 0; engine < engines; ++engine)
        for (std::int64_t kernel = 0; kernel < most_kernels; ++kernel)
            if (made({engine, kernel}, false)) return;
    throw CudnnError(refusals);
}

void CudnnPlan::make(const CudnnChoice& choice) {
    const Cudnn& cudnn = graph_.cudnn();
    const std::string name =
        fmt::format("engine {}", choice.engine) + (choice.kernel ? fmt::format(" with kernel {}", *choice.kernel) : "");

    Descriptor engine(cudnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR, name);
    engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, parts_[0]);
    engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, choice.engine);
    engine.finalize();

    std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
    const std::int64_t count =
        engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, std::ssize(notes), notes.data());
    const auto there = std::span(notes).first(static_cast<std::size_t>(std::min(count, std::ssize(notes))));
    if (std::ranges::find(there, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != there.end())
        throw CudnnError(name + ": not deterministic");

    Descriptor configuration(cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, name + ", set up");
    configuration.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    std::optional<Descriptor> kernel;
    if (choice.kernel) {
        kernel.emplace(cudnn, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, name + ", kernel");
        kernel->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_KERNEL_CFG);
        kernel->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, *choice.kernel);
        kernel->finalize();
        configuration.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, *kernel);
    }
    configuration.finalize();

    Descriptor plan(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, name + ", plan");
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    plan.finalize();
    plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_.count);

    engine_ = fmt::format("cuDNN {} {}", cudnn.version(), name);
    parts_.push_back(std::move(engine));
    if (kernel) parts_.push_back(std::move(*kernel));
    parts_.push_back(std::move(configuration));
    parts_.push_back(std::move(plan));
}

void CudnnPlan::run(cudaStream_t stream, std::span<void* const> operands, void* workspace) const {
    const Cudnn& cudnn = graph_.cudnn();
    std::vector<std::int64_t> ids = graph_.operand_ids();
    std::vector<void*> pointers(operands.begin(), operands.end());
    TUTTI_CHECK(ids.size() == pointers.size(), "{} operands instead of {}", pointers.size(), ids.size());
    ids.insert(ids.end(), graph_.constant_ids().begin(), graph_.constant_ids().end());
    for (const float& value : graph_.constants()) pointers.push_back(const_cast<float*>(&value));

    Descriptor pack(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "pointers");
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(ids), ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(pointers), pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.finalize();
    cudnn.check(cudnn.functions().set_stream(cudnn.handle(), stream), "choosing the stream");
    cudnn.check(cudnn.functions().execute(cudnn.handle(), parts_.back().pointer(), pack.pointer()), "running a plan");
}

} // namespace tutti::backend::cuda
