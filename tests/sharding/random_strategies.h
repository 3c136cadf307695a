// Random strategies of operators, the same for the same seed.
#pragma once

#include "graph/loops.h"
#include "sharding/operator_strategies.h"
#include "sharding/random.h"
#include "sharding/shard_axes.h"
#include "sharding/strategy.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tutti::testing {

// Legal ones, the same for layers that are alike: found axis by axis, as one changes what the next can do.
inline sharding::OperatorStrategies random_choices(const Graph& step, const std::vector<int>& axes, Random& random) {
    using namespace sharding;
    const std::vector<OperatorName> names = operator_names(step);
    OperatorStrategies strategies;
    std::map<OperatorName, OperatorStrategy> operators;
    std::map<std::string, TensorStrategy> tensors;
    for (std::size_t a = 0; a < axes.size(); ++a) {
        const ShardedAxes so_far = shard_axes(step, 0, {.strategies = strategies});
        std::map<OperatorName, std::set<std::string>> loops;
        for (std::size_t n = 0; n < so_far.graph.nodes().size(); ++n) {
            const Node& node = so_far.graph.nodes()[n];
            if (so_far.origins[n] == NodeId::none || node.phase != Phase::forward) continue;
            OperatorName name = names[index(so_far.origins[n])];
            name.source = layer_pattern(name.source);
            const auto all = resolve_loops(*node.op, so_far.graph.input_types(node), so_far.graph.output_types(node),
                                           node.attributes)
                                 .loops;
            std::set<std::string> legal;
            for (const Strategy& strategy : strategies_of(so_far.graph, static_cast<NodeId>(n), axes[a]))
                if (strategy.loop >= 0) legal.insert(all[static_cast<std::size_t>(strategy.loop)].name);
            if (const auto [at, is_new] = loops.try_emplace(name, legal); !is_new)
                std::erase_if(at->second, [&](const std::string& loop) { return !legal.contains(loop); });
        }
        for (const auto& [name, legal] : loops) {
            OperatorStrategy& choice = operators.try_emplace(name, OperatorStrategy{name}).first->second;
            if (a == 0) {
                choice.keep_gathered = random.one_in(3);
                choice.reduce_at_once = random.one_in(2);
            }
            std::vector<std::string> words = {std::string(follows), std::string(follows), std::string(on_every_rank)};
            for (int twice = 0; twice < 2; ++twice) words.insert(words.end(), legal.begin(), legal.end());
            choice.split.push_back(
                words[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(words.size())))]);
        }
        for (const StoredTensor& stored : step.stored()) {
            const std::string name = layer_pattern(stored.name);
            TensorStrategy& choice = tensors.try_emplace(name, TensorStrategy{name, {}}).first->second;
            if (choice.sharded.size() == a) choice.sharded.push_back(random.one_in(2));
        }
        strategies = {{axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(a) + 1}, {}, {}};
        for (const auto& [name, choice] : operators) strategies.operators.push_back(choice);
        for (const auto& [name, choice] : tensors) strategies.tensors.push_back(choice);
    }
    return strategies;
}

} // namespace tutti::testing
