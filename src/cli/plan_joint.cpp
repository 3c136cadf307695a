#include "cli/plan_joint.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/plan_costs.h"
#include "cli/plan_report.h"
#include "cli/terminal.h"
#include "cli/words.h"
#include "formats/json.h"
#include "planner/cluster_sizes.h"
#include "planner/smallest_change.h"
#include "planner/workers.h"

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

// A line that is written over, where there is a terminal. Ctrl-C ends the search with what there is.
ProgressListener progress_line(bool quiet) {
    if (quiet || !output_is_terminal()) return [](const SearchProgress&) { return !stop_requested(); };
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

struct Variation {
    std::string what;
    Cluster cluster;
    std::int64_t global_batch = 0;
};

std::vector<Variation> variations(const std::string& what, const Cluster& cluster, std::int64_t batch) {
    std::vector<Variation> all;
    if (what == "nodes" || what == "devices") {
        const auto nodes = static_cast<int>(cluster.nodes.size());
        if (what == "nodes" && nodes == 1) with_node_count(cluster, 2); // says what is missing, where it is
        std::vector<Cluster> sizes = sizes_around(cluster);
        if (what == "nodes" && nodes == 1) sizes = {cluster, with_node_count(cluster, 2), with_node_count(cluster, 4)};
        for (Cluster& size : sizes) all.push_back({counted(size.device_count(), "device"), std::move(size), batch});
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
    std::vector<Seconds> times;
    for (const auto& [one, figures] : found) times.push_back({figures ? (*figures)[1] : 0});
    const std::vector<std::string> steps = in_one_unit(times);
    for (std::size_t i = 0; i < found.size(); ++i) {
        const auto& [one, figures] = found[i];
        if (!figures) {
            table.push_back({one.what, "-", "-", "-", "", plans[i]});
            json.push_back({{"what", one.what},
                            {"fits", false},
                            {"devices", one.cluster.device_count()},
                            {"global_batch", one.global_batch}});
            continue;
        }
        table.push_back({one.what, with_commas(std::llround((*figures)[0])), steps[i],
                         fmt::format("{:.1f}%", 100 * (*figures)[2]), bar((*figures)[0], most), plans[i]});
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

// The scaling analysis: throughput of the best plans on fewer and more devices.
std::vector<ScalingPoint> scaling_curve(const Request& request, Planned& chosen) {
    std::vector<ScalingPoint> curve;
    for (const Cluster& size : sizes_around(chosen.cluster)) {
        auto add = [&](Planned& planned) {
            ScalingPoint point{.devices = size.device_count(), .what = "nothing fits"};
            if (planned.result.fits()) {
                point.tokens_per_second = planned.model.tokens_per_second(planned.result.best().cost.time);
                point.what = describe(planned.result.best().point);
            }
            curve.push_back(std::move(point));
        };
        if (stop_requested()) break;
        if (size == chosen.cluster) {
            add(chosen);
            continue;
        }
        Planned planned(request, size, request.workload, {.kept = 1, .listener = progress_line(true)});
        if (planned.result.stopped()) break;
        add(planned);
    }
    return curve;
}

// Moments and master weights: the optimizer's types, if not the usual ones.
void read_type(const CLI::Option* option, const char* what, DType& into) {
    const auto name = text_of(option);
    if (!name) return;
    const auto dtype = parse_dtype(*name);
    if (!dtype || (*dtype != DType::bfloat16 && *dtype != DType::float32))
        fail("{} is {}, and should be float32 or bf16", what, in_quotes(*name));
    into = *dtype;
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
    flags.master = add_value(app, "--master", "TYPE", "of the weights as the optimizer keeps them", "float32");
    flags.moments = add_value(app, "--moments", "TYPE", "of AdamW's moments", "float32");
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
    read_type(flags.master, "--master", request.workload.precision.master);
    read_type(flags.moments, "--moments", request.workload.precision.moments);
    for (const CLI::Option* written : {flags.output, flags.report})
        if (const auto path = text_of(written)) check_writable(*path);
    follow_profile(machines, text_of(flags.dtype).has_value(), request.workload);
    const bool as_json = is_set(flags.json);
    if (const auto what = text_of(flags.what_if)) return what_if(request, cluster, *what, as_json);
    catch_stop_signals();
    const auto begun = std::chrono::steady_clock::now();
    Planned planned(request, cluster, request.workload,
                    {.compare = is_set(flags.compare), .listener = progress_line(as_json)});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (!as_json && output_is_terminal()) print("\r\x1b[K");
    if (!planned.result.fits() && planned.result.stopped())
        fail("the search was stopped after {:.1f} s, before it had found a plan that fits", seconds);
    if (!planned.result.fits())
        fail("{} does not fit {}: {}{}", name, cluster.name.empty() ? *text_of(flags.cluster) : cluster.name,
             what_is_missing(planned.model, planned.result),
             lacks_memory(planned.model, planned.result)
                 ? what_would_fit(planned.chain, cluster, request.workload, planner_options(machines),
                                  planned.result.search.closest)
                 : "");
    if (const auto output = text_of(flags.output)) {
        Plan plan = plan_of(planned.model, planned.result.best().point);
        if (machines.profile) plan.device = machines.profile->machine.device;
        write_text_atomically(*output, to_json(plan));
    }
    PlanReport report = report_of(name, planned.model, planned.result);
    if (text_of(flags.report)) report.scaling = scaling_curve(request, planned);
    if (const auto page = text_of(flags.report)) write_text_atomically(*page, plan_page(report));
    print(as_json ? json_of(report, planned.model, planned.result, seconds).dump(2) + '\n'
                  : text_of(report, planned.model, planned.result, seconds));
    if (planned.result.stopped() && !as_json)
        print("The search was stopped: this is the best plan that it had found. A longer search may find a faster "
              "one.\n");
    return 0;
}

} // namespace tutti::cli
