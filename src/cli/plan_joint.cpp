#include "cli/plan_joint.h"

#include "base/error.h"
#include "base/file.h"
#include "cli/plan_report.h"
#include "cli/plan_watch.h"
#include "cli/plan_what_if.h"
#include "cli/used_files.h"
#include "formats/json.h"
#include "planner/cluster_sizes.h"
#include "planner/explanation.h"
#include "planner/predict.h"
#include "planner/smallest_change.h"
#include "resolve/run_plan.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <tuple>

namespace tutti::cli {
namespace {

DType dtype_of(const CLI::Option* option) {
    const std::string name = text_of(option).value_or("bf16");
    const auto dtype = parse_dtype(name);
    if (!dtype || (*dtype != DType::bfloat16 && *dtype != DType::float32))
        fail("dtype is {}; plans are made for bf16 or float32", formats::in_quotes(name));
    return *dtype;
}

// A type of gradients or of the optimizer, if not the usual one.
void read_type(const CLI::Option* option, const char* what, DType& into) {
    const auto name = text_of(option);
    if (!name) return;
    const auto dtype = parse_dtype(*name);
    if (!dtype || (*dtype != DType::bfloat16 && *dtype != DType::float32))
        fail("{} is {}, and should be float32 or bf16", what, formats::in_quotes(*name));
    into = *dtype;
}

void read_types(const PlanOptions& flags, Precision& precision) {
    read_type(flags["--master"], "--master", precision.master);
    read_type(flags["--moments"], "--moments", precision.moments);
    read_type(flags["--gradients"], "--gradients", precision.gradients);
    if (precision.compute != DType::float32) return;
    const bool said = text_of(flags["--dtype"]).has_value();
    for (const auto& [option, what, dtype] : {std::tuple{"--gradients", "gradients", precision.gradients},
                                              std::tuple{"--master", "master weights", precision.master}})
        if (dtype != DType::float32)
            fail("{} is bf16, and {} is float32; {} in bf16 need {} bf16", option, said ? "--dtype" : "the profile",
                 what, said ? "--dtype" : "a profile in");
}

void check_files(const std::string& model, const PlanOptions& flags) {
    UsedFiles files;
    files.reads_model(model);
    files.reads(flags["--cluster"]);
    files.reads(flags["--profile"]);
    files.writes_plan(flags["--output"]);
    files.writes(flags["--report"]);
}

// A plan has its own numbers and types; saying the same again does no harm.
void expect_agreement(const PlanOptions& flags, const Plan& plan, const std::string& file) {
    auto expect = [&](const char* option, const std::string& said, const auto& own, bool same) {
        if (!same) fail("{} is {}, but the plan {} says {}: leave it out", option, said, file, own);
    };
    for (const auto& [option, own] :
         {std::pair("--global-batch", plan.workload.global_batch), {"--sequence", plan.workload.sequence}})
        if (const auto said = integer_of(flags[option], 1)) expect(option, std::to_string(*said), own, *said == own);
    const Precision& types = plan.precision;
    for (const auto& [option, own] : {std::pair("--dtype", types.compute),
                                      {"--master", types.master},
                                      {"--moments", types.moments},
                                      {"--gradients", types.gradients}})
        if (const auto said = text_of(flags[option])) expect(option, *said, name_of(own), parse_dtype(*said) == own);
}

PlanRequest request_of(const std::string& name, const PlanOptions& flags, const PlanningMachines& machines) {
    const auto batch = integer_of(flags["--global-batch"], 1, 1'000'000'000);
    if (!batch) fail("how many sequences are a step? --global-batch N");
    PlanRequest request{models::open_model(name), name, {}, machines.profile};
    const auto sequence = integer_of(flags["--sequence"], 1, 1'000'000'000);
    request.workload.sequence = sequence.value_or(request.source.facts().context);
    if (request.workload.sequence < 1) fail("how long are sequences? --sequence N");
    request.workload.global_batch = *batch;
    request.workload.precision.compute = dtype_of(flags["--dtype"]);
    follow_profile(machines, text_of(flags["--dtype"]).has_value(), request.workload);
    read_types(flags, request.workload.precision);
    return request;
}

[[noreturn]] void tell_misfit(const PlanRequest& request, Planned& planned, const PlanOptions& flags) {
    const costs::Cluster& cluster = planned.cluster;
    fail("{} does not fit {}{}: {}{}", request.name, cluster.name.empty() ? *text_of(flags["--cluster"]) : cluster.name,
         flags.memory_cap() ? fmt::format(" with {} of every device", to_string(*flags.memory_cap())) : "",
         planner::what_is_missing(planned.model, planned.result),
         planner::lacks_memory(planned.model, planned.result)
             ? planner::what_would_fit(planned.chain, cluster, request.workload, planner_options(planned.machines),
                                       planned.result.search.closest, flags.time_limit().value_or(10))
             : "");
}

void write_plan(const std::string& file, Planned& planned) {
    Plan plan = planner::plan_of(planned.model, planned.result.best().decisions);
    plan.predicted = planner::prediction_of(planned.result.best().cost);
    if (planned.machines.profile) plan.device = planned.machines.profile->machine.device;
    write_text_atomically(file, to_json(plan));
}

// What was left out, since it was to end early.
std::string what_is_left_out(const PlanWatch& watch, const Planned& planned, bool curve_is_whole) {
    if (planned.result.stopped())
        return fmt::format("The search {}: this is the best plan that it had found. A longer search may find a faster "
                           "one.\n",
                           watch.how());
    return curve_is_whole ? "" : fmt::format("The curve over devices {}, and is not whole.\n", watch.how());
}

int show_search(const PlanRequest& request, const costs::Cluster& cluster, const PlanOptions& flags, PlanWatch& watch) {
    Planned planned(request, cluster, {.compare = is_set(flags["--compare"]), .listener = watch.listener()});
    PlanSeconds seconds{.search = watch.seconds()};
    watch.clear();
    if (!planned.result.fits() && planned.result.stopped())
        fail("the search {} after {:.1f} s, before it had found a plan that fits", watch.how(), seconds.search);
    if (!planned.result.fits()) tell_misfit(request, planned, flags);
    if (const auto output = text_of(flags["--output"])) write_plan(*output, planned);
    report::PlanReport report = report_of(request.name, planned.model, planned.result);
    bool curve_is_whole = true;
    if (const auto page = text_of(flags["--report"])) {
        report.scaling = scaling_curve(request, planned, watch);
        seconds.curve = watch.seconds() - seconds.search;
        watch.clear();
        curve_is_whole = report.scaling.size() == planner::sizes_around(cluster).size();
        write_text_atomically(*page, report::plan_page(report));
    }
    if (is_set(flags["--json"]))
        terminal::print(terminal::json_to_show(json_of(report, planned.model, planned.result, seconds), 2));
    else
        terminal::print(text_of(report, planned.model, planned.result, seconds) +
                        what_is_left_out(watch, planned, curve_is_whole));
    return 0;
}

} // namespace

int plan_joint(const std::string& name, const PlanOptions& flags, PlanMode mode) {
    PlanningMachines machines = planning_machines(flags["--cluster"], flags["--profile"]);
    if (const auto cap = flags.memory_cap()) machines.cluster = planner::with_memory_cap(machines.cluster, *cap);
    const bool as_json = is_set(flags["--json"]);
    if (mode == PlanMode::evaluate) {
        const std::string file = *text_of(flags["--evaluate"]);
        expect_agreement(flags, resolve::read_plan(file), file);
        return evaluate_plan(name, file, machines, as_json);
    }
    const PlanRequest request = request_of(name, flags, machines);
    check_files(name, flags);
    PlanWatch watch(as_json, flags.time_limit());
    if (mode == PlanMode::what_if)
        return what_if(request, machines.cluster, *text_of(flags["--what-if"]), as_json, watch);
    return show_search(request, machines.cluster, flags, watch);
}

} // namespace tutti::cli
