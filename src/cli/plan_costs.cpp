#include "cli/plan_costs.h"

#include "base/error.h"
#include "cli/plan_report.h"
#include "costs/cluster_file.h"
#include "devices/devices.h"
#include "formats/json.h"
#include "ops/operators.h"
#include "planner/evaluate/workers.h"
#include "planner/predict.h"
#include "profiling/kept_profile.h"
#include "profiling/profiling.h"
#include "resolve/run_plan.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"
#include "train/session/session.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

namespace tutti::cli {
namespace {

costs::CostProfile kept_profile() {
    const profiling::KeptProfile kept = profiling::newest_profile([](const std::string& device, int threads) {
        return profiling::fingerprint_of(*devices::open_device(device, threads), threads, TUTTI_VERSION);
    });
    if (kept.profile) return *kept.profile;
    fail("on which machines? --cluster FILE names a cluster.toml, --profile FILE what tutti profile measured{}",
         kept.why_not.empty() ? "" : fmt::format("; the one that was kept is of no use: {}", kept.why_not));
}

// Its kernels are those of the version that timed them; the machine may be another one, for which is planned here.
costs::CostProfile profile_in(const std::string& file) {
    costs::CostProfile profile = costs::read_profile(file);
    if (profile.machine.version != TUTTI_VERSION)
        fail("{} was measured by version {}, and this is {}; tutti profile measures anew", file,
             profile.machine.version, TUTTI_VERSION);
    return profile;
}

// "h200" is what "NVIDIA H200" is called, and "a100-80" an "NVIDIA A100-SXM4-80GB"; CPUs are all "cpu".
bool may_be_called(const costs::Fingerprint& measured, std::string_view kind) {
    if (kind == measured.device || kind == measured.model) return true;
    if (!devices::has_own_memory(measured.device)) return false;
    if (const auto* known = costs::find_device_called(measured.model); known && costs::find_device_preset(kind))
        return known->name == kind;
    auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
    return !std::ranges::search(measured.model, kind.substr(0, kind.find('-')), same).empty();
}

void warn_of_other_kind(const costs::CostProfile& profile, const costs::Cluster& cluster) {
    for (const costs::NodeKind& kind : cluster.kinds)
        if (!may_be_called(profile.machine, kind.device.name))
            terminal::warn(
                fmt::format("the profile was measured on {} ({}), and the cluster has {}: times are those of the "
                            "former",
                            profile.machine.device, formats::in_quotes(profile.machine.model), kind.device.name));
}

// The names are those of the search's own report.
nlohmann::ordered_json json_of(const planner::RankBytes& bytes) {
    nlohmann::ordered_json json;
    for (const auto& [name, part] : named_parts(bytes)) json[name] = part.count;
    json["total"] = static_cast<std::int64_t>(bytes.total());
    if (bytes.on_host > 0) json["host"] = static_cast<std::int64_t>(bytes.on_host);
    json["capacity"] = static_cast<std::int64_t>(bytes.capacity);
    return json;
}

} // namespace

PlanningMachines planning_machines(const CLI::Option* cluster, const CLI::Option* profile) {
    const auto machines = text_of(cluster), measured = text_of(profile);
    PlanningMachines result;
    if (measured)
        result.profile = profile_in(*measured);
    else if (!machines)
        result.profile = kept_profile();
    result.cluster = machines ? costs::read_cluster(*machines) : costs::cluster_of(*result.profile);
    if (machines && measured) warn_of_other_kind(*result.profile, result.cluster);
    return result;
}

std::unique_ptr<costs::CostModel> costs_of(const PlanningMachines& machines) {
    if (!machines.profile) return std::make_unique<costs::RooflineCost>(machines.cluster, ops::all_operators());
    return std::make_unique<costs::MeasuredCost>(*machines.profile, ops::all_operators(), machines.cluster);
}

planner::PlannerOptions planner_options(const PlanningMachines& machines) {
    planner::PlannerOptions options{.threads = planner::worker_threads()};
    if (!machines.profile) return options;
    options.kept_free_share = 0;
    options.kept_free = machines.profile->libraries;
    return options;
}

void follow_profile(const PlanningMachines& machines, bool dtype_is_set, planner::PlannerWorkload& workload) {
    if (!machines.profile) return;
    const DType measured = machines.profile->dtype;
    if (!dtype_is_set) workload.precision.compute = measured;
    if (workload.precision.compute != measured)
        fail("the profile is of kernels in {}, and the plan would be in {}; tutti profile --dtype {} measures those",
             name_of(measured), name_of(workload.precision.compute), name_of(workload.precision.compute));
    if (devices::has_own_memory(machines.profile->machine.device))
        workload.head_logits = {machines.profile->memory.count / 16};
}

namespace {

// Of a plan.json: where it came in a list that its search had, nobody knows.
std::string words_of(planner::PlanDecisions decisions, const planner::BlockChain& chain) {
    const bool is_listed = std::exchange(decisions.tensor_parallel.strategies, 0) > 0;
    return planner::describe(decisions, chain.blocks()) + (is_listed ? ", with strategies of its own" : "");
}

} // namespace

int evaluate_plan(const std::string& name, const std::string& file, const PlanningMachines& machines, bool as_json) {
    const Plan plan = resolve::read_plan(file);
    const models::ModelSource source = models::open_model(name);
    planner::PlannerWorkload workload{.sequence = plan.workload.sequence,
                                      .global_batch = plan.workload.global_batch,
                                      .precision = plan.precision,
                                      .chunk_elements = plan.chunk_elements,
                                      .over_weights = plan.gradients_over_weights};
    follow_profile(machines, true, workload);
    const planner::BlockChain chain = planner::chain_of(source, workload.sequence, workload.precision.compute);
    if (chain.model != plan.model)
        fail("{} is a plan for {}, and {} is a {}", file, formats::in_quotes(plan.model), formats::in_quotes(name),
             chain.model);
    const std::unique_ptr<costs::CostModel> costs = costs_of(machines);
    planner::PlanModel model(chain, *costs, workload, planner_options(machines));
    const planner::PlanDecisions decisions = planner::decisions_of(model, plan);
    const planner::PlanCost cost = planner::predict(model, plan);
    if (decisions.offload && !cost.fits())
        fail("{} lets model data go to host memory, and on these machines that does not do: {} are too much for the "
             "fullest device, and of a node's host memory, {}, a tenth is left to others",
             file, to_string(Bytes{static_cast<std::int64_t>(-cost.tightest().margin())}),
             to_string(model.cluster().kinds.front().host_memory));
    const std::vector<Bytes> memory = planner::rank_memory(cost, plan.mesh);
    const auto parts = named_terms(cost.terms);
    if (as_json) {
        nlohmann::ordered_json json = {{"plan", words_of(decisions, chain)},
                                       {"step_seconds", cost.time},
                                       {"tokens_per_second", model.tokens_per_second(cost.time)},
                                       {"bubble", cost.bubble},
                                       {"fits", cost.fits()}};
        for (const auto& [term, seconds] : parts) json["seconds"][term] = seconds;
        for (const Bytes& bytes : memory) json["memory_bytes_of_ranks"].push_back(bytes.count);
        for (const planner::RankBytes& bytes : cost.ranks) json["memory_bytes_of_pipe_ranks"].push_back(json_of(bytes));
        terminal::print(terminal::json_to_show(json));
        return 0;
    }
    std::vector<terminal::Definition> lines = {
        {"plan", {words_of(decisions, chain)}},
        {"step",
         {fmt::format("{}, {} tokens/s", terminal::in_one_unit(std::vector<Seconds>{{cost.time}}).front(),
                      terminal::with_commas(std::llround(model.tokens_per_second(cost.time))))}}};
    for (const auto& [term, seconds] : parts)
        if (seconds > 0.0005 * cost.time) lines.push_back({term, {fmt::format("{:.1f}%", 100 * seconds / cost.time)}});
    const auto [least, most] = std::ranges::minmax_element(memory);
    lines.push_back({"memory of a rank",
                     {fmt::format("{} to {}; {}", to_string(*least), to_string(*most),
                                  cost.fits() ? "fits" : "more than there is")}});
    if (decisions.offload) lines.push_back({"host memory", {host_memory_text(cost)}});
    terminal::print(terminal::define(lines, 10000));
    return 0;
}

} // namespace tutti::cli
