#include "compile/step_graph.h"

#include "graph/autodiff.h"
#include "graph/passes.h"
#include "graph/verify.h"

namespace tutti {
namespace {

Graph normal_form(const Graph& graph) {
    Graph result = materialise(eliminate_dead_code(eliminate_common_subexpressions(graph)));
    verify(result);
    return result;
}

} // namespace

Graph make_training_graph(Graph forward, ValueId loss) {
    forward.begin_backward();
    const std::string dtype(name_of(forward.type(loss).dtype));
    const ValueId seed =
        forward.add("step_scalar", {}, {{"field", std::string("loss_seed")}, {"dtype", dtype}}, "loss");
    differentiate(forward, loss, seed);
    return normal_form(forward);
}

Graph make_forward_graph(const Graph& forward) { return normal_form(forward); }

} // namespace tutti
