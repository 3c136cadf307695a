// Runs step graphs on the reference device, in float64: inputs and outputs by name, weights and tokens that depend on
// nothing but their names and places. A model's stages run one after the other as a pipeline would run them.
#pragma once

#include "backend/reference/reference.h"
#include "base/file.h"
#include "base/philox.h"
#include "compile/graphs/stages.h"
#include "compile/graphs/step_graph.h"
#include "models/model.h"
#include "operators/interpreter.h"
#include "support/paths.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace tutti::test {

constexpr std::int64_t batch = 2, sequence = 5;

// One of each kind of block that families have.
inline const std::vector<std::string> families = {
    "bert",   "bert-untied", "gemma", "gpt2",   "gpt2-variant", "gpt_neox", "gpt_neox-sequential",
    "llama",  "mistral",     "olmo2", "opt",    "opt-plain",    "opt-post", "phi",
    "phi-qk", "qwen2",       "qwen3", "roberta"};

// A reference model, with dropout wherever its family has it.
inline models::Model random_model(const std::string& family, std::int64_t samples = batch) {
    nlohmann::json config = nlohmann::json::parse(read_text(test_data() / "references" / family / "config.json"));
    for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout", "dropout",
                            "hidden_dropout_prob", "attention_probs_dropout_prob"})
        if (config.contains(key)) config[key] = 0.25;
    return models::ModelSource(config, family).build({samples, sequence, DType::float64});
}

using Tensors = std::map<std::string, std::vector<double>>;

inline double uniform(std::uint64_t tensor, std::size_t i) {
    return static_cast<double>(mix_bits(tensor, i) >> 11) * 0x1p-53;
}

// Tokens, and targets of which every third does not count.
inline Tensors some_tokens(const models::Model& model, std::int64_t samples = batch) {
    Tensors tokens;
    for (const char* name : {"input_ids", "targets"})
        for (std::size_t i = 0; i < static_cast<std::size_t>(samples * sequence); ++i)
            tokens[name].push_back(std::floor(uniform(hash_of(name), i) * static_cast<double>(model.vocabulary)));
    for (std::size_t i = 0; i < tokens["targets"].size(); i += 3) tokens["targets"][i] = -100;
    return tokens;
}

class StepRun {
  public:
    explicit StepRun(Graph graph)
        : graph_(std::move(graph)), device_(backend::reference::make_reference_device()), run_(graph_, *device_) {
        run_.scalars.inverse_tokens = 0.125;
        run_.scalars.seed = 7;
        run_.scalars.step = 3;
        for (std::size_t s = 0; s < graph_.stored().size(); ++s) {
            std::vector<double> values(static_cast<std::size_t>(graph_.stored()[s].type.elements()));
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = 0.4 * (uniform(hash_of(graph_.stored()[s].name), i) - 0.4);
            run_.set_stored(s, values);
        }
    }

    const Graph& graph() const { return graph_; }

    void set(const Tensors& tensors) {
        for (ValueId input : graph_.inputs())
            if (const auto found = tensors.find(graph_.value(input).name); found != tensors.end())
                run_.set(input, found->second);
    }
    void run(Phase phase) {
        const auto nodes = graph_.nodes();
        const auto first = std::ranges::lower_bound(nodes, phase, {}, &Node::phase) - nodes.begin(),
                   last = std::ranges::upper_bound(nodes, phase, {}, &Node::phase) - nodes.begin();
        run_.run(static_cast<std::size_t>(first), static_cast<std::size_t>(last));
    }
    // Those whose names begin so, under names that begin otherwise.
    Tensors outputs(std::string_view begin, std::string_view other) {
        Tensors found;
        for (const Output& output : graph_.outputs())
            if (output.parameter == ValueId::none && output.name.starts_with(begin))
                found[std::string(other) + output.name.substr(begin.size())] = run_.get(output.value);
        return found;
    }
    double loss() { return run_.get(graph_.output("loss")->value)[0]; }

    // Adds the gradients of the graph's stored tensors.
    void add_gradients(Tensors& sums) {
        for (const StoredTensor& stored : graph_.stored())
            sums[stored.name].resize(static_cast<std::size_t>(stored.type.elements()));
        for (const Parameter& parameter : graph_.parameters()) {
            const Value& value = graph_.value(parameter.value);
            const std::vector<double> gradient = run_.gradient_of(parameter.value);
            const testing::HostTensor view{value.type, value.layout, {}};
            std::vector<double*> places; // of the elements of the stored tensor, or of all of a run
            for (std::int32_t stored : parameter.run())
                for (double& place : sums[graph_.stored()[static_cast<std::size_t>(stored)].name])
                    places.push_back(&place);
            for (std::size_t i = 0; i < gradient.size(); ++i)
                *places[view.place(static_cast<std::int64_t>(i))] += gradient[i];
        }
    }

  private:
    Graph graph_;
    std::unique_ptr<backend::Device> device_;
    testing::Interpreter run_;
};

struct StepResult {
    double loss = 0;
    Tensors gradients;
};

// Forward through the stages' step graphs, each taking over what the one before gives, and backward through them.
inline StepResult run_stages(std::vector<Graph> steps, const Tensors& tokens) {
    std::deque<StepRun> stages;
    for (Graph& step : steps) stages.emplace_back(std::move(step));
    Tensors handed;
    for (StepRun& stage : stages) {
        stage.set(tokens);
        stage.set(handed);
        stage.run(Phase::forward);
        handed = stage.outputs(sharding::stage_output, sharding::stage_input);
    }
    handed.clear();
    StepResult result;
    for (std::size_t s = stages.size(); s-- > 0;) {
        stages[s].set(handed);
        stages[s].run(Phase::recompute);
        stages[s].run(Phase::backward);
        handed = stages[s].outputs(sharding::stage_input_gradient, sharding::stage_output_gradient);
        stages[s].add_gradients(result.gradients);
    }
    result.loss = stages.back().loss();
    return result;
}

inline double norm(const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value * value;
    return std::sqrt(sum);
}

// The largest relative difference of two results: of the loss, and of every gradient against its norm and a thousandth
// of that of all. Some gradients are 0 but for rounding: attention does not notice what is added to all keys.
inline double difference(const StepResult& a, const StepResult& b) {
    double largest = std::abs(a.loss - b.loss) / std::abs(a.loss);
    if (a.gradients.size() != b.gradients.size()) return std::numeric_limits<double>::infinity();
    double all = 0;
    for (const auto& [name, gradient] : a.gradients) all = std::hypot(all, norm(gradient));
    for (const auto& [name, gradient] : a.gradients) {
        std::vector<double> apart = b.gradients.at(name);
        for (std::size_t i = 0; i < apart.size(); ++i) apart[i] -= gradient[i];
        largest = std::max(largest, norm(apart) / (norm(gradient) + 1e-3 * all));
    }
    return largest;
}

} // namespace tutti::test
