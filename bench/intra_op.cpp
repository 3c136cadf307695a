// How long it takes to choose strategies for large models, by either solver:
//   intra_op [--seconds LIMIT] [--details]
#include "cluster/cluster.h"
#include "compile/step_graph.h"
#include "models/model.h"
#include "planner/intraop/model.h"
#include "planner/intraop/stages.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

using namespace tutti;
using namespace tutti::intraop;
using Clock = std::chrono::steady_clock;

namespace {

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Flags {
    double seconds = 60;
    bool details = false;
};

void show(const StrategyModel& model, const Solution& solution) {
    const Outcome outcome = model.outcome(solution);
    fmt::print("    redundancy {} states {} saved {} transient {} time {:.4f} s of which {:.4f} computing\n",
               to_string(outcome.redundancy), to_string(outcome.states), to_string(outcome.saved),
               to_string(outcome.transient), outcome.time.count, outcome.computing.count);
}

void details(const StrategyModel& model, const Solution& solution) {
    for (std::size_t v = 0; v < model.vertices().size(); ++v) {
        const auto& option = model.vertices()[v].options[static_cast<std::size_t>(solution.options[v])];
        fmt::print("      {} x{}: {} {}{}{}\n", model.problem().nodes[v].name, model.problem().nodes[v].times,
                   fmt::join(option.item.split, ","),
                   model.vertices()[v].flow >= 0 ? to_string(option.states, model.options().axes) : "",
                   option.keep ? " keep" : "",
                   std::ranges::find(option.held, true) != option.held.end() ? " held" : "");
    }
}

void run(const std::string& name, const std::string& builtin, std::vector<int> axes, std::int64_t micro_batch,
         const Flags& flags) {
    const NodeKind node{*find_device_preset("h100"),
                        8,
                        find_link_preset("nvlink4")->speed,
                        {std::int64_t{1} << 40},
                        find_link_preset("pcie5")->speed};
    const Cluster cluster = uniform_cluster(node, 1, {});
    const auto start = Clock::now();
    const ModelSource source = open_model(builtin);
    Model built = source.build({micro_batch, 2048, DType::bfloat16});
    const Graph step = differentiated(std::move(built.graph), false);
    const RooflineCost costs(cluster, step.operators());
    ModelOptions options;
    options.axes = axes;
    options.precision = {DType::bfloat16, DType::float32, DType::float32, DType::float32};
    const double graph = since(start);
    const auto begun = Clock::now();
    const StrategyModel model(step, costs, options);
    const double built_in = since(begun);
    std::size_t most = 0, total = 0;
    for (const ChoiceNode& n : model.problem().nodes)
        most = std::max(most, n.options.size()), total += n.options.size();
    const Reduced few = reduced(model.problem());
    std::size_t kept = 0;
    for (const ChoiceNode& n : few.problem.nodes) kept += n.options.size();
    fmt::print("{} micro-batch {} mesh {}: graph {:.2f} s, model {:.2f} s; {} nodes, {} edges, {} options (at most "
               "{}), {} after "
               "reduction\n",
               name, micro_batch, fmt::join(axes, "x"), graph, built_in, model.problem().nodes.size(),
               model.problem().edges.size(), total, most, kept);
    std::fflush(stdout);
    const Elimination least = eliminate(model.problem(), Goal::Least::redundancy);
    const Elimination fastest = eliminate(model.problem(), Goal::Least::time);
    fmt::print("  elimination, ends: {:.3f} s and {:.3f} s, width {}, {:.3g} combinations {}\n", least.seconds,
               fastest.seconds, least.width, least.cells, least.reason);
    std::fflush(stdout);
    const Elimination front = pareto_front(model.problem());
    fmt::print("  elimination, front: {:.3f} s, {} points, {} entries {}\n", front.seconds, front.front.size(),
               front.entries, front.reason);
    std::fflush(stdout);
    if (front.solved) {
        show(model, front.front.front());
        if (flags.details) details(model, front.front.front());
        show(model, front.front.back());
        if (flags.details) details(model, front.front.back());
    }
    for (const Goal::Least what : {Goal::Least::redundancy, Goal::Least::time}) {
        const ProgramResult program = solve_program(model.problem(), {what}, {flags.seconds, 0});
        fmt::print("  program, least {}: {:.3f} s, {} variables, {} constraints, {} nodes, gap {:.3g}, {}\n",
                   what == Goal::Least::time ? "time" : "redundancy", program.seconds, program.variables,
                   program.constraints, program.nodes, program.gap,
                   program.status == ProgramResult::Status::optimal ? "optimal" : "stopped");
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
