// tutti inspect plan.json: every decision in a plan.

#include "base/counted.h"
#include "cli/inspect.h"
#include "cli/plan_text.h"
#include "resolve/run_plan.h"
#include "terminal/shown.h"
#include "terminal/words.h"

#include <algorithm>

namespace tutti::cli {
namespace {

std::string mesh_text(const sharding::Mesh& mesh) {
    if (mesh.ranks() == 1) return "1 rank";
    return fmt::format("{}: {}", counted(mesh.ranks(), "rank"), sharding::to_string(mesh));
}

std::string blocks_text(const std::vector<std::vector<int>>& blocks) {
    std::string text;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage)
        if (!blocks[stage].empty())
            text +=
                fmt::format("{}blocks {} of stage {}", text.empty() ? "" : "; ", fmt::join(blocks[stage], ", "), stage);
    return text.empty() ? "nothing" : text;
}

std::string zero_text(Zero zero) {
    if (!zero.shards_states()) return "0: every replica holds everything";
    return fmt::format("{}: {} are sharded over the data axis", zero.stage(),
                       zero.shards_weights()     ? "optimizer states, gradients and weights"
                       : zero.shards_gradients() ? "optimizer states and gradients"
                                                 : "optimizer states");
}

// Rising numbers: "0 to 3, 7"
std::string runs_text(const std::vector<int>& numbers) {
    std::string text;
    for (std::size_t i = 0, end = 0; i < numbers.size(); i = end) {
        for (end = i + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
        text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
        if (end > i + 1) text += fmt::format(" to {}", numbers[end - 1]);
    }
    return text;
}

// "ranks 4 to 7 on node 0 (4 fast); ranks 0 to 3 on node 1 (4 slow)"
std::string devices_text(const PlannedDevices& devices) {
    constexpr std::size_t most = 16;
    std::vector<std::vector<int>> of_node;
    std::vector<const PlannedNodes*> kinds;
    std::vector<std::size_t> node_of(static_cast<std::size_t>(devices.count()));
    std::size_t first = 0;
    for (const PlannedNodes& run : devices.nodes)
        for (int n = 0; n < run.nodes; ++n) {
            std::fill_n(node_of.begin() + static_cast<std::ptrdiff_t>(first), run.devices, kinds.size());
            first += static_cast<std::size_t>(run.devices);
            kinds.push_back(&run);
        }
    of_node.resize(kinds.size());
    for (std::size_t rank = 0; rank < devices.ranks.size(); ++rank)
        of_node[node_of[static_cast<std::size_t>(devices.ranks[rank])]].push_back(static_cast<int>(rank));
    std::string text;
    for (std::size_t node = 0; node < std::min(most, of_node.size()); ++node)
        if (!of_node[node].empty())
            text +=
                fmt::format("{}{} {} on node {} ({} {})", text.empty() ? "" : "; ",
                            plural(static_cast<std::int64_t>(of_node[node].size()), "rank"), runs_text(of_node[node]),
                            node, kinds[node]->devices, terminal::name_to_show(kinds[node]->kind));
    return of_node.size() > most ? fmt::format("{}; .. {} nodes in all", text, of_node.size()) : text;
}

// Two tables: operators, and tensors that are sharded.
std::string strategies_text(const sharding::OperatorStrategies& strategies) {
    std::vector<std::vector<std::string>> operators = {{"operator", "of", "split by", "gathered inputs", "gradients"}};
    for (const sharding::OperatorStrategy& one : strategies.operators) {
        const std::string number = one.name.ordinal > 0 ? fmt::format(" ({})", one.name.ordinal + 1) : "";
        operators.push_back({terminal::name_to_show(one.name.op) + number, terminal::name_to_show(one.name.source),
                             terminal::name_to_show(fmt::format("{}", fmt::join(one.split, ", "))),
                             one.keep_gathered ? "kept for the backward" : "gathered again",
                             one.reduce_at_once ? "reduced one by one" : "added up first"});
    }
    std::string text = "\n" + terminal::lay_out(operators);
    std::vector<std::vector<std::string>> tensors = {{"tensor", "sharded along"}};
    for (const sharding::TensorStrategy& one : strategies.tensors) {
        std::vector<std::string> axes;
        for (std::size_t a = 0; a < one.sharded.size(); ++a)
            if (one.sharded[a]) axes.push_back(sharding::axis_name(strategies, a));
        if (!axes.empty())
            tensors.push_back({terminal::name_to_show(one.name), fmt::format("{}", fmt::join(axes, ", "))});
    }
    return tensors.size() > 1 ? text + "\n" + terminal::lay_out(tensors) : text;
}

std::string residency_text(const Plan::Residencies& ranks) {
    std::string text;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const std::string who = ranks.size() > 1 ? fmt::format("rank {}: ", rank) : "";
        if (!ranks[rank]) {
            text += fmt::format("{}{}all model data stays on the device", text.empty() ? "" : "; ", who);
            continue;
        }
        std::size_t always = 0;
        for (const offload::ResidentIntervals& one : ranks[rank]->training.residents) always += one.always;
        const std::size_t all = ranks[rank]->training.residents.size();
        text += fmt::format("{}{}{} of {} pieces of model data are offloaded, the host updates {}",
                            text.empty() ? "" : "; ", who, all - always, all,
                            counted(ranks[rank]->host_updates.size(), "chunk"));
    }
    return text;
}

} // namespace

Inspection inspect_plan(const fs::path& path) {
    const Plan plan = resolve::read_plan(path.string());
    const Workload& workload = plan.workload;
    std::vector<terminal::Definition> lines;
    auto line = [&](std::string term, std::string text) { lines.push_back({std::move(term), {std::move(text)}}); };
    line("plan", terminal::name_to_show(path.string()));
    line("model", terminal::name_to_show(plan.model));
    line("device", terminal::name_to_show(plan.device));
    line("step",
         fmt::format("{} of {}", counted(workload.global_batch, "sequence"), counted(workload.sequence, "token")));
    line("batches per step", fmt::format("{} of {}{}", plan.micro_batches(), counted(workload.micro_batch, "sequence"),
                                         plan.mesh.data > 1 ? " in every replica" : ""));
    line("compute", std::string(name_of(plan.precision.compute)));
    line("gradients", std::string(name_of(plan.precision.gradients)));
    line("master weights", plan.precision.has_master() ? std::string(name_of(plan.precision.master)) : "none");
    line("moments", std::string(name_of(plan.precision.moments)));
    line("chunks", terminal::with_commas(plan.chunk_elements) + " " + plural(plan.chunk_elements, "element"));
    line("weight gradients",
         schedule::splits_backward(schedule_of(plan)) ? "tasks of their own" : "with input gradients");
    line("mesh", mesh_text(plan.mesh));
    if (plan.devices) line("devices", devices_text(*plan.devices));
    line("schedule", plan.schedule ? schedule_text(plan.schedule->schedule.parameters) : "none");
    line("stages", stages_text(plan));
    line("recomputed", blocks_text(plan.recompute));
    if (plan.device_memory.count > 0) {
        line("device memory", fmt::format("at most {}", to_string(plan.device_memory)));
        line("host memory",
             plan.host_memory.count > 0 ? fmt::format("at most {}", to_string(plan.host_memory)) : "as needed");
        line("optimizer works on", std::string(offload::name_of(plan.optimizer_placement)));
        line("updates", std::string(offload::name_of(plan.updates)));
        line("leaves first", std::string(offload::name_of(plan.eviction)));
        if (!plan.prefetch) line("comes", "when it is needed, not before");
    }
    if (!plan.offload.empty()) line("offloaded", blocks_text(plan.offload));
    if (plan.mesh.data > 1 || plan.zero.shards_states()) line("zero", zero_text(plan.zero));
    if (plan.mesh.tensor > 1) {
        line("norms", plan.sequence_parallel ? "split by sequence on the tensor axis" : "whole on the tensor axis");
        line("micro-batches",
             plan.sub_pipeline ? "in halves, one computes while the other's collectives run" : "whole");
        line("strategies", plan.strategies ? fmt::format("chosen, for axes {}", sharding::axes_text(*plan.strategies))
                                           : "by columns, rows and heads");
    }
    if (plan.fusion && plan.fusion->head)
        line("fused head", fmt::format("up to {} of logits at a time", to_string(plan.fusion->head_logits)));
    if (plan.residency) line("residency", residency_text(*plan.residency));
    for (const auto& [device, choices] : plan.timed_kernels)
        line("timed on " + terminal::name_to_show(device), counted(choices.size(), "matrix product"));
    if (plan.predicted) line("predicted step", to_string(plan.predicted->step));
    const std::string strategies = plan.strategies ? strategies_text(*plan.strategies) : "";
    return {terminal::define(lines, 10000) + strategies, nlohmann::ordered_json::parse(to_json(plan))};
}

} // namespace tutti::cli
