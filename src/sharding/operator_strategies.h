// OperatorStrategies: how the tensor ranks share the operators of a model. Operators are named, so that a plan file can
// record the strategies and equal layers share them. The tensor axis may have several parts, such as 8 ranks as 2 x 4,
// sharded one after the other.
//
// Operators that are not named follow: views and elementwise operators take the sharding that moves the fewest bytes,
// given their neighbours; matmuls, attention and the vocabulary are split as in `default_assignment`. The backward of
// an operator splits the loop that its forward splits, if its gradient has that loop.
#pragma once

#include "graph/graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace tutti::sharding {

// Strategies of an operator along an axis, beside the name of a loop that it splits (graph/loops.h).
inline constexpr std::string_view on_every_rank = "none"; // all of it
inline constexpr std::string_view on_partial_sums = "partial";
inline constexpr std::string_view follows = "follow"; // nothing is said

// A forward operator by its place in the model. In patterns a `*` stands for a number between dots: the layer.
struct OperatorName {
    std::string source; // "transformer.h.*.attn.c_attn"
    std::string op;     // "linear"
    int ordinal = 0;    // among those of the same source and operator, in the order of the whole model

    auto operator<=>(const OperatorName&) const = default;
};

struct OperatorStrategy {
    OperatorName name;
    std::vector<std::string> split{}; // per axis: a loop's name, or one of the words above
    // Activations that are gathered for it are kept for the backward, not gathered again.
    bool keep_gathered = false;
    // Where gradients of its inputs come as partial sums: reduced one by one, not after they are added up.
    bool reduce_at_once = false;

    bool operator==(const OperatorStrategy&) const = default;
};

// A stored tensor that is sharded along axes on which no operator splits it: gathered for every use, forward and
// backward, and its gradient reduced to what is owned.
struct TensorStrategy {
    std::string name;            // a pattern too: "transformer.h.*.attn.c_attn.weight"
    std::vector<bool> sharded{}; // per axis

    bool operator==(const TensorStrategy&) const = default;
};

struct OperatorStrategies {
    std::vector<int> axes{}; // their sizes, outermost first; ranks that are neighbours share the last
    std::vector<OperatorStrategy> operators{};
    std::vector<TensorStrategy> tensors{};

    bool operator==(const OperatorStrategies&) const = default;
};

// Error where sizes do not multiply to the ranks of the tensor axis, lists are not as long as there are axes, a name is
// there twice, or more than can be.
void check(const OperatorStrategies& strategies, int tensor);
// Error where a name fits nothing in the model, or a loop nothing in its operator. `model`: its forward graph.
void check(const OperatorStrategies& strategies, const Graph& model);

// "tensor" where there is one axis, else "tensor.0", "tensor.1", ...
std::string axis_name(const OperatorStrategies& strategies, std::size_t axis);
// "2 x 4"
std::string axes_text(const OperatorStrategies& strategies);

// The numbers between dots of a source or tensor's name as `*`: what layers that are alike have in common.
std::string layer_pattern(std::string_view name);
bool fits(std::string_view pattern, std::string_view name);

// Per node of a graph; those of the backward have the name of their forward operator where one is found, else an empty
// one. A stage goes on counting where it begins in the middle of a layer: `whole` is the model's forward graph, with
// blocks, as compile/graphs/stages.h makes it of all blocks, without common subexpressions and dead code.
std::vector<OperatorName> operator_names(const Graph& graph, const Graph* whole = nullptr);

// The choice for an operator, or a tensor; nullptr where there is none. Its own name goes before patterns.
const OperatorStrategy* strategy_for(const OperatorStrategies& strategies, const OperatorName& name);
const TensorStrategy* strategy_for(const OperatorStrategies& strategies, std::string_view tensor);

} // namespace tutti::sharding
