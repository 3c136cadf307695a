// Random divisions and assignments, the same for the same seed.
#pragma once

#include "graph/loops.h"
#include "sharding/shard.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

namespace tutti::testing {

enum class Cut { even, uneven, scattered };

class Random {
  public:
    explicit Random(std::uint32_t seed) : engine_(seed) {}

    std::int64_t below(std::int64_t limit) {
        return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(limit));
    }
    bool one_in(std::int64_t cases) { return below(cases) == 0; }

    // Scattered parts are of several ranges each, and in any order of ranks.
    std::optional<Parts> parts(std::int64_t size, int ranks, Cut cut) {
        if (size < ranks || (cut == Cut::even && size % ranks != 0)) return std::nullopt;
        if (cut == Cut::even) return even_parts(size, 1, ranks);
        std::vector<std::size_t> owner;
        for (int r = 0; r < ranks; ++r) owner.push_back(static_cast<std::size_t>(r));
        while (static_cast<std::int64_t>(owner.size()) < size) owner.push_back(static_cast<std::size_t>(below(ranks)));
        if (cut == Cut::scattered)
            std::shuffle(owner.begin(), owner.end(), engine_);
        else
            std::ranges::sort(owner);
        Parts result(static_cast<std::size_t>(ranks));
        for (std::size_t i = 0; i < owner.size(); ++i) {
            const auto at = static_cast<std::int64_t>(i);
            result[owner[i]] = joined(result[owner[i]], {{at, at + 1}});
        }
        return result;
    }

    // Split along a random dimension, or replicated.
    sharding::Sharding state(const Shape& shape, int ranks, Cut cut) {
        if (shape.empty() || one_in(3)) return {};
        const int dim = static_cast<int>(below(shape.rank()));
        const auto some = parts(shape[dim], ranks, cut);
        return some ? sharding::Sharding::split(dim, *some) : sharding::Sharding{};
    }

    // Any legal strategy of a node, given the states in which its inputs come.
    sharding::Strategy strategy(const Graph& graph, const Node& node, const std::vector<sharding::Sharding>& inputs,
                                int ranks, Cut cut) {
        std::vector<sharding::Strategy> legal = {{}};
        auto offer = [&](const sharding::Strategy& strategy) {
            if (sharding::placement_of(graph, node, strategy, ranks)) legal.push_back(strategy);
        };
        const auto loops =
            resolve_loops(*node.op, graph.input_types(node), graph.output_types(node), node.attributes).loops;
        for (std::size_t l = 0; l < loops.size(); ++l)
            for (Cut how : {cut == Cut::even ? Cut::even : Cut::uneven, cut})
                if (const auto some = parts(loops[l].size, ranks, how))
                    offer(sharding::Strategy::split(static_cast<int>(l), *some));
        std::uint64_t partial = 0;
        for (std::size_t i = 0; i < inputs.size(); ++i)
            if (inputs[i] == sharding::Sharding::partial()) partial |= std::uint64_t{1} << i;
        for (std::uint64_t some = 1; some <= partial; ++some)
            if ((some & partial) == some) offer(sharding::Strategy::keep_partial(some));
        return legal[static_cast<std::size_t>(below(static_cast<std::int64_t>(legal.size())))];
    }

    sharding::Assignment assignment(const Graph& graph, int ranks, Cut cut) {
        sharding::Assignment result;
        std::vector<sharding::Sharding> states(graph.values().size());
        for (ValueId input : graph.inputs())
            result.inputs.push_back(states[index(input)] = state(graph.shape(input), ranks, cut));
        for (const Parameter& parameter : graph.parameters())
            result.parameters.push_back(states[index(parameter.value)] =
                                            state(graph.shape(parameter.value), ranks, cut));
        for (const Node& node : graph.nodes()) {
            std::vector<sharding::Sharding> inputs;
            for (ValueId input : node.inputs) inputs.push_back(states[index(input)]);
            result.nodes.push_back(strategy(graph, node, inputs, ranks, cut));
            const auto placement = sharding::placement_of(graph, node, result.nodes.back(), ranks);
            for (std::size_t o = 0; o < node.outputs.size(); ++o)
                states[index(node.outputs[o])] = placement->outputs[o];
        }
        for (const Output& output : graph.outputs()) {
            result.outputs.emplace_back();
            if (one_in(2)) result.outputs.back() = state(graph.shape(output.value), ranks, cut);
        }
        return result;
    }

  private:
    std::mt19937 engine_;
};

} // namespace tutti::testing
