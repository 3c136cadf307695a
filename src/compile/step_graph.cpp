#include "compile/step_graph.h"

#include "graph/autodiff.h"
#include "graph/merge.h"
#include "graph/passes.h"
#include "graph/verify.h"

namespace tutti {
namespace {

Graph normal_form(const Graph& graph, const FusionOptions& fusion) {
    Graph result = materialise(fuse(eliminate_dead_code(eliminate_common_subexpressions(graph)), fusion));
    verify(result);
    return result;
}

} // namespace

Graph make_training_graph(Graph forward, ValueId loss, const FusionOptions& fusion) {
    if (fusion.merge_linears) forward = merge_linears(forward, loss);
    forward.begin_backward();
    const std::string dtype(name_of(forward.type(loss).dtype));
    const ValueId seed =
        forward.add("step_scalar", {}, {{"field", std::string("loss_seed")}, {"dtype", dtype}}, "loss");
    differentiate(forward, loss, seed);
    return normal_form(forward, fusion);
}

Graph make_forward_graph(const Graph& forward) { return normal_form(forward, no_fusion); }

} // namespace tutti
