#include "cli/plan_joint.h"

#include "base/error.h"
#include "base/file.h"
#include "cli/plan_costs.h"
#include "cli/plan_report.h"
#include "cli/terminal.h"
#include "cli/words.h"
#include "formats/json.h"

#include <chrono>

namespace tutti::cli {
namespace {

DType dtype_of(const CLI::Option* option) {
    const std::string name = text_of(option).value_or("bf16");
    const auto dtype = parse_dtype(name);
    if (!dtype || (*dtype != DType::bfloat16 && *dtype != DType::float32))
        fail("dtype is {}; plans are made for bf16 or float32", in_quotes(name));
    return *dtype;
}

// A line that is written over, where there is a terminal.
ProgressListener progress_line(bool quiet) {
    if (quiet || !output_is_terminal()) return {};
    using Clock = std::chrono::steady_clock;
    return [last = Clock::now(), begun = Clock::now()](const SearchProgress& progress) mutable {
        if (Clock::now() - last > std::chrono::milliseconds(200)) {
            last = Clock::now();
            print(fmt::format("\r{} plans in {:.0f} s, best {}, bound {}\x1b[K",
                              with_commas(static_cast<std::int64_t>(progress.plans)),
                              std::chrono::duration<double>(last - begun).count(),
                              progress.best > 0 ? to_string(Seconds{progress.best}) : "none fits yet",
                              to_string(Seconds{progress.bound})));
        }
        return !stop_requested();
    };
}

struct Request {
    ModelSource source;
    std::string name;
    PlannerWorkload workload;
    std::optional<CostProfile> profile{};
};

struct Planned {
    PlanningMachines machines;
    const Cluster& cluster = machines.cluster;
    std::unique_ptr<CostModel> costs;
    BlockChain chain;
    PlanModel model;
    JointResult result;

    Planned(const Request& request, Cluster all, const PlannerWorkload& workload, const JointOptions& options)
        : machines{std::move(all), request.profile}, costs(costs_of(machines)),
          chain(chain_of(request.source, workload.sequence, workload.precision.compute)),
          model(chain, *costs, workload, planner_options(machines)), result(plan_jointly(model, options)) {}
    Planned(const Planned&) = delete;
    Planned& operator=(const Planned&) = delete;
};

// What a what-if varies: the same cluster with another number of nodes.
Cluster with_nodes(const Cluster& cluster, int nodes) {
    Cluster other = cluster;
    other.nodes.assign(static_cast<std::size_t>(nodes), cluster.nodes.front());
    if (nodes == 1) {
        other.levels.resize(1);
    } else if (other.levels.size() < 2) {
        fail("{} has no links between nodes; a level would tell of them", cluster.name);
    } else {
        other.levels.resize(2);
        other.levels.back().size = nodes;
    }
    return other;
}

struct Variation {
    std::string what;
    Cluster cluster;
    std::int64_t global_batch = 0;
};

std::vector<Variation> variations(const std::string& what, const Cluster& cluster, std::int64_t batch) {
    std::vector<Variation> all;
    const int nodes = static_cast<int>(cluster.nodes.size());
    if (what == "nodes" || what == "devices") {
        if (cluster.kinds.size() > 1) fail("--what-if {} needs a cluster of equal nodes", what);
        for (int count = std::max(1, nodes / 4); count <= 2 * nodes; count *= 2)
            all.push_back(
                {fmt::format("{} devices", count * cluster.kinds.front().devices), with_nodes(cluster, count), batch});
    } else if (what == "global-batch") {
        for (std::int64_t size = std::max<std::int64_t>(1, batch / 4); size <= 4 * batch; size *= 2)
            all.push_back({fmt::format("global batch {}", size), cluster, size});
    } else {
        fail("--what-if is {}; it varies nodes, devices or global-batch", in_quotes(what));
    }
    return all;
}

int what_if(const Request& request, const Cluster& cluster, const std::string& what, bool as_json) {
    std::vector<std::vector<std::string>> table = {{"", "tokens/s", "step", "MFU", "", "plan"}};
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    double most = 0;
    std::vector<std::pair<Variation, std::optional<std::array<double, 3>>>> found;
    std::vector<std::string> plans;
    for (Variation& one : variations(what, cluster, request.workload.global_batch)) {
        PlannerWorkload workload = request.workload;
        workload.global_batch = one.global_batch;
        Planned planned(request, one.cluster, workload, {.kept = 1});
        std::optional<std::array<double, 3>> figures;
        plans.push_back(planned.result.fits() ? describe(planned.result.best().point) : "nothing fits");
        if (planned.result.fits()) {
            const RankedPlan& best = planned.result.best();
            figures = {planned.model.tokens_per_second(best.cost.time), best.cost.time,
                       planned.model.utilisation(best.point, best.cost.time)};
            most = std::max(most, (*figures)[0]);
        }
        found.emplace_back(std::move(one), figures);
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
        const auto& [one, figures] = found[i];
        if (!figures) {
            table.push_back({one.what, "-", "-", "-", "", plans[i]});
            json.push_back({{"what", one.what}, {"fits", false}});
            continue;
        }
        const auto bar = static_cast<std::size_t>(std::lround(24 * (*figures)[0] / most));
        std::string line;
        for (std::size_t n = 0; n < bar; ++n) line += "█";
        table.push_back({one.what, with_commas(std::llround((*figures)[0])), to_string(Seconds{(*figures)[1]}),
                         fmt::format("{:.1f}%", 100 * (*figures)[2]), line, plans[i]});
        json.push_back({{"what", one.what},
                        {"fits", true},
                        {"devices", one.cluster.device_count()},
                        {"global_batch", one.global_batch},
                        {"tokens_per_second", (*figures)[0]},
                        {"step_seconds", (*figures)[1]},
                        {"utilisation", (*figures)[2]},
                        {"plan", plans[i]}});
    }
    constexpr std::size_t right[] = {1, 2, 3};
    print(as_json ? json.dump(2) + '\n' : lay_out(table, right));
    return 0;
}

} // namespace

JointFlags add_joint_flags(CLI::App& app) {
    JointFlags flags;
    flags.cluster = add_value(app, "--cluster", "FILE", "the machines: a cluster.toml");
    flags.global_batch = add_value(app, "--global-batch", "N", "sequences per step");
    flags.sequence = add_value(app, "--sequence", "N", "tokens per sequence");
    flags.profile = add_value(app, "--profile", "FILE",
                              "costs as tutti profile measured them; without --cluster: on that machine; with neither, "
                              "the profile that was kept of this one");
    flags.evaluate = add_value(app, "--evaluate", "FILE", "only what a plan.json would take, in time and memory");
    flags.dtype = add_value(app, "--dtype", "TYPE", "bf16 or float32", "bf16");
    flags.output = add_value(app, "--output", "FILE", "write the best plan there, for tutti train --plan");
    flags.report = add_value(app, "--report", "FILE", "write a page: timeline, memory, all that was searched");
    flags.json = add_flag(app, "--json", "JSON instead of tables");
    flags.compare = add_flag(app, "--compare",
                             "compare with choosing one thing after the other, and without each of the four choices");
    flags.what_if = add_value(app, "--what-if", "WHAT", "vary nodes, devices or global-batch, as a table and a curve");
    return flags;
}

int plan_joint(const std::string& name, const JointFlags& flags) {
    const PlanningMachines machines = planning_machines(flags.cluster, flags.profile);
    const Cluster& cluster = machines.cluster;
    if (const auto plan = text_of(flags.evaluate)) return evaluate_plan(name, *plan, machines, is_set(flags.json));
    const auto batch = integer_of(flags.global_batch, 1, 1'000'000'000);
    if (!batch) fail("how many sequences are a step? --global-batch N");
    Request request{open_model(name), name, {}, machines.profile};
    const auto sequence = integer_of(flags.sequence, 1, 1'000'000'000);
    request.workload.sequence = sequence.value_or(request.source.facts().context);
    if (request.workload.sequence < 1) fail("how long are sequences? --sequence N");
    request.workload.global_batch = *batch;
    request.workload.precision = {.compute = dtype_of(flags.dtype)};
    follow_profile(machines, is_set(flags.dtype), request.workload);
    const bool as_json = is_set(flags.json);
    if (const auto what = text_of(flags.what_if)) return what_if(request, cluster, *what, as_json);
    catch_stop_signals();
    const auto begun = std::chrono::steady_clock::now();
    Planned planned(request, cluster, request.workload,
                    {.compare = is_set(flags.compare), .listener = progress_line(as_json)});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (!as_json && output_is_terminal()) print("\r\x1b[K");
    if (!planned.result.fits())
        fail("{} does not fit {}: {}", name, cluster.name.empty() ? *text_of(flags.cluster) : cluster.name,
             what_is_missing(planned.model, planned.result));
    const PlanReport report = report_of(name, planned.model, planned.result);
    if (const auto output = text_of(flags.output)) {
        Plan plan = plan_of(planned.model, planned.result.best().point);
        if (machines.profile) plan.device = machines.profile->machine.device;
        write_text_atomically(*output, to_json(plan));
    }
    if (const auto page = text_of(flags.report)) write_text_atomically(*page, plan_page(report));
    print(as_json ? json_of(report, planned.model, planned.result, seconds).dump(2) + '\n'
                  : text_of(report, planned.model, planned.result, seconds));
    return 0;
}

} // namespace tutti::cli
