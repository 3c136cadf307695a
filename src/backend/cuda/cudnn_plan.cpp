// Which engine runs a graph, and running it.
#include "backend/cuda/cudnn.h"

#include "base/error.h"

#include <algorithm>

namespace tutti::backend::cuda {

constexpr std::int64_t most_kernels = 64; // of an engine

struct CudnnPlan::Graph {
    OperationGraph operations;
    Descriptor finished;

    explicit Graph(OperationGraph graph) : operations(std::move(graph)), finished(operations.finish()) {}
    const Cudnn& cudnn() const { return operations.cudnn(); }
};

// An engine and its settings, which refer to each other.
struct CudnnPlan::Configuration {
    Descriptor engine, settings;
    std::vector<Descriptor> knobs;
    std::string name;
};

namespace {

std::int64_t number_of(const Descriptor& engine) {
    std::int64_t number = 0;
    engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    return number;
}

bool is_deterministic(const Descriptor& engine) {
    std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
    const std::int64_t count =
        engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, std::ssize(notes), notes.data());
    const auto there = std::span(notes).first(static_cast<std::size_t>(std::min(count, std::ssize(notes))));
    return std::ranges::find(there, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == there.end();
}

// Descriptors of one kind that an attribute refers to.
std::vector<Descriptor> referred(const Cudnn& cudnn, const Descriptor& of, cudnnBackendAttributeName_t attribute,
                                 cudnnBackendDescriptorType_t type, const std::string& name) {
    const std::int64_t count = of.get(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    std::vector<Descriptor> found;
    std::vector<cudnnBackendDescriptor_t> pointers;
    for (std::int64_t i = 0; i < count; ++i) pointers.push_back(found.emplace_back(cudnn, type, name).pointer());
    const std::int64_t there = of.get(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, pointers.data());
    while (std::ssize(found) > there) found.pop_back();
    return found;
}

std::string name_of(const Descriptor& engine, const std::vector<Descriptor>& knobs) {
    std::string name = fmt::format("engine {}", number_of(engine));
    for (const Descriptor& knob : knobs) {
        cudnnBackendKnobType_t type{};
        std::int64_t value = 0;
        knob.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        knob.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
        name += fmt::format(" {}={}", static_cast<int>(type), value);
    }
    return name;
}

} // namespace

// What cuDNN's heuristics propose, best first.
std::vector<CudnnPlan::Configuration> CudnnPlan::proposed(const Graph& graph) {
    const Cudnn& cudnn = graph.cudnn();
    Descriptor heuristics(cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.finished);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    heuristics.finalize();
    std::vector<Configuration> found;
    for (Descriptor& settings : referred(cudnn, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "proposed settings")) {
        Descriptor engine(cudnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "proposed engine");
        cudnnBackendDescriptor_t pointer = engine.pointer();
        settings.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &pointer);
        std::vector<Descriptor> knobs = referred(cudnn, settings, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                                 CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "proposed knob");
        std::string name = name_of(engine, knobs);
        found.push_back({std::move(engine), std::move(settings), std::move(knobs), std::move(name)});
    }
    return found;
}

// An engine with one of its kernels, or as it is by default.
CudnnPlan::Configuration CudnnPlan::configured(const Graph& graph, std::int64_t number,
                                               std::optional<std::int64_t> kernel) {
    const Cudnn& cudnn = graph.cudnn();
    const std::string name = fmt::format("engine {}", number) + (kernel ? fmt::format(" with kernel {}", *kernel) : "");
    Descriptor engine(cudnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR, name);
    engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.finished);
    engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, number);
    engine.finalize();
    Descriptor settings(cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, name + ", set up");
    settings.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    std::vector<Descriptor> knobs;
    if (kernel) {
        Descriptor& knob = knobs.emplace_back(cudnn, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, name + ", kernel");
        knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_KERNEL_CFG);
        knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, *kernel);
        knob.finalize();
        settings.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knob);
    }
    settings.finalize();
    return {std::move(engine), std::move(settings), std::move(knobs), name};
}

CudnnPlan::CudnnPlan(std::shared_ptr<const Graph> graph, Configuration configuration) : graph_(std::move(graph)) {
    const Cudnn& cudnn = graph_->cudnn();
    if (!is_deterministic(configuration.engine)) throw CudnnError(configuration.name + ": not deterministic");
    Descriptor plan(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, configuration.name + ", plan");
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration.settings);
    plan.finalize();
    plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_.count);
    engine_ = fmt::format("cuDNN {} {}", cudnn.version(), configuration.name);
    parts_.push_back(std::move(plan));
    parts_.push_back(std::move(configuration.settings));
    parts_.push_back(std::move(configuration.engine));
    for (Descriptor& knob : configuration.knobs) parts_.push_back(std::move(knob));
}

std::vector<CudnnPlan> CudnnPlan::all(OperationGraph operations, std::size_t most) {
    const auto graph = std::make_shared<const Graph>(std::move(operations));
    std::vector<CudnnPlan> plans;
    std::string refusals;
    // `make` gives a configuration, or says why there is none.
    auto attempt = [&](auto make, bool noted) {
        if (plans.size() == most) return;
        try {
            plans.push_back(CudnnPlan(graph, make()));
        } catch (const CudnnError& error) {
            if (noted) refusals += fmt::format("{}{}", refusals.empty() ? "" : "; ", error.what());
        }
    };
    try {
        for (Configuration& one : proposed(*graph)) attempt([&] { return std::move(one); }, true);
    } catch (const CudnnError& error) { // no library of heuristics
        refusals = error.what();
    }
    if (!plans.empty()) return plans;
    std::int64_t engines = 0;
    graph->finished.get(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, 1, &engines);
    for (std::int64_t engine = 0; engine < engines; ++engine)
        attempt([&] { return configured(*graph, engine, std::nullopt); }, true);
    for (std::int64_t engine = 0; engine < engines && plans.empty(); ++engine)
        for (std::int64_t kernel = 0; kernel < most_kernels && plans.empty(); ++kernel)
            attempt([&] { return configured(*graph, engine, kernel); }, false);
    if (plans.empty()) throw CudnnError(refusals);
    return plans;
}

void CudnnPlan::run(cudaStream_t stream, std::span<void* const> operands, void* workspace) const {
    const OperationGraph& graph = graph_->operations;
    const Cudnn& cudnn = graph_->cudnn();
    std::vector<std::int64_t> ids = graph.operand_ids();
    std::vector<void*> pointers(operands.begin(), operands.end());
    TUTTI_CHECK(ids.size() == pointers.size(), "{} operands instead of {}", pointers.size(), ids.size());
    ids.insert(ids.end(), graph.constant_ids().begin(), graph.constant_ids().end());
    for (const float& value : graph.constants()) pointers.push_back(const_cast<float*>(&value));

    Descriptor pack(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "pointers");
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(ids), ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(pointers), pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.finalize();
    cudnn.check(cudnn.functions().set_stream(cudnn.handle(), stream), "choosing the stream");
    cudnn.check(cudnn.functions().execute(cudnn.handle(), parts_.front().pointer(), pack.pointer()), "running a plan");
}

} // namespace tutti::backend::cuda
