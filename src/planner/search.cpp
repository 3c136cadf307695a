#include "planner/search.h"

#include "base/error.h"
#include "planner/step_time_estimate.h"
#include "schedule/families.h"

#include <algorithm>
#include <limits>

namespace tutti::planner {
namespace {

constexpr int few_cuts = 64;               // so many are all tried
constexpr std::size_t most_noted = 20'000; // searched plans
constexpr double slack = 0.99;             // unequal stages may suit a schedule better than equal ones
constexpr double brief_slack = 0.995;      // of what a step seems to take by its beginning
constexpr double hopeless = 1.05;          // times the best: other splits of as slow stages are no better
constexpr std::size_t most_followed = 64;  // scalings for schedules that follow costs, where nothing fits without
constexpr double never = std::numeric_limits<double>::infinity();

double estimate_of(std::span<const StepTimeEstimate> estimates, Zero zero) {
    const auto found = std::ranges::find(estimates, zero, &StepTimeEstimate::zero);
    return found == estimates.end() ? never : found->seconds;
}

} // namespace

std::vector<schedule::ScheduleParameters> schedule_menu(int ranks, int micro_batches, int blocks,
                                                        bool following_costs) {
    std::vector<schedule::ScheduleParameters> menu = schedule::schedules_to_try(ranks, micro_batches, following_costs);
    std::erase_if(menu, [&](const schedule::ScheduleParameters& p) {
        return std::max(1, p.stages_per_rank) * ranks > blocks; // a stage has one block at least
    });
    return menu;
}

// False where it does not fit.
bool ScheduleSearch::consider(Splitter& splitter, std::vector<int> cuts, const PlacedRanks& placed,
                              ReadySchedule& ready) {
    const bool fits = splitter.complete(std::move(cuts));
    const PlanDecisions& decisions = splitter.decisions();
    ++result_.progress.plans;
    if (!fits) {
        if (result_.progress.best > 0 || best_) return false;
        PlanCost cost = model_.evaluate(decisions, placed, ready);
        if (!result_.closest || cost.tightest().margin() > result_.closest->cost.tightest().margin())
            result_.closest = RankedPlan{"closest", decisions, std::move(cost)};
        return false;
    }
    const double time = model_.step_seconds(decisions, placed, ready);
    last_time_ = time;
    if (result_.searched.size() < most_noted)
        result_.searched.push_back(
            {time, splitter.largest_memory(), decisions.schedule.family, describe(decisions, model_.chain().blocks())});
    if (!best_ || time < best_->cost.time) best_ = RankedPlan{"", decisions, model_.evaluate(decisions, placed, ready)};
    return true;
}

void ScheduleSearch::report_progress() const {
    if (listener_ && !listener_(result_.progress)) throw SearchStopped{};
}

std::vector<std::vector<int>> ScheduleSearch::splits_of(Splitter& splitter) const {
    if (!space_.splitting) return {splitter.even()};
    std::vector<std::vector<int>> splits = splitter.all_cuts(few_cuts);
    if (splits.empty()) splits = splitter.balanced();
    if (splits.empty()) splits = {splitter.even()}; // does not fit; what is missing is told by it
    return splits;
}

// By the beginning of its step; after that, the busiest rank goes on without a pause.
double ScheduleSearch::seems_to_take(const PlanDecisions& decisions, const PlacedRanks& placed,
                                     const schedule::ScheduleParameters& brief, ReadySchedule& ready) {
    PlanDecisions shorter = decisions;
    shorter.schedule = brief;
    std::unique_ptr<ReadySchedule> owned;
    ReadySchedule* begins = follows_costs(brief.family) ? model_.schedule_of(shorter, placed, owned) : &ready;
    if (!begins) return std::numeric_limits<double>::infinity();
    const schedule::ScheduleParameters& p = decisions.schedule;
    std::vector<double> busy(static_cast<std::size_t>(decisions.pipe), 0.0);
    const schedule::Costs costs = model_.costs_of(decisions, placed, style_of(p));
    for (int replica = 0; replica < p.model_replicas; ++replica)
        for (int stage = 0; stage < p.stages(); ++stage) {
            const schedule::StageCosts& one = costs.stages[static_cast<std::size_t>(stage)];
            busy[static_cast<std::size_t>(schedule::rank_of(p, replica, stage))] +=
                (one.forward + one.backward + one.weight_gradient + one.recompute) / p.model_replicas;
        }
    const double rest = p.micro_batches - begins->schedule.parameters.micro_batches;
    return model_.step_seconds(shorter, placed, *begins) + rest * std::ranges::max(busy);
}

void ScheduleSearch::try_schedule(PlanDecisions decisions, const PlacedRanks& placed,
                                  const schedule::ScheduleParameters& parameters,
                                  std::span<const StepTimeEstimate> estimates, double most) {
    limit_ = most;
    try {
        decisions.schedule = schedule::resolve(parameters);
    } catch (const Error&) { // the family does not take these numbers
        return;
    }
    if (decisions.schedule.stages() > model_.chain().blocks()) return;
    const bool from_costs = follows_costs(parameters.family), anything = limit() < never;
    const int replica_count = decisions.data * decisions.schedule.model_replicas;
    // Long steps are looked at briefly, where there is something that they would have to be faster than.
    schedule::ScheduleParameters brief = parameters;
    if (!exhaustive_ && anything) brief.micro_batches = schedule::telling_micro_batches(decisions.schedule);
    const bool shortened = brief.micro_batches < decisions.schedule.micro_batches;
    for (const Zero zero : zero_stages(replica_count)) {
        if (space_.zero && zero != *space_.zero) continue;
        if (!exhaustive_ && slack * estimate_of(estimates, zero) >= limit()) continue;
        decisions.zero = zero;
        // Chunks alone may be too much, even evenly sharded. Where nothing is known to fit yet, what is sharded most
        // tells what is missing.
        const bool needs_least = zero.shards_weights() || replica_count == 1 || space_.zero.has_value();
        const double held =
            static_cast<double>(model_.chain().all_parameters) / decisions.tensor_parallel.ranks / decisions.pipe;
        if ((limit() < never || !needs_least) &&
            model_.least_chunk_bytes(held, zero, replica_count, decisions.schedule.micro_batches).total() >
                static_cast<double>(model_.cluster().largest_memory().count))
            continue;
        report_progress();
        // A schedule that follows costs needs a split to follow, and a split needs a schedule: one of equal stages.
        ReadySchedule* begins = model_.schedules().find(brief);
        if (!begins) return;
        Splitter splitter(model_, decisions, placed, *begins);
        bool plain = false; // it fits without recomputing
        for (std::vector<int>& cuts : splits_of(splitter)) {
            report_progress();
            if (!from_costs && !shortened) {
                const bool fits = consider(splitter, std::move(cuts), placed, *begins);
                plain |= fits && !splitter.recomputes();
                if (!exhaustive_ && fits && last_time_ > hopeless * limit()) break;
                continue;
            }
            const bool fits = splitter.complete(cuts);
            plain |= fits && !splitter.recomputes();
            if (shortened) {
                if (!fits && !from_costs) continue;
                const double seems = seems_to_take(splitter.decisions(), placed, brief, *begins);
                if (seems > hopeless * limit()) break;
                if (brief_slack * seems >= limit()) continue;
            }
            report_progress();
            std::unique_ptr<ReadySchedule> owned;
            PlanDecisions whole = splitter.decisions();
            whole.schedule = parameters;
            ReadySchedule* own = model_.schedule_of(whole, placed, owned);
            if (!own) continue;
            whole.schedule = own->schedule.parameters;
            whole.schedule.recompute.clear();
            Splitter again(model_, whole, placed, *own);
            consider(again, std::move(cuts), placed, *own);
        }
        // If a plan fits already, a higher ZeRO level only adds communication.
        if (plain && zero.shards_states() && !exhaustive_) return;
    }
}

void ScheduleSearch::polish(RankedPlan& plan) {
    const PlacedRanks placed = place_ranks(model_.cluster(), plan.decisions.mesh(), plan.decisions.layout);
    if (plan.decisions.stages() == 1 || !space_.splitting) return;
    std::unique_ptr<ReadySchedule> owned;
    ReadySchedule* ready = model_.schedule_of(plan.decisions, placed, owned);
    if (!ready) return;
    best_ = plan;
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t c = 0; c < plan.decisions.cuts.size(); ++c)
            for (const int by : {-1, 1}) {
                report_progress();
                const double before = best_->cost.time;
                std::vector<int> cuts = best_->decisions.cuts;
                cuts[c] += by;
                const int low = c == 0 ? 0 : cuts[c - 1],
                          high = c + 1 == cuts.size() ? model_.chain().blocks() : cuts[c + 1];
                if (cuts[c] <= low || cuts[c] >= high) continue;
                Splitter splitter(model_, best_->decisions, placed, *ready);
                consider(splitter, std::move(cuts), placed, *ready);
                moved |= best_->cost.time < before * (1 - 1e-9);
            }
    }
    if (follows_costs(plan.decisions.schedule.family)) { // then the order follows the cuts, too
        const PlanDecisions decisions = std::exchange(best_, plan)->decisions;
        std::unique_ptr<ReadySchedule> other;
        if (ReadySchedule* own = model_.schedule_of(decisions, placed, other)) {
            Splitter again(model_, decisions, placed, *own);
            consider(again, decisions.cuts, placed, *own);
        }
    }
    std::string name = std::move(plan.name);
    plan = *take();
    plan.name = std::move(name);
}

namespace {

// A scaling with a schedule, and what it may reach.
struct Trial {
    std::size_t candidate = 0;
    schedule::ScheduleParameters schedule{};
    std::vector<StepTimeEstimate> estimates{};
    double estimate = 0; // the best of these
};

std::vector<Trial> trials_of(PlanModel& model, std::span<const ScalingCandidate> candidates,
                             std::span<const PlacedRanks> placed, const SearchSpace& space, bool following_costs) {
    std::vector<Trial> trials;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
        const ScalingCandidate& one = candidates[c];
        const StepTimeEstimator estimator(model, one, placed[c]);
        for (schedule::ScheduleParameters& p : schedule_menu(one.decisions.pipe, static_cast<int>(one.micro_batches),
                                                             model.chain().blocks(), following_costs)) {
            if (!space.families.empty() && std::ranges::find(space.families, p.family) == space.families.end())
                continue;
            std::vector<StepTimeEstimate> estimates = estimator.estimates(p);
            const double least = std::ranges::min(estimates, {}, &StepTimeEstimate::seconds).seconds;
            trials.push_back({c, std::move(p), std::move(estimates), least});
        }
    }
    // Of equal estimates, the one with less communication first.
    std::ranges::stable_sort(trials, [&](const Trial& a, const Trial& b) {
        return std::pair(a.estimate, candidates[a.candidate].communication) <
               std::pair(b.estimate, candidates[b.candidate].communication);
    });
    return trials;
}

// One search: what it has found so far outlives its being stopped.
class Search {
  public:
    Search(PlanModel& model, const SearchOptions& options, SearchResult& result)
        : model_(model), options_(options), result_(result) {
        for (const RankedPlan& plan : options.known) best_ = std::min(best_, plan.cost.time);
        if (!options.known.empty()) result.progress.best = best_;
        model.segments().on_work([this] { report_progress(); });
    }
    ~Search() { model_.segments().on_work({}); }
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    void run() {
        candidates_ = scaling_candidates(model_, options_.space);
        if (!candidates_.empty())
            result_.progress.bound = std::ranges::min_element(candidates_, {}, &ScalingCandidate::bound)->bound;
        for (const ScalingCandidate& one : candidates_) {
            report_progress();
            placed_.push_back(place_ranks(model_.cluster(), one.decisions.mesh(), one.decisions.layout));
        }
        constexpr std::size_t followed = 8; // so many of more than few, with schedules that take long to make
        const bool exhaustive = candidates_.size() <= options_.few && options_.space.tensor_parallel.empty();
        schedules_.emplace(model_, options_.space, options_.listener, result_, exhaustive);
        attempt(trials_of(model_, candidates_, placed_, options_.space, false), exhaustive);
        std::vector<std::size_t> next;
        for (const auto& [number, plan] : found_)
            if (next.size() < followed && std::ranges::find(next, number) == next.end()) next.push_back(number);
        if (exhaustive || next.empty()) {
            next.clear();
            for (std::size_t c = 0; c < std::min(most_followed, candidates_.size()); ++c) next.push_back(c);
        }
        std::vector<Trial> following = trials_of(model_, candidates_, placed_, options_.space, true);
        std::erase_if(following,
                      [&](const Trial& trial) { return std::ranges::find(next, trial.candidate) == next.end(); });
        attempt(following, exhaustive);
        for (std::size_t f = 0; f < std::min<std::size_t>(3, found_.size()); ++f) schedules_->polish(found_[f].second);
    }

    // By rising time, those that are known already among them.
    std::vector<RankedPlan> ranked() {
        for (const RankedPlan& plan : options_.known) found_.emplace_back(0, plan);
        if (schedules_) // what it was at when it was stopped
            if (std::optional<RankedPlan> plan = schedules_->take()) found_.emplace_back(0, std::move(*plan));
        sort_found();
        std::vector<RankedPlan> best;
        for (auto& [number, plan] : found_) {
            const bool known = std::ranges::any_of(best, [&](const RankedPlan& other) {
                return other.decisions.mesh() == plan.decisions.mesh() &&
                       other.decisions.micro_batch == plan.decisions.micro_batch &&
                       other.decisions.schedule.family == plan.decisions.schedule.family;
            });
            if (!known && best.size() < options_.kept) best.push_back(std::move(plan));
        }
        return best;
    }

  private:
    void report_progress() const {
        if (options_.listener && !options_.listener(result_.progress)) throw SearchStopped{};
    }

    void sort_found() {
        std::ranges::stable_sort(found_,
                                 [](const auto& a, const auto& b) { return a.second.cost.time < b.second.cost.time; });
    }

    void attempt(const std::vector<Trial>& trials, bool exhaustive) {
        result_.progress.trials += trials.size();
        for (const Trial& trial : trials) {
            if (!exhaustive && slack * trial.estimate >= best_) break;
            const ScalingCandidate& candidate = candidates_[trial.candidate];
            ++result_.progress.done;
            if (candidate.bound >= best_) continue;
            model_.schedules().trim();
            schedules_->try_schedule(candidate.decisions, placed_[trial.candidate], trial.schedule, trial.estimates,
                                     best_);
            if (std::optional<RankedPlan> plan = schedules_->take()) {
                best_ = std::min(best_, plan->cost.time);
                result_.progress.best = best_;
                found_.emplace_back(trial.candidate, std::move(*plan));
            }
        }
        sort_found();
    }

    PlanModel& model_;
    const SearchOptions& options_;
    SearchResult& result_;
    std::vector<ScalingCandidate> candidates_{};
    std::vector<PlacedRanks> placed_{};
    std::optional<ScheduleSearch> schedules_{};
    std::vector<std::pair<std::size_t, RankedPlan>> found_{}; // by candidate
    double best_ = never;
};

} // namespace

SearchResult search(PlanModel& model, const SearchOptions& options) {
    SearchResult result;
    Search one(model, options, result);
    try {
        one.run();
    } catch (const SearchStopped&) {
        result.stopped = true;
    }
    result.best = one.ranked();
    if (!result.best.empty()) result.progress.best = result.best.front().cost.time;
    return result;
}

} // namespace tutti::planner
