#include "cli/plan_joint.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/plan_report.h"
#include "cli/plan_what_if.h"
#include "cli/terminal.h"
#include "cli/words.h"
#include "formats/json.h"
#include "planner/cluster_sizes.h"
#include "planner/predict.h"
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

// A type of gradients or of the optimizer, if not the usual one.
void read_type(const CLI::Option* option, const char* what, DType& into) {
    const auto name = text_of(option);
    if (!name) return;
    const auto dtype = parse_dtype(*name);
    if (!dtype || (*dtype != DType::bfloat16 && *dtype != DType::float32))
        fail("{} is {}, and should be float32 or bf16", what, in_quotes(*name));
    into = *dtype;
}

} // namespace

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
    flags.gradients = add_value(app, "--gradients", "TYPE", "of parameters' gradients", "float32");
    flags.output = add_value(app, "--output", "FILE", "write the best plan there, for tutti train --plan");
    flags.report = add_value(app, "--report", "FILE", "write a page: timeline, memory, all that was searched");
    flags.json = add_flag(app, "--json", "JSON instead of tables");
    flags.compare = add_flag(app, "--compare",
                             "compare with choosing one thing after the other, and without each of the four choices");
    flags.what_if =
        add_value(app, "--what-if", "WHAT", "vary nodes, devices, global-batch or layers, as a table and a curve");
    return flags;
}

int plan_joint(const std::string& name, const JointFlags& flags) {
    const PlanningMachines machines = planning_machines(flags.cluster, flags.profile);
    const Cluster& cluster = machines.cluster;
    if (const auto plan = text_of(flags.evaluate)) return evaluate_plan(name, *plan, machines, is_set(flags.json));
    const auto batch = integer_of(flags.global_batch, 1, 1'000'000'000);
    if (!batch) fail("how many sequences are a step? --global-batch N");
    PlanRequest request{open_model(name), name, {}, machines.profile};
    const auto sequence = integer_of(flags.sequence, 1, 1'000'000'000);
    request.workload.sequence = sequence.value_or(request.source.facts().context);
    if (request.workload.sequence < 1) fail("how long are sequences? --sequence N");
    request.workload.global_batch = *batch;
    request.workload.precision = {.compute = dtype_of(flags.dtype)};
    read_type(flags.master, "--master", request.workload.precision.master);
    read_type(flags.moments, "--moments", request.workload.precision.moments);
    read_type(flags.gradients, "--gradients", request.workload.precision.gradients);
    if (request.workload.precision.gradients != DType::float32 && request.workload.precision.compute == DType::float32)
        fail("--gradients is bf16, and --dtype is float32; gradients in bf16 need --dtype bf16");
    for (const CLI::Option* written : {flags.output, flags.report})
        if (const auto path = text_of(written)) check_writable(*path);
    follow_profile(machines, text_of(flags.dtype).has_value(), request.workload);
    const bool as_json = is_set(flags.json);
    if (const auto what = text_of(flags.what_if)) return what_if(request, cluster, *what, as_json);
    catch_stop_signals();
    const auto begun = std::chrono::steady_clock::now();
    Planned planned(request, cluster, {.compare = is_set(flags.compare), .listener = progress_line(as_json)});
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
        plan.predicted = prediction_of(planned.result.best().cost);
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
