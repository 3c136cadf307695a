#include "compile/graphs/stage_shardings.h"

#include "compile/graphs/stages.h"
#include "compile/graphs/step_graph.h"
#include "graph/passes.h"

#include <algorithm>
#include <set>

namespace tutti::compile {
namespace {

// Tensors that blocks of several stages read.
Ties find_ties(const Graph& forward, std::span<const Block> blocks, const Plan& plan) {
    std::map<std::string, std::set<int>> users;
    int stage = 0;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        if (stage < static_cast<int>(plan.cuts.size()) &&
            plan.cuts[static_cast<std::size_t>(stage)] == static_cast<int>(b))
            ++stage;
        for (std::int32_t stored : blocks[b].stored)
            users[forward.stored()[static_cast<std::size_t>(stored)].name].insert(stage);
    }
    Ties ties;
    for (const auto& [name, stages] : users)
        if (stages.size() > 1) ties[name] = {stages.begin(), stages.end()};
    return ties;
}

Graph cleaned(const Graph& graph) { return eliminate_dead_code(eliminate_common_subexpressions(graph)); }

std::size_t number_of(const Graph& graph, const std::string& stored) {
    const auto at = std::ranges::find(graph.stored(), stored, &StoredTensor::name);
    return static_cast<std::size_t>(at - graph.stored().begin());
}

// Shapes and layouts of the parameters that are views of a stored tensor.
std::vector<std::pair<Shape, Layout>> views_of(const Graph& graph, const std::string& stored) {
    std::vector<std::pair<Shape, Layout>> views;
    const std::size_t number = number_of(graph, stored);
    for (const Parameter& parameter : graph.parameters())
        if (static_cast<std::size_t>(parameter.stored) == number)
            views.emplace_back(graph.shape(parameter.value), graph.value(parameter.value).layout);
    return views;
}

} // namespace

StageShardings::StageShardings(const Graph& forward, std::span<const Block> blocks, const Plan& plan, int tensor_rank)
    : forward_(forward), blocks_(blocks), plan_(plan), tensor_rank_(tensor_rank),
      strategies_(operator_strategies_of(plan)), whole_(forward.operators()), ties_(find_ties(forward, blocks, plan)) {
    if (plan.strategies) whole_ = cleaned(stage_graph(forward, blocks, {}, 0));
}

Graph StageShardings::graph_of(int stage) const { return stage_graph(forward_, blocks_, plan_.cuts, stage); }

bool StageShardings::begins_tie(int stage) const {
    return std::ranges::any_of(ties_, [&](const auto& tie) { return tie.second.front() == stage; });
}

// Else what one stage would own need not hold what another reads.
bool StageShardings::has_same_views_everywhere(const std::string& tied) const {
    if (views_of(forward_, tied).size() == 1) return true;
    const std::vector<int>& stages = ties_.at(tied);
    const auto first = views_of(graph_of(stages.front()), tied);
    return std::ranges::all_of(stages, [&](int stage) { return views_of(graph_of(stage), tied) == first; });
}

// All stages below `stage`: the forward of one decides what the next takes over, and what its ties are to be.
void StageShardings::decide_until(int stage) {
    while (static_cast<int>(given_.size()) < stage) {
        const int next = static_cast<int>(given_.size());
        const Graph graph = cleaned(graph_of(next));
        sharding::ShardAxesOptions options{strategies_, plan_.sequence_parallel};
        if (next > 0) options.inputs = given_.back();
        if (plan_.strategies) options.whole = &whole_;
        for (const auto& [name, stages] : ties_)
            if (stages.front() == next && !has_same_views_everywhere(name)) tied_[name].resize(strategies_.axes.size());
        options.stored = tied_;
        const sharding::ShardedAxes sharded = sharding::shard_axes(graph, tensor_rank_, options);
        for (const auto& [name, stages] : ties_) {
            if (stages.front() != next || tied_.contains(name)) continue;
            for (const std::vector<sharding::Sharding>& states : sharded.states)
                tied_[name].push_back(states[number_of(graph, name)]);
        }
        auto& given = given_.emplace_back();
        for (std::size_t o = 0; o < graph.outputs().size(); ++o) {
            const std::string& name = graph.outputs()[o].name;
            if (!name.starts_with(sharding::stage_output)) continue;
            auto& states = given[std::string(sharding::stage_input) + name.substr(sharding::stage_output.size())];
            for (const std::vector<sharding::Sharding>& axis : sharded.outputs) states.push_back(axis[o]);
        }
    }
}

// Along an axis over which a tied tensor is replicated its gradients may be partial sums in one stage and whole in
// another; then all reduce them. That may change what later axes do, so it is looked at until it holds.
void StageShardings::decide_gradients() {
    if (gradients_decided_) return;
    gradients_decided_ = true;
    for (const auto& [name, stages] : ties_) {
        decide_until(stages.front() + 1);
        const std::vector<sharding::Sharding>& states = tied_.at(name);
        std::vector<bool> reduced(states.size(), false);
        for (bool changed = true; changed;) {
            changed = false;
            std::vector<int> partial(states.size(), 0); // per axis: in how many stages
            if (std::ranges::all_of(states, &sharding::Sharding::is_split)) break;
            for (int stage : stages) {
                const Graph step = sharding::add_matmuls_first(differentiated(graph_of(stage), false));
                const sharding::ShardedAxes sharded = sharding::shard_axes(step, tensor_rank_, options_of(stage, true));
                for (std::size_t a = 0; a < partial.size(); ++a)
                    partial[a] += sharded.partial[a][number_of(step, name)] ? 1 : 0;
            }
            for (std::size_t a = 0; a < partial.size(); ++a)
                if (partial[a] > 0 && partial[a] < static_cast<int>(stages.size())) reduced[a] = changed = true;
            if (changed) reduced_[name] = reduced;
        }
    }
}

sharding::ShardAxesOptions StageShardings::options_of(int stage, bool gradients) {
    decide_until(begins_tie(stage) ? stage + 1 : stage);
    if (gradients) decide_gradients();
    sharding::ShardAxesOptions options{strategies_, plan_.sequence_parallel};
    if (stage > 0) options.inputs = given_[static_cast<std::size_t>(stage - 1)];
    if (plan_.strategies) options.whole = &whole_;
    options.stored = tied_;
    options.reduced = reduced_;
    return options;
}

} // namespace tutti::compile
