// How long it takes to choose strategies for large models, by either solver:
//   intra_op [--seconds LIMIT] [--details]
#include "compile/graphs/step_graph.h"
#include "costs/cluster.h"
#include "models/model.h"
#include "planner/strategies/model.h"
#include "planner/strategies/stages.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

using namespace tutti;
using namespace tutti::planner::strategies;
using Clock = std::chrono::steady_clock;

namespace {

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Flags {
    double seconds = 60;
    bool details = false;
};

void show(const tutti::planner::strategies::StrategyModel& model,
          const tutti::planner::strategies::Solution& solution) {
    const tutti::planner::strategies::Outcome outcome = model.outcome(solution);
    fmt::print("    redundancy {} states {} saved {} transient {} time {:.4f} s of which {:.4f} computing\n",
               tutti::to_string(outcome.redundancy), tutti::to_string(outcome.states), tutti::to_string(outcome.saved),
               tutti::to_string(outcome.transient), outcome.time.count, outcome.computing.count);
}

void details(const tutti::planner::strategies::StrategyModel& model,
             const tutti::planner::strategies::Solution& solution) {
    for (std::size_t v = 0; v < model.vertices().size(); ++v) {
        const auto& option = model.vertices()[v].options[static_cast<std::size_t>(solution.options[v])];
        fmt::print(
            "      {} x{}: {} {}{}{}\n", model.problem().nodes[v].name, model.problem().nodes[v].times,
            fmt::join(option.item.split, ","),
            model.vertices()[v].flow >= 0 ? tutti::planner::strategies::to_string(option.states, model.options().axes)
                                          : "",
            option.keep ? " keep" : "", std::ranges::find(option.held, true) != option.held.end() ? " held" : "");
    }
}

void run(const std::string& name, const std::string& builtin, std::vector<int> axes, std::int64_t micro_batch,
         const Flags& flags) {
    const tutti::costs::NodeKind node{*tutti::costs::find_device_preset("h100"),
                                      8,
                                      tutti::costs::find_link_preset("nvlink4")->speed,
                                      {std::int64_t{1} << 40},
                                      tutti::costs::find_link_preset("pcie5")->speed};
    const tutti::costs::Cluster cluster = tutti::costs::uniform_cluster(node, 1, {});
    const auto start = Clock::now();
    const tutti::models::ModelSource source = tutti::models::open_model(builtin);
    tutti::models::Model built = source.build({micro_batch, 2048, tutti::DType::bfloat16});
    const tutti::Graph step = tutti::compile::differentiated(std::move(built.graph), false);
    const tutti::costs::RooflineCost costs(cluster, step.operators());
    tutti::planner::strategies::ModelOptions options;
    options.axes = axes;
    options.precision = {tutti::DType::bfloat16, tutti::DType::float32, tutti::DType::float32, tutti::DType::float32};
    const double graph = since(start);
    const auto begun = Clock::now();
    const tutti::planner::strategies::StrategyModel model(step, costs, options);
    const double built_in = since(begun);
    std::size_t most = 0, total = 0;
    for (const tutti::planner::strategies::ChoiceNode& n : model.problem().nodes)
        most = std::max(most, n.options.size()), total += n.options.size();
    const tutti::planner::strategies::Reduced few = tutti::planner::strategies::reduced(model.problem());
    std::size_t kept = 0;
    for (const tutti::planner::strategies::ChoiceNode& n : few.problem.nodes) kept += n.options.size();
    fmt::print("{} micro-batch {} mesh {}: graph {:.2f} s, model {:.2f} s; {} nodes, {} edges, {} options (at most "
               "{}), {} after "
               "reduction\n",
               name, micro_batch, fmt::join(axes, "x"), graph, built_in, model.problem().nodes.size(),
               model.problem().edges.size(), total, most, kept);
    std::fflush(stdout);
    const tutti::planner::strategies::Elimination least =
        tutti::planner::strategies::eliminate(model.problem(), tutti::planner::strategies::Goal::Least::redundancy);
    const tutti::planner::strategies::Elimination fastest =
        tutti::planner::strategies::eliminate(model.problem(), tutti::planner::strategies::Goal::Least::time);
    fmt::print("  elimination, ends: {:.3f} s and {:.3f} s, width {}, {:.3g} combinations {}\n", least.seconds,
               fastest.seconds, least.width, least.cells, least.reason);
    std::fflush(stdout);
    const tutti::planner::strategies::Elimination front = tutti::planner::strategies::pareto_front(model.problem());
    fmt::print("  elimination, front: {:.3f} s, {} points, {} entries {}\n", front.seconds, front.front.size(),
               front.entries, front.reason);
    std::fflush(stdout);
    if (front.solved) {
        show(model, front.front.front());
        if (flags.details) details(model, front.front.front());
        show(model, front.front.back());
        if (flags.details) details(model, front.front.back());
    }
    for (const tutti::planner::strategies::Goal::Least what :
         {tutti::planner::strategies::Goal::Least::redundancy, tutti::planner::strategies::Goal::Least::time}) {
        const tutti::planner::strategies::ProgramResult program =
            tutti::planner::strategies::solve_program(model.problem(), {what}, {flags.seconds, 0});
        fmt::print("  program, least {}: {:.3f} s, {} variables, {} constraints, {} nodes, gap {:.3g}, {}\n",
                   what == tutti::planner::strategies::Goal::Least::time ? "time" : "redundancy", program.seconds,
                   program.variables, program.constraints, program.nodes, program.gap,
                   program.status == tutti::planner::strategies::ProgramResult::Status::optimal ? "optimal"
                                                                                                : "stopped");
        std::fflush(stdout);
        if (program.solution) show(model, *program.solution);
    }
}

} // namespace

int main(int count, char** words) {
    Flags flags;
    CLI::App app("choosing strategies for large models");
    app.add_option("--seconds", flags.seconds);
    app.add_flag("--details", flags.details);
    CLI11_PARSE(app, count, words);
    for (const std::vector<int>& axes : {std::vector{8}, std::vector{2, 4}})
        for (const std::int64_t micro_batch : {1, 8}) {
            run("GPT-3 175B", "gpt3-175b", axes, micro_batch, flags);
            run("Llama-3 70B", "llama3-70b", axes, micro_batch, flags);
        }
}
