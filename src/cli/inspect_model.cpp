// What a model is: its architecture, its tensors, what it costs, and the graph and program it becomes.

#include "base/counted.h"
#include "base/error.h"
#include "cli/inspect.h"
#include "compile/compile.h"
#include "compile/graphs/step_graph.h"
#include "graph/text.h"
#include "models/checkpoint.h"
#include "models/model.h"
#include "terminal/shown.h"
#include "terminal/words.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

namespace tutti::cli {
namespace {

models::ModelShape shape_of(const models::ModelFacts& facts, const ModelInspectOptions& options) {
    std::int64_t sequence = options.sequence;
    if (sequence == 0) sequence = std::min<std::int64_t>(facts.context > 0 ? facts.context : 1024, 1024);
    return {options.batch, sequence, DType::float32};
}

Plan plan_of(const models::Model& model, const models::ModelShape& shape) {
    Plan plan;
    plan.model = model.architecture;
    plan.workload = {shape.sequence, shape.batch, shape.batch};
    return plan;
}

struct TensorRow {
    std::string name;
    std::string dtype;
    Shape shape;
};

// Element types are those of the folder's files; a built-in model has none yet.
std::vector<TensorRow> rows_of(const models::ModelSource& source, const models::Model& model,
                               const formats::TensorStore* weights) {
    std::vector<TensorRow> rows;
    for (const StoredTensor& tensor : model.graph.stored()) {
        const DType dtype = weights ? weights->entry(models::checkpoint_name(source, *weights, tensor.name)).type.dtype
                                    : tensor.type.dtype;
        rows.push_back({tensor.name, std::string(name_of(dtype)), tensor.type.shape});
    }
    return rows;
}

// "model.layers.3.mlp.up_proj.weight" is {"model.layers.", 3, ".mlp.up_proj.weight"}.
struct LayerName {
    std::string before, after;
    std::int64_t number = 0;
};
std::optional<LayerName> layer_of(const std::string& name) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        const std::size_t end = name.find('.', dot + 1);
        if (end == std::string::npos) return std::nullopt;
        if (const auto number = terminal::parse_integer(std::string_view(name).substr(dot + 1, end - dot - 1)))
            return LayerName{name.substr(0, dot + 1), name.substr(end), *number};
    }
    return std::nullopt;
}

// Layers repeat: the tensors of the first are shown, and how many there are of them.
std::string tensor_table(const std::vector<TensorRow>& rows) {
    std::map<std::string, std::int64_t> repeats; // of a name without its number
    auto key = [](const TensorRow& row, const LayerName& layer) {
        return layer.before + "*" + layer.after + " " + row.dtype + to_string(row.shape);
    };
    for (const TensorRow& row : rows)
        if (const auto layer = layer_of(row.name)) ++repeats[key(row, *layer)];
    std::vector<std::vector<std::string>> table = {{"tensor", "type", "shape", ""}};
    for (const TensorRow& row : rows) {
        std::string note;
        if (const auto layer = layer_of(row.name)) {
            std::int64_t& count = repeats[key(row, *layer)];
            if (count == 0) continue; // shown already
            if (count > 1) note = fmt::format("x {} layers", count);
            count = 0;
        }
        table.push_back({terminal::name_to_show(row.name), row.dtype, to_string(row.shape), note});
    }
    return terminal::lay_out(table);
}

} // namespace

Inspection inspect_model(const std::string& name_or_folder, const ModelInspectOptions& options) {
    const models::ModelSource source = models::open_model(name_or_folder);
    const models::ModelFacts& facts = source.facts();
    const models::ModelShape shape = shape_of(facts, options);
    const models::Model model = source.build(shape);
    std::vector<std::string> warnings = source.warnings();
    std::optional<formats::TensorStore> weights;
    if (!source.folder().empty()) {
        weights.emplace(source.folder());
        for (const std::string& warning : models::check_weights(source, model, *weights)) warnings.push_back(warning);
    }
    const std::vector<TensorRow> rows = rows_of(source, model, weights ? &*weights : nullptr);
    std::int64_t parameters = 0;
    for (const TensorRow& row : rows) parameters += row.shape.elements();
    const double tokens = static_cast<double>(shape.batch * shape.sequence);
    const double forward = cost_of(model.graph, 0, model.graph.nodes().size()).flops.count / tokens;
    const Graph step = compile::make_training_graph(model.graph, model.loss);
    const double training = cost_of(step, 0, step.nodes().size()).flops.count / tokens;

    Inspection result;
    result.json = {{"kind", "model"},
                   {"architecture", facts.architecture},
                   {"causal", facts.causal},
                   {"vocabulary", facts.vocabulary},
                   {"context", facts.context},
                   {"max_sequence", facts.max_sequence},
                   {"parameters", parameters},
                   {"batch", shape.batch},
                   {"sequence", shape.sequence},
                   {"forward_flops_per_token", forward},
                   {"training_flops_per_token", training},
                   {"warnings", warnings},
                   {"tensors", nlohmann::ordered_json::array()}};
    for (const TensorRow& row : rows)
        result.json["tensors"].push_back({{"name", row.name},
                                          {"dtype", row.dtype},
                                          {"shape", std::vector<std::int64_t>(row.shape.begin(), row.shape.end())}});
    const std::vector<terminal::Definition> lines = {
        {"model", {terminal::name_to_show(source.where())}},
        {"architecture",
         {terminal::name_to_show(facts.architecture) + (facts.causal ? ", causal" : ", masked language model")}},
        {"parameters", {terminal::with_commas(parameters)}},
        {"vocabulary", {terminal::with_commas(facts.vocabulary)}},
        {"context",
         {fmt::format("{}{}", counted(facts.context, "token"), facts.max_sequence > 0 ? "" : ", or longer")}},
        {"work per token",
         {fmt::format("{} forward, {} in training (sequences of {})", terminal::short_number(forward, "FLOP"),
                      terminal::short_number(training, "FLOP"), shape.sequence)}},
    };
    result.text = terminal::define(lines, 10000) + '\n' + tensor_table(rows);
    for (const std::string& warning : warnings) result.text += "\nwarning: " + warning + '\n';
    return result;
}

std::string model_graph_text(const std::string& name_or_folder, const ModelInspectOptions& options) {
    const models::ModelSource source = models::open_model(name_or_folder);
    return to_text(source.build(shape_of(source.facts(), options)).graph);
}

std::string model_program_text(const std::string& name_or_folder, const ModelInspectOptions& options) {
    const models::ModelSource source = models::open_model(name_or_folder);
    const models::ModelShape shape = shape_of(source.facts(), options);
    const models::Model model = source.build(shape);
    return to_text(
        compile::compile_training(compile::make_training_graph(model.graph, model.loss), plan_of(model, shape))
            .program);
}

} // namespace tutti::cli
