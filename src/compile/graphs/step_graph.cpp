#include "compile/graphs/step_graph.h"

#include "base/error.h"
#include "compile/graphs/stages.h"
#include "graph/autodiff.h"
#include "graph/merge.h"
#include "graph/passes.h"
#include "graph/verify.h"

namespace tutti::compile {
namespace {

std::string numbered(std::string_view prefix, std::string_view name, std::string_view old_prefix) {
    return std::string(prefix) + std::string(name.substr(old_prefix.size()));
}

ValueId dense(Graph& graph, ValueId value) {
    const Value& v = graph.value(value);
    return is_dense(v.type.shape, v.layout.strides) ? value : graph.add("contiguous", {value});
}

ValueId zeros(Graph& graph, const TensorType& type) {
    return graph.add("fill", {},
                     {{"dtype", std::string(name_of(type.dtype))},
                      {"shape", std::vector<std::int64_t>(type.shape.begin(), type.shape.end())},
                      {"value", 0.0}});
}

// Where gradients come into a graph: at the loss, from the step's scalars, and at a stage's outputs, from the next
// stage.
std::vector<GradientSeed> add_seeds(Graph& graph) {
    std::vector<GradientSeed> seeds;
    const std::vector<Output> outputs(graph.outputs().begin(), graph.outputs().end());
    for (const Output& output : outputs) {
        const TensorType type = graph.type(output.value);
        if (output.name == "loss") {
            const NodeId producer = graph.value(output.value).producer;
            graph.set_block(producer == NodeId::none ? -1 : graph.node(producer).block);
            const Attributes seed = {{"field", std::string("loss_seed")}, {"dtype", std::string(name_of(type.dtype))}};
            seeds.push_back({output.value, graph.add("step_scalar", {}, seed, "loss")});
        } else if (output.name.starts_with(sharding::stage_output) && is_floating(type.dtype)) {
            std::string name = numbered(sharding::stage_output_gradient, output.name, sharding::stage_output);
            seeds.push_back({output.value, graph.add_input(std::move(name), type)});
        }
    }
    return seeds;
}

} // namespace

Graph differentiated(Graph forward, bool merge) {
    ValueId any = forward.outputs().front().value;
    Graph step = merge ? merge_linears(forward, any) : std::move(forward);
    std::vector<ValueId> wanted;
    for (ValueId input : step.inputs())
        if (step.value(input).name.starts_with(sharding::stage_input) && is_floating(step.type(input).dtype))
            wanted.push_back(input);
    step.begin(Phase::backward);
    const std::vector<GradientSeed> seeds = add_seeds(step);
    const std::vector<ValueId> gradients = differentiate(step, seeds, wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const ValueId gradient = gradients[i] == ValueId::none ? zeros(step, step.type(wanted[i])) : gradients[i];
        std::string name = numbered(sharding::stage_input_gradient, step.value(wanted[i]).name, sharding::stage_input);
        step.add_output({std::move(name), dense(step, gradient), ValueId::none});
    }
    return eliminate_dead_code(eliminate_common_subexpressions(step));
}

Graph finished(Graph step, const FusionOptions& fusion) {
    Graph result = materialise(fuse(std::move(step), fusion));
    verify(result);
    return result;
}

Graph make_training_graph(Graph forward, ValueId loss, const FusionOptions& fusion) {
    const Output* output = forward.output("loss");
    TUTTI_CHECK(output != nullptr && output->value == loss, "the loss is not the output of that name");
    return finished(differentiated(std::move(forward), fusion.merge_linears), fusion);
}

Graph make_forward_graph(const Graph& forward) {
    return finished(eliminate_dead_code(eliminate_common_subexpressions(forward)), no_fusion);
}

} // namespace tutti::compile
