#include "train/generate.h"

#include "base/error.h"
#include "base/philox.h"
#include "checkpoints/weights.h"
#include "compile/compile.h"
#include "compile/graphs/step_graph.h"
#include "devices/devices.h"
#include "formats/tensor_store.h"
#include "graph/passes.h"
#include "models/checkpoint.h"
#include "runtime/executor.h"
#include "train/session/session.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tutti::train {
namespace {

// A causal model as a function from tokens to the logits of the last one. The whole context is computed anew for every
// token: simple, and fast enough to look at a sample.
class Sampled {
  public:
    explicit Sampled(const GenerateConfig& config) : source_(models::open_model(config.model)) {
        const models::ModelFacts& facts = source_.facts();
        if (!facts.causal)
            fail("{} is a masked language model: it fills gaps and does not continue a text", facts.architecture);
        device_ = devices::open_host_device(config.threads);
        const std::int64_t own = facts.max_sequence > 0 ? facts.max_sequence : facts.context;
        plan_.workload = {.sequence = config.sequence > 0 ? config.sequence : std::min<std::int64_t>(own, 1024),
                          .global_batch = 1,
                          .micro_batch = 1};
        plan_.precision = {.compute = config.dtype};
        models::Model model = source_.build({1, plan_.workload.sequence, config.dtype});
        if (!source_.folder().empty()) models::check_weights(source_, model, formats::TensorStore(source_.folder()));
        const Graph graph = compile::make_forward_graph(remove_dropout(model.graph));
        const compile::Ownership ownership = compile::own_all(graph, plan_);
        program_ = compile::compile_forward(graph, plan_, ownership);
        executor_ = std::make_unique<runtime::Executor>(program_, *device_, groups_);
        const Bytes chunk_memory = offload::model_data_bytes(program_);
        memory_ = device_->allocate(chunk_memory + executor_->scratch());
        data_ = std::make_unique<offload::ModelData>(*device_, program_, ownership, memory_->data());
        executor_->bind(*data_, memory_->data() + chunk_memory.count);
        if (source_.folder().empty())
            checkpoints::initialise_weights(graph.stored(), model.initialisation, config.seed, *data_);
        else
            checkpoints::load_weights(source_, *data_);
        input_.resize(static_cast<std::size_t>(plan_.workload.sequence));
        targets_.resize(input_.size(), -100);
    }

    std::int64_t vocabulary() const { return source_.facts().vocabulary; }

    // Logits that follow the last of `tokens`; only as many of them as the context holds are seen.
    std::vector<float> next(const std::vector<std::int64_t>& tokens) {
        const std::size_t seen = std::min(tokens.size(), input_.size());
        std::copy(tokens.end() - static_cast<std::ptrdiff_t>(seen), tokens.end(), input_.begin());
        executor_->step({}, [&](std::int32_t, std::span<std::byte* const> inputs) {
            std::ranges::copy(std::as_bytes(std::span(input_)), inputs[0]);
            std::ranges::copy(std::as_bytes(std::span(targets_)), inputs[1]);
        });
        const Argument& logits = executor_->output("logits").buffer;
        const std::int64_t row = vocabulary() * size_of(logits.type.dtype);
        std::vector<std::byte> raw(static_cast<std::size_t>(row));
        device_->copy_out(raw, executor_->address(logits.address) + static_cast<std::int64_t>(seen - 1) * row);
        std::vector<float> values(static_cast<std::size_t>(vocabulary()));
        formats::convert_elements(logits.type.dtype, raw, DType::float32, std::as_writable_bytes(std::span(values)));
        return values;
    }

  private:
    models::ModelSource source_;
    Plan plan_;
    std::unique_ptr<backend::Device> device_;
    std::unique_ptr<comm::World> world_ = comm::make_single_world();
    runtime::GroupTable groups_{*world_};
    Program program_;
    std::unique_ptr<runtime::Executor> executor_;
    std::unique_ptr<backend::Arena> memory_;
    std::unique_ptr<offload::ModelData> data_;
    std::vector<std::int64_t> input_, targets_;
};

std::int64_t draw(const std::vector<float>& logits, const GenerateConfig& config, std::uint64_t number) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return logits[i]; });
    if (config.temperature <= 0) return static_cast<std::int64_t>(order[0]);
    if (config.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(config.top_k)));
    std::vector<double> cumulative;
    double total = 0;
    for (std::size_t i : order) {
        total +=
            std::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[order[0]])) / config.temperature);
        cumulative.push_back(total);
    }
    const PhiloxKey key{static_cast<std::uint32_t>(config.seed), static_cast<std::uint32_t>(config.seed >> 32)};
    const double at = static_cast<double>(uniform_from_bits(philox_draw(key, 0, number))) * total;
    const auto found = std::ranges::upper_bound(cumulative, at) - cumulative.begin();
    return static_cast<std::int64_t>(order[std::min(static_cast<std::size_t>(found), order.size() - 1)]);
}

} // namespace

void generate(const GenerateConfig& config, const std::function<bool(std::int64_t)>& emit) {
    if (config.prompt.empty()) fail("the prompt is empty: give at least one token");
    if (config.tokens < 0) fail("tokens is {}; it has to be at least 0", config.tokens);
    if (!(config.temperature >= 0)) fail("temperature is {}; it has to be at least 0", config.temperature);
    if (config.top_k < 0) fail("top_k is {}; it has to be at least 0", config.top_k);
    Sampled model(config);
    for (std::int64_t token : config.prompt)
        if (token < 0 || token >= model.vocabulary())
            fail("token {} of the prompt is outside the model's vocabulary of {}", token, model.vocabulary());
    std::vector<std::int64_t> tokens = config.prompt;
    for (std::int64_t i = 0; i < config.tokens; ++i) {
        tokens.push_back(draw(model.next(tokens), config, static_cast<std::uint64_t>(i)));
        if (!emit(tokens.back())) return;
    }
}

} // namespace tutti::train
