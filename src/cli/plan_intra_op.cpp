#include "cli/plan_intra_op.h"

#include "base/error.h"
#include "base/file.h"
#include "base/nearest.h"
#include "cli/used_files.h"
#include "compile/graphs/step_graph.h"
#include "costs/cluster_file.h"
#include "formats/json.h"
#include "models/model.h"
#include "plan/plan.h"
#include "planner/strategies/compiled.h"
#include "planner/strategies/description.h"
#include "planner/strategies/stages.h"
#include "sharding/mesh.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
    std::string model;
    Workload workload;
    costs::Cluster cluster;
    planner::strategies::ModelOptions options;
    double epsilon = 0;
    planner::strategies::StagesOptions stages;
};

// "2x4"
std::vector<int> axes_of(const std::string& text, int ranks) {
    std::vector<int> axes;
    std::int64_t product = 1;
    for (const std::string& part : terminal::split(text, 'x')) {
        const auto size = terminal::parse_integer(part);
        if (!size || *size < 1 || *size > sharding::most_ranks)
            fail("--tensor-mesh is {}, not sizes such as 2x4", formats::in_quotes(text));
        product *= *size;
        if (product > sharding::most_ranks) break;
        axes.push_back(static_cast<int>(*size));
    }
    if (product != ranks) fail("--tensor-mesh {} does not make the {} ranks of --mesh tensor={}", text, ranks, ranks);
    return axes;
}

// Enough nodes of eight devices.
costs::Cluster cluster_of_device(const std::string& name, int ranks) {
    const costs::DevicePreset* device = costs::find_device_preset(name);
    if (device == nullptr) {
        std::vector<std::string> names;
        for (const costs::DeviceKind& one : costs::device_presets()) names.push_back(one.name);
        fail("there is no device {}; there are {}", formats::in_quotes(name), fmt::join(names, ", "));
    }
    const costs::NodeKind node{*device,
                               std::min(ranks, 8),
                               costs::find_link_preset(device->link)->speed,
                               {std::int64_t{1} << 40},
                               costs::find_link_preset("pcie5")->speed};
    const costs::LinkLevel between{"fabric", 0, costs::find_link_preset("infiniband-ndr")->speed};
    const int nodes = (ranks + 7) / 8;
    return costs::uniform_cluster(node, nodes, between);
}

Request read(const std::string& model, const models::ModelFacts& facts, const PlanOptions& flags) {
    Request request;
    request.model = model;
    const auto mesh_text = text_of(flags["--mesh"]);
    if (!mesh_text) fail("--intra-op needs the ranks that share an operator, as in --mesh tensor=8");
    const sharding::Mesh mesh = sharding::parse_mesh(*mesh_text);
    if (mesh.pipe > 1 || mesh.data > 1)
        fail("--intra-op plans the tensor axis alone; --mesh {} has others", *mesh_text);
    request.options.axes = {mesh.tensor};
    if (const auto text = text_of(flags["--tensor-mesh"])) request.options.axes = axes_of(*text, mesh.tensor);
    const std::int64_t sequence = facts.context > 0 ? facts.context : 1024;
    request.workload.micro_batch = integer_of(flags["--micro-batch"], 1).value_or(1);
    request.workload.sequence = integer_of(flags["--sequence"], 1).value_or(sequence);
    if (facts.max_sequence > 0 && request.workload.sequence > facts.max_sequence)
        fail("the model has positions for {} tokens, --sequence asks for {}", facts.max_sequence,
             request.workload.sequence);
    request.options.in_flight = integer_of(flags["--in-flight"], 1, 1 << 20).value_or(1);
    request.options.micro_batches = request.options.in_flight;
    request.workload.global_batch = request.workload.micro_batch * request.options.in_flight;
    const std::string dtype = text_of(flags["--dtype"]).value_or("bf16");
    const auto compute = parse_dtype(dtype);
    if (!compute || !is_floating(*compute)) fail("--dtype is {}, not bf16, fp16 or float32", formats::in_quotes(dtype));
    request.options.precision.compute = *compute;
    const auto file = text_of(flags["--cluster"]), device = text_of(flags["--device"]);
    if (file && device) fail("--cluster and --device both say what runs it; give one");
    request.cluster = file ? costs::read_cluster(*file) : cluster_of_device(device.value_or("h100"), mesh.tensor);
    if (request.cluster.device_count() < mesh.tensor)
        fail("the cluster has {} devices, --mesh tensor={} needs more", request.cluster.device_count(), mesh.tensor);
    request.options.memory_cap = flags.memory_cap();
    request.epsilon = real_of(flags["--epsilon"], 0).value_or(0);
    if (request.epsilon > 1) fail("--epsilon is {}, but goes from 0 (memory first) to 1 (time first)", request.epsilon);
    request.stages.epsilons.push_back(request.epsilon);
    std::ranges::sort(request.stages.epsilons);
    const std::string solver = text_of(flags["--solver"]).value_or("any");
    if (solver == "elimination")
        request.stages.solver = planner::strategies::Solver::elimination;
    else if (solver == "program")
        request.stages.solver = planner::strategies::Solver::program;
    else if (solver != "any")
        fail("--solver is {}, not any, elimination or program", formats::in_quotes(solver));
    request.stages.program.seconds = flags.time_limit().value_or(60);
    return request;
}

// The cap cannot be kept: by how much, and which mesh could.
[[noreturn]] void explain_cap(const Graph& step, const costs::CostModel& costs, Request request) {
    const Bytes cap = *request.options.memory_cap;
    auto least = [&](const costs::CostModel& with, const planner::strategies::ModelOptions& options) {
        const planner::strategies::StrategyModel model(step, with, options);
        const planner::strategies::ProgramResult found = planner::strategies::solve_program(
            model.problem(), {planner::strategies::Goal::Least::peak}, request.stages.program);
        if (!found.solution) fail("the integer program did not find the least memory within its time");
        return Bytes{found.solution->peak};
    };
    const Bytes here = least(costs, request.options);
    std::string hint = "no larger tensor mesh of up to 1024 ranks fits either";
    int ranks = std::accumulate(request.options.axes.begin(), request.options.axes.end(), 1, std::multiplies<>());
    for (ranks *= 2; ranks <= 1024; ranks *= 2) {
        planner::strategies::ModelOptions wider = request.options;
        wider.axes = {ranks};
        const costs::NodeKind& node = request.cluster.kinds[0];
        const costs::LinkLevel between =
            request.cluster.levels.size() > 1
                ? request.cluster.levels[1]
                : costs::LinkLevel{"fabric", 0, costs::find_link_preset("infiniband-ndr")->speed};
        const costs::Cluster cluster = costs::uniform_cluster(node, (ranks + node.devices - 1) / node.devices, between);
        const costs::RooflineCost wider_costs(cluster, step.operators());
        try {
            if (const Bytes there = least(wider_costs, wider); there <= cap) {
                hint = fmt::format("--mesh tensor={} would fit, with {}", ranks, to_string(there));
                break;
            }
        } catch (const Error&) { // nothing can be split so far
            break;
        }
    }
    fail("no choice of strategies keeps to {}: the least is {}, {} more; {}", to_string(cap), to_string(here),
         to_string(here - cap), hint);
}

planner::strategies::StagesResult solve(const Graph& step, const costs::CostModel& costs,
                                        const planner::strategies::StrategyModel& model, const Request& request) {
    if (request.options.memory_cap) {
        const planner::strategies::ProgramResult any = planner::strategies::solve_program(
            model.problem(), {planner::strategies::Goal::Least::redundancy}, request.stages.program);
        if (any.status == planner::strategies::ProgramResult::Status::infeasible) explain_cap(step, costs, request);
    }
    return planner::strategies::solve_stages(model.problem(), request.stages);
}

// What is chosen among the compiled plans, and what is told of it.
struct Chosen {
    std::vector<planner::strategies::CompiledPlan> plans;
    const planner::strategies::CompiledPlan* plan = nullptr;
    const planner::strategies::CompiledPlan* drawn =
        nullptr; // the same, or where the compiler decides, the least of the list

    const planner::strategies::Solution& solution() const { return *drawn->solution; }
};

Chosen choose_among(std::vector<planner::strategies::CompiledPlan> plans, const Request& request) {
    Chosen chosen{.plans = std::move(plans)};
    const planner::strategies::CompiledPlan* least = planner::strategies::least_of(chosen.plans);
    if (least == nullptr) fail("none of the plans can be compiled: {}", chosen.plans.front().reason);
    chosen.plan = planner::strategies::choose(chosen.plans, request.epsilon, request.options.memory_cap);
    if (chosen.plan == nullptr)
        fail("no plan keeps to {} once it is compiled: the least, {}, takes {}, {} more",
             to_string(*request.options.memory_cap), least->name, to_string(*least->program),
             to_string(*least->program - *request.options.memory_cap));
    chosen.drawn = chosen.plan;
    if (!chosen.plan->solution) {
        const auto end = std::ranges::find_if(
            chosen.plans, [](const planner::strategies::CompiledPlan& plan) { return !plan.epsilon; }); // of the list
        chosen.drawn = planner::strategies::least_of(std::span(chosen.plans.begin(), end));
        if (chosen.drawn == nullptr) chosen.drawn = &chosen.plans.front();
    }
    return chosen;
}

// "Compiled, this plan takes .. of a rank: the least of all, with the default's ..."
std::string sentence(const Chosen& chosen) {
    const planner::strategies::CompiledPlan& by_default =
        *std::ranges::find(chosen.plans, planner::strategies::default_name, &planner::strategies::CompiledPlan::name);
    std::string text = fmt::format(
        "Compiled, this plan ({}) takes {} of a rank{}", chosen.plan->name, to_string(*chosen.plan->program),
        *chosen.plan->program == *planner::strategies::least_of(chosen.plans)->program ? ", the least of all" : "");
    if (&by_default != chosen.plan && by_default.program)
        text += fmt::format("; the default takes {}", to_string(*by_default.program));
    if (chosen.drawn != chosen.plan)
        text += fmt::format(". It leaves strategies to the compiler; the operators are those of {}, which takes {}",
                            chosen.drawn->name, chosen.drawn->program ? to_string(*chosen.drawn->program) : "more");
    return text + ".\n";
}

// The chosen plan, then those that it is compared with, and the fastest of the list.
std::vector<std::pair<std::string, const planner::strategies::CompiledPlan*>> compared(const Chosen& chosen) {
    std::vector<std::pair<std::string, const planner::strategies::CompiledPlan*>> lines = {{"this plan", chosen.plan}};
    const planner::strategies::CompiledPlan* fastest = nullptr;
    for (const planner::strategies::CompiledPlan& plan : chosen.plans) {
        if (plan.epsilon)
            fastest = &plan; // by redundancy, so the last
        else
            lines.emplace_back(plan.name, &plan);
    }
    lines.emplace_back("the fastest", fastest);
    return lines;
}

std::string milliseconds(Seconds seconds) { return fmt::format("{:.3f} ms", seconds.count * 1e3); }

constexpr const char* legend =
    "split: the loop of an operator that ranks share: samples (r0, l0, b), positions (r1, l1, t), columns (r2, l2,\n"
    "n), heads (h), groups of heads (g), columns that are summed over (k). gathered: what the backward reads of\n"
    "other ranks is kept, or gathered again. redundant: what other ranks have, too. states: weights, gradients,\n"
    "optimizer states. saved: activations for the backward. transient: the most of all else at any time.\n"
    "predicted: these three. compiled: of the program that is run. micro-batch: the time of one\n\n";

const std::vector<std::string> headings = {"redundant", "states",   "saved",      "transient",
                                           "predicted", "compiled", "micro-batch"};

std::vector<std::string> row_of(std::string name, const planner::strategies::CompiledPlan& plan) {
    std::vector<std::string> row = {std::move(name), "-", "-", "-", "-", "-", "not possible", "-"};
    if (plan.program) row[6] = to_string(*plan.program);
    if (!plan.predicted) return row;
    const planner::strategies::Outcome& outcome = *plan.predicted;
    row[1] = to_string(outcome.redundancy);
    row[2] = to_string(outcome.states);
    row[3] = to_string(outcome.saved);
    row[4] = to_string(outcome.transient);
    row[5] = to_string(outcome.memory());
    row[7] = milliseconds(outcome.time);
    return row;
}

Json json_of(const planner::strategies::CompiledPlan& plan) {
    Json json = Json::object();
    if (plan.predicted) {
        const planner::strategies::Outcome& outcome = *plan.predicted;
        json = {{"redundancy", outcome.redundancy.count},
                {"states", outcome.states.count},
                {"saved", outcome.saved.count},
                {"transient", outcome.transient.count},
                {"predicted_bytes", outcome.memory().count},
                {"seconds", outcome.time.count},
                {"computing_seconds", outcome.computing.count}};
    }
    if (plan.program)
        json["program_bytes"] = plan.program->count;
    else
        json["reason"] = plan.reason;
    return json;
}

std::string solver_text(const planner::strategies::StagesResult& found) {
    if (found.solver == planner::strategies::Solver::elimination)
        return fmt::format("elimination, {} points in {:.2f} s, width {}", found.elimination.front.size(),
                           found.elimination.seconds, found.elimination.width);
    double seconds = 0;
    for (const planner::strategies::ProgramResult& program : found.programs) seconds += program.seconds;
    const planner::strategies::ProgramResult& first = found.programs.front();
    return fmt::format("{} integer programs of {} variables and {} constraints in {:.2f} s, gap {:.2g}{}",
                       found.programs.size(), first.variables, first.constraints, seconds, found.worst_gap,
                       found.proven ? "" : ", stopped at the time limit");
}

std::string list_table(const char* first,
                       const std::vector<std::pair<std::string, const planner::strategies::CompiledPlan*>>& lines) {
    std::vector<std::vector<std::string>> rows = {{first}};
    rows[0].insert(rows[0].end(), headings.begin(), headings.end());
    for (const auto& [name, plan] : lines) rows.push_back(row_of(name, *plan));
    return terminal::lay_out(rows, std::array<std::size_t, 7>{1, 2, 3, 4, 5, 6, 7}) + "\n";
}

void show(const planner::strategies::StrategyModel& model, const planner::strategies::StagesResult& found,
          const Chosen& chosen, const std::string& title) {
    std::string text = terminal::name_to_show(title) + "\n\n";
    std::vector<std::vector<std::string>> rows = {{"operator", "", "times", "split", "result", "weight", "gathered"}};
    for (const planner::strategies::OperatorText& one :
         planner::strategies::describe_operators(model, chosen.solution()))
        rows.push_back({one.name, one.op, std::to_string(one.times), one.split, one.gives,
                        one.weight + (one.held ? ", sharded" : ""), one.gathered});
    text += terminal::lay_out(rows, std::array<std::size_t, 1>{2}) + "\n";
    std::vector<std::pair<std::string, const planner::strategies::CompiledPlan*>> list;
    for (const planner::strategies::CompiledPlan& plan : chosen.plans)
        if (plan.epsilon) list.emplace_back(fmt::format("{:.3g}", *plan.epsilon), &plan);
    text += list_table("per rank", compared(chosen)) + list_table("epsilon", list) + legend;
    text += sentence(chosen) + solver_text(found) + "\n";
    for (const std::string& warning : model.warnings()) text += "warning: " + terminal::name_to_show(warning) + "\n";
    terminal::print(text);
}

// Keys stay as they were when it was spelled so.
std::string json_key(const std::string& name) { return name == "ZeRO 3" ? "ZeRO-3" : name; }

Json json_of(const planner::strategies::StrategyModel& model, const planner::strategies::StagesResult& found,
             const Chosen& chosen) {
    Json all = {{"mesh", model.options().axes}, {"solver", solver_text(found)}, {"proven", found.proven}};
    all["chosen"] = json_key(chosen.plan->name);
    all["plans"] = Json::array();
    for (const planner::strategies::CompiledPlan& plan : chosen.plans) {
        if (!plan.epsilon) continue;
        Json one = json_of(plan);
        one["epsilon"] = *plan.epsilon;
        one["chosen"] = &plan == chosen.plan;
        all["plans"].push_back(std::move(one));
    }
    all["compared"] = Json::object();
    for (const auto& [name, plan] : compared(chosen)) all["compared"][json_key(name)] = json_of(*plan);
    all["operators"] = Json::array();
    for (const planner::strategies::OperatorText& one :
         planner::strategies::describe_operators(model, chosen.solution()))
        all["operators"].push_back({{"name", one.name},
                                    {"op", one.op},
                                    {"times", one.times},
                                    {"split", one.split},
                                    {"result", one.gives},
                                    {"weight", one.weight},
                                    {"spread", one.held},
                                    {"gathered", one.gathered}});
    all["warnings"] = model.warnings();
    return all;
}

// A plan of one stage, as tutti train --plan takes it, that says nothing of strategies.
Plan plan_of(const Request& request, const std::string& architecture) {
    Plan plan;
    plan.model = architecture;
    plan.workload = request.workload;
    plan.precision = request.options.precision;
    for (int size : request.options.axes) plan.mesh.tensor *= size;
    return plan;
}

} // namespace

int plan_intra_op(const std::string& name, const PlanOptions& flags) {
    const models::ModelSource source = models::open_model(name);
    const Request request = read(name, source.facts(), flags);
    UsedFiles files;
    files.reads_model(name);
    files.reads(flags["--cluster"]);
    files.writes_plan(flags["--output"]);
    files.writes(flags["--picture"]);
    const models::Model built =
        source.build({request.workload.micro_batch, request.workload.sequence, request.options.precision.compute});
    const Graph step = compile::differentiated(built.graph, false);
    const costs::RooflineCost costs(request.cluster, step.operators());
    const planner::strategies::StrategyModel model(step, costs, request.options);
    const planner::strategies::StagesResult found = solve(step, costs, model, request);
    const Chosen chosen = choose_among(
        planner::strategies::compiled_plans(model, found, built.graph, plan_of(request, source.facts().architecture)),
        request);
    const std::string title =
        fmt::format("{}: {} of {} tokens on {}, as {}", source.facts().architecture, request.workload.micro_batch,
                    request.workload.sequence, costs::describe(request.cluster), fmt::join(request.options.axes, "x"));
    if (const auto file = text_of(flags["--picture"]))
        write_text_atomically(*file, planner::strategies::layer_page(model, chosen.solution(), title));
    if (const auto file = text_of(flags["--output"])) {
        check(chosen.plan->plan);
        write_text_atomically(*file, to_json(chosen.plan->plan));
    }
    if (is_set(flags["--json"]))
        terminal::print(terminal::json_to_show(json_of(model, found, chosen), 2));
    else
        show(model, found, chosen, title);
    return 0;
}

} // namespace tutti::cli
