#include "choose/automatic.h"

#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "devices/devices.h"
#include "planner/explanation.h"
#include "planner/predict.h"
#include "profiling/kept_profile.h"
#include "profiling/measuring_cost.h"
#include "profiling/profiling.h"
#include "resolve/run_plan.h"
#include "train/session/session.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tutti::choose {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t warming_steps = 2, measured_steps = 3;
constexpr double long_enough = 20; // seconds for one plan, where its steps take long

planner::Recomputing recomputing_of(const run::RunConfig& config, const run::LayoutFreedom& freedom) {
    if (freedom.recompute || config.recompute.automatic) return planner::Recomputing::as_needed;
    return config.recompute.share > 0 ? planner::Recomputing::all : planner::Recomputing::none;
}

// One that was kept and holds here, or what is measured now; kernels come when they are asked for.
costs::CostProfile profile_here(const run::RunConfig& config, const std::optional<fs::path>& place,
                                const costs::Fingerprint& here, run::TrainListener& listener, comm::World& world) {
    std::string why_not;
    const std::string kept = comm::first_decides(world.all(), [&]() -> std::string {
        if (!place) return "";
        profiling::KeptProfile found = profiling::find_profile(*place, here, world.size(), config.precision.compute);
        why_not = found.why_not;
        return found.profile ? costs::to_json(*found.profile) : "";
    });
    if (!kept.empty()) return costs::parse_profile(kept, "the kept profile");
    if (!why_not.empty()) listener.warning(fmt::format("the kept profile is measured anew: {}", why_not));
    const profiling::ProfileConfig measured{
        .model = "", .device = config.device, .threads = config.threads, .dtype = config.precision.compute};
    auto tell = [&](const std::string& what) { listener.waiting(what); };
    return profiling::measure_profile(measured, world, here.version, {.begins = tell, .goes_on = tell});
}

// Whether one of the ranks was asked to stop: they go on or end together.
bool is_asked(const std::atomic<bool>& stop, comm::World& world) {
    const std::vector<char> asked = comm::gather_values(world.all(), static_cast<char>(stop.load() ? 1 : 0));
    return std::ranges::count(asked, 1) > 0;
}

void end_if_asked(const std::atomic<bool>& stop, comm::World& world) {
    if (is_asked(stop, world)) throw ChoosingStopped{};
}

// What the search has found, on its way from rank 0 to all.
std::string to_text(const run::PlanChoice& choice) {
    nlohmann::json plans = nlohmann::json::array();
    for (const run::TriedPlan& one : choice.tried) plans.push_back({to_json(one.plan), one.what});
    return nlohmann::json{choice.searched, plans}.dump();
}

run::PlanChoice parse_choice(const std::string& text) {
    const nlohmann::json json = nlohmann::json::parse(text);
    run::PlanChoice choice{.searched = json.at(0)};
    for (const nlohmann::json& one : json.at(1))
        choice.tried.push_back({.plan = parse_plan(one.at(0), "the chosen plan"), .what = one.at(1)});
    return choice;
}

// The search itself, on every rank: they time kernels together.
run::PlanChoice searched(const run::RunConfig& config, const AutomaticOptions& options, run::TrainListener& listener,
                         const std::atomic<bool>& stop, comm::World& world) {
    std::optional<models::ModelSource> source;
    std::unique_ptr<backend::Device> device;
    planner::PlannerWorkload workload{.sequence = 0,
                                      .global_batch = 0,
                                      .precision = config.precision,
                                      .over_weights = config.gradients_over_weights && config.dump_step0.empty()};
    comm::agree(world.all(), [&] {
        source.emplace(models::open_model(config.model));
        const train::OpenedData data = train::open_data(config, *source);
        if (data.has_documents) source = source->with_documents();
        workload.sequence = data.sequence;
        workload.global_batch = data.global_batch;
        device = devices::open_device(config.device, config.threads, run::local_rank_of(config, world));
    });
    workload.head_logits = devices::head_logits_of(*device);
    const costs::Fingerprint here = profiling::fingerprint_of(*device, config.threads, options.version);
    const auto place = profiling::profile_place(here, world, config.precision.compute);
    costs::CostProfile profile = profile_here(config, place, here, listener, world);
    end_if_asked(stop, world);
    const planner::BlockChain chain = planner::chain_of(*source, workload.sequence, config.precision.compute);
    const Bytes libraries = profile.libraries;
    const profiling::MeasuringCost costs(
        std::move(profile), *device, world,
        {.apart = {8 * chain.all_parameters / world.size()},
         .tell = [&](const std::string& what) { listener.waiting("choosing a plan, " + what); }});
    planner::PlanModel model(
        chain, costs, workload,
        {.kept_free_share = 0, .kept_free = libraries, .recompute = recomputing_of(config, options.freedom)});
    planner::JointOptions joint{.by_hand = options.freedom == run::LayoutFreedom{}};
    joint.space.all_devices = true;
    joint.offload = device->memory().has_value(); // a CPU has no other memory than the host's
    if (!options.freedom.zero) joint.space.zero = config.zero;
    if (!options.freedom.micro_batch) joint.space.micro_batch = config.workload.micro_batch;
    auto told = Clock::now();
    std::size_t timed = 0;
    bool stopped = false;
    joint.listener = [&](const planner::SearchProgress& progress) {
        if (Clock::now() - told > std::chrono::milliseconds(200)) {
            told = Clock::now();
            listener.waiting(fmt::format("choosing a plan: {} tried, {} kernels timed, best {}", progress.plans,
                                         costs.measured(),
                                         progress.best > 0 ? to_string(Seconds{progress.best}) : "none yet"));
        }
        // Kernels take most of the time. Ranks time them together, so here all are at the same place.
        if (!stopped && std::exchange(timed, costs.measured()) != costs.measured()) stopped = is_asked(stop, world);
        return !stopped;
    };
    const planner::JointResult result = planner::plan_jointly(model, joint);
    if (world.rank() == 0 && place && costs.measured() > 0) profiling::keep_profile(*place, costs.profile());
    end_if_asked(stop, world);
    run::PlanChoice choice{.searched = result.search.progress.plans};
    for (const planner::RankedPlan& one : result.search.best) {
        if (one.decisions.mesh().ranks() != world.size()) continue;
        run::TriedPlan plan{.plan = planner::plan_of(model, one.decisions),
                            .what = planner::describe(one.decisions, chain.blocks())};
        plan.plan.device = config.device;
        plan.plan.devices.reset(); // all are alike, and this rank is where it is
        plan.plan.predicted = planner::prediction_of(one.cost);
        choice.tried.push_back(std::move(plan));
        if (static_cast<int>(choice.tried.size()) >= std::max(1, options.measure_top)) break;
    }
    if (choice.tried.empty()) fail("{} does not fit: {}", config.model, planner::what_is_missing(model, result));
    return choice;
}

// Times steps, and ends the run when these have taken long enough.
class StepTimes : public run::TrainListener {
  public:
    explicit StepTimes(const std::atomic<bool>& stop) : asked_(stop) {}

    void stepped(const run::StepReport& step) override {
        times_.push_back(step.duration.count);
        all_ += step.duration.count;
        if (asked_ || (all_ > long_enough && static_cast<std::int64_t>(times_.size()) > warming_steps)) enough_ = true;
    }
    const std::atomic<bool>& enough() const { return enough_; }
    Seconds median() const {
        if (times_.empty()) return {};
        std::vector<double> later = times_;
        later.erase(later.begin(), later.begin() + std::min<std::ptrdiff_t>(warming_steps, std::ssize(later) - 1));
        std::ranges::sort(later);
        return {later[later.size() / 2]};
    }

  private:
    const std::atomic<bool>& asked_;
    std::atomic<bool> enough_ = false;
    std::vector<double> times_;
    double all_ = 0;
};

// A run of its own that leaves nothing behind.
Seconds measure(const run::RunConfig& config, const run::TriedPlan& tried, const std::atomic<bool>& stop,
                comm::World& world) {
    run::RunConfig trial = resolve::with_plan(config, tried.plan);
    trial.steps = warming_steps + measured_steps;
    trial.output = trial.metrics = trial.trace = trial.report = trial.dump_step0 = "";
    trial.eval_every = trial.save_every = trial.stop_after = trial.warmup = 0;
    trial.resume = trial.tensorboard = false;
    trial.resume_from = 0;
    StepTimes times(stop);
    Plan plan = tried.plan;
    plan.predicted.reset(); // nothing is told of these steps
    train::train(trial, times, times.enough(), world, {.given = &plan});
    return times.median();
}

} // namespace

run::PlanChoice choose_plan(const run::RunConfig& config, const AutomaticOptions& options, run::TrainListener& listener,
                            const std::atomic<bool>& stop, comm::World& world) {
    listener.waiting("choosing a plan");
    run::PlanChoice choice = searched(config, options, listener, stop, world);
    if (world.size() > 1) choice = parse_choice(comm::broadcast_text(world.all(), to_text(choice)));
    if (options.measure_top == 0 || choice.tried.size() == 1 || world.size() == 1) return choice;
    for (run::TriedPlan& one : choice.tried) {
        listener.waiting("measuring " + one.what);
        one.measured = measure(config, one, stop, world);
        end_if_asked(stop, world);
    }
    const std::string taken = comm::first_decides(world.all(), [&] {
        const auto fastest =
            std::ranges::min_element(choice.tried, {}, [](const run::TriedPlan& one) { return one.measured->count; });
        return std::to_string(fastest - choice.tried.begin());
    });
    choice.taken = std::stoul(taken);
    forget_peak_memory(); // it was that of other plans
    return choice;
}

} // namespace tutti::choose
