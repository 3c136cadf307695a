#include "planner/search.h"

#include "base/error.h"
#include "planner/scaling.h"
#include "schedule/families.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

constexpr int few_cuts = 64;               // so many are all tried
constexpr std::size_t most_noted = 20'000; // searched points

double largest_memory(const Cluster& cluster) {
    double largest = 0;
    for (const NodeKind& kind : cluster.kinds)
        largest = std::max(largest, static_cast<double>(kind.device.memory.count));
    return largest;
}

} // namespace

std::vector<ScheduleParameters> schedule_menu(int ranks, int micro_batches, int blocks, bool following_costs) {
    std::vector<ScheduleParameters> menu;
    auto add = [&](const char* family, int stages = 0, int in_flight = 0) {
        ScheduleParameters p{.family = family, .ranks = ranks, .micro_batches = micro_batches};
        p.stages_per_rank = stages;
        p.in_flight = in_flight;
        if (std::max(1, stages) * ranks > blocks) return false;
        menu.push_back(p);
        return true;
    };
    if (!following_costs) add("1f1b");
    if (ranks == 1) return menu;
    if (!following_costs) {
        for (int stages : {2, 3, 4, 6, 8}) add("interleaved", stages);
        for (const char* family : {"zb-1p", "zb-2p", "early-recompute", "last-stage-without-recompute"}) add(family);
        if (micro_batches <= 2 * ranks) add("gpipe");
        for (const char* family : {"zb-v", "dualpipe-v"}) add(family, 2);
        for (const char* family : {"dualpipe", "chimera"}) add(family);
        for (int stages : {2, 4}) add("hanayo", stages);
        return menu;
    }
    for (const char* family : {"mixpipe", "shifted-critical-path"}) add(family);
    for (const char* family : {"v-half", "v-min"}) add(family, 2);
    // Greedy with one stage, or two as a wave; more or fewer micro-batches in flight.
    for (const bool wave : {false, true})
        for (const int k : {(ranks + 2) / 3, (ranks + 1) / 2, 3 * ranks / 4, ranks, 3 * ranks / 2, 2 * ranks}) {
            if (k < 1 || k > micro_batches || !add("greedy", wave ? 2 : 1, k)) continue;
            menu.back().split_backward = true;
            if (wave) menu.back().placement = StagePlacement::wave;
        }
    return menu;
}

// False where it does not fit.
bool PointSearch::consider(Splitter& splitter, std::vector<int> cuts, const LaidOut& out, ReadySchedule& ready) {
    const bool fits = splitter.complete(std::move(cuts));
    const PlanPoint& point = splitter.point();
    ++result_.progress.plans;
    if (!fits) {
        if (result_.progress.best > 0 || best_) return false;
        PlanCost cost = model_.evaluate(point, out, ready);
        if (!result_.closest || cost.tightest().margin() > result_.closest->cost.tightest().margin())
            result_.closest = RankedPlan{"closest", point, std::move(cost)};
        return false;
    }
    const double time = model_.step_seconds(point, out, ready);
    if (result_.searched.size() < most_noted)
        result_.searched.push_back({time, splitter.largest_memory(), point.schedule.family, describe(point)});
    if (!best_ || time < best_->cost.time) best_ = RankedPlan{"", point, model_.evaluate(point, out, ready)};
    return true;
}

// From ZeRO 2 on, every micro-batch reduces its gradients; at 3 it gathers its weights twice.
double PointSearch::least_exchange(const PlanPoint& point, const LaidOut& out, const ScheduleParameters& p) const {
    if (point.zero < 2) return 0;
    const double elements = static_cast<double>(model_.chain().all_parameters) / point.strategies.tensor / p.ranks;
    const Precision& types = model_.workload().precision;
    auto seconds = [&](Collective what, DType dtype) {
        const Bytes bytes{static_cast<std::int64_t>(elements) * size_of(dtype)};
        return model_.costs().collective_seconds(what, bytes, out.shapes.data, out.kinds.front().front());
    };
    double exchange = seconds(Collective::reduce_scatter, types.gradients);
    if (point.zero == 3) exchange += 2 * seconds(Collective::all_gather, types.compute);
    return p.micro_batches * exchange;
}

void PointSearch::try_schedule(PlanPoint point, const LaidOut& out, const ScheduleParameters& parameters,
                               double limit) {
    std::optional<ScheduleParameters> resolved;
    try {
        resolved = resolve(parameters);
    } catch (const Error&) { // the family does not take these numbers
        return;
    }
    if (resolved->stages() > model_.chain().blocks()) return;
    point.schedule = *resolved;
    const bool from_costs = follows_costs(parameters.family);
    const int spread = point.data * resolved->copies;
    for (int zero = 0; zero <= (spread > 1 ? 3 : 0); ++zero) {
        if (freedom_.zero && zero != *freedom_.zero) continue;
        point.zero = zero;
        const double best = best_ ? std::min(limit, best_->cost.time) : limit;
        if (!exhaustive_ && least_exchange(point, out, *resolved) >= best) return;
        // Chunks alone may be too much, even evenly spread; unless nothing is known to fit yet.
        const double held = static_cast<double>(model_.chain().all_parameters) / point.strategies.tensor / point.pipe;
        if (best < std::numeric_limits<double>::infinity() &&
            model_.chunk_bytes(held, zero, spread).total() > largest_memory(model_.cluster()))
            continue;
        // A schedule that follows costs needs a split to follow, and a split needs a schedule: one of equal stages.
        std::unique_ptr<ReadySchedule> nominal;
        ReadySchedule* ready = nullptr;
        if (from_costs) {
            try {
                nominal = std::make_unique<ReadySchedule>(make_schedule(parameters, StageCosts{}));
                ready = nominal.get();
            } catch (const Error&) {
            }
        } else {
            ready = model_.schedules().find(parameters);
        }
        if (!ready) return;
        point.schedule = ready->schedule.parameters;
        point.schedule.recompute.clear();
        Splitter splitter(model_, point, out, *ready);
        std::vector<std::vector<int>> splits;
        if (!freedom_.splitting)
            splits = {splitter.even()};
        else if (splits = splitter.all_cuts(few_cuts); splits.empty())
            splits = splitter.balanced();
        if (splits.empty()) splits = {splitter.even()}; // does not fit; what is missing is told by it
        bool plain = false;                             // it fits without recomputing
        for (std::vector<int>& cuts : splits) {
            if (!from_costs) {
                plain |= consider(splitter, std::move(cuts), out, *ready) && !splitter.recomputes();
                continue;
            }
            splitter.complete(cuts);
            std::unique_ptr<ReadySchedule> owned;
            PlanPoint following = splitter.point();
            following.schedule = parameters;
            ReadySchedule* own = model_.schedule_of(following, out, owned);
            if (!own) continue;
            following.schedule = own->schedule.parameters;
            following.schedule.recompute.clear();
            Splitter again(model_, following, out, *own);
            plain |= consider(again, std::move(cuts), out, *own) && !again.recomputes();
        }
        // Spreading more of what fits already only adds exchanges.
        if (plain && zero >= 1 && !exhaustive_) return;
    }
}

void PointSearch::polish(RankedPlan& plan) {
    const LaidOut out = lay_out(model_.cluster(), plan.point.mesh(), plan.point.layout);
    if (plan.point.stages() == 1 || !freedom_.splitting) return;
    std::unique_ptr<ReadySchedule> owned;
    ReadySchedule* ready = model_.schedule_of(plan.point, out, owned);
    if (!ready) return;
    best_ = plan;
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t c = 0; c < plan.point.cuts.size(); ++c)
            for (const int by : {-1, 1}) {
                const double before = best_->cost.time;
                std::vector<int> cuts = best_->point.cuts;
                cuts[c] += by;
                const int low = c == 0 ? 0 : cuts[c - 1],
                          high = c + 1 == cuts.size() ? model_.chain().blocks() : cuts[c + 1];
                if (cuts[c] <= low || cuts[c] >= high) continue;
                Splitter splitter(model_, best_->point, out, *ready);
                consider(splitter, std::move(cuts), out, *ready);
                moved |= best_->cost.time < before * (1 - 1e-9);
            }
    }
    if (follows_costs(plan.point.schedule.family)) { // then the order follows the cuts, too
        const PlanPoint point = std::exchange(best_, plan)->point;
        std::unique_ptr<ReadySchedule> other;
        if (ReadySchedule* own = model_.schedule_of(point, out, other)) {
            Splitter again(model_, point, out, *own);
            consider(again, point.cuts, out, *own);
        }
    }
    std::string name = std::move(plan.name);
    plan = *take();
    plan.name = std::move(name);
}

namespace {

// A scaling with a schedule, and what it may reach: its work, the schedule's idle time with equal stages, the update.
struct Trial {
    std::size_t candidate = 0;
    ScheduleParameters schedule{};
    double estimate = 0;
};

std::vector<Trial> trials_of(PlanModel& model, std::span<const ScalingCandidate> candidates, const Freedom& freedom,
                             bool following_costs) {
    std::vector<Trial> trials;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
        const ScalingCandidate& one = candidates[c];
        const int pipe = one.point.pipe;
        for (ScheduleParameters& p :
             schedule_menu(pipe, static_cast<int>(one.micro_batches), model.chain().blocks(), following_costs)) {
            if (!freedom.families.empty() && std::ranges::find(freedom.families, p.family) == freedom.families.end())
                continue;
            const double idle = model.schedules().idle_coefficient(p) * one.pass * (pipe - 1) / pipe;
            trials.push_back({c, std::move(p), one.bound + idle + one.update});
        }
    }
    // Of equal promise, the one with the smaller exchange first.
    std::ranges::stable_sort(trials, [&](const Trial& a, const Trial& b) {
        return std::pair(a.estimate, candidates[a.candidate].exchange) <
               std::pair(b.estimate, candidates[b.candidate].exchange);
    });
    return trials;
}

} // namespace

SearchResult search(PlanModel& model, const SearchOptions& options) {
    SearchResult result;
    const std::vector<ScalingCandidate> candidates = scaling_candidates(model, options.freedom);
    std::vector<LaidOut> laid_out;
    result.progress.bound = candidates.empty() ? 0 : std::numeric_limits<double>::infinity();
    for (const ScalingCandidate& one : candidates) {
        result.progress.bound = std::min(result.progress.bound, one.bound);
        laid_out.push_back(lay_out(model.cluster(), one.point.mesh(), one.point.layout));
    }
    constexpr std::size_t few = 64;     // so many are tried with everything
    constexpr std::size_t followed = 8; // so many of more, with schedules that take long to make
    constexpr double slack = 0.99;      // unequal stages may suit a schedule better than equal ones
    const bool exhaustive = candidates.size() <= few && options.freedom.listed.empty();
    PointSearch points(model, options.freedom, result, exhaustive);
    std::vector<std::pair<std::size_t, RankedPlan>> found; // by candidate
    double best = std::numeric_limits<double>::infinity();
    for (const RankedPlan& plan : options.known) best = std::min(best, plan.cost.time);
    if (!options.known.empty()) result.progress.best = best;
    auto by_time = [](const auto& a, const auto& b) { return a.second.cost.time < b.second.cost.time; };
    bool stopped = false;
    auto run = [&](const std::vector<Trial>& trials) {
        result.progress.trials += trials.size();
        for (const Trial& trial : trials) {
            if (stopped || (!exhaustive && slack * trial.estimate >= best)) return;
            const ScalingCandidate& candidate = candidates[trial.candidate];
            ++result.progress.done;
            if (candidate.bound >= best) continue;
            points.try_schedule(candidate.point, laid_out[trial.candidate], trial.schedule, best);
            if (std::optional<RankedPlan> plan = points.take()) {
                best = std::min(best, plan->cost.time);
                result.progress.best = best;
                found.emplace_back(trial.candidate, std::move(*plan));
            }
            if (options.listener) stopped = !options.listener(result.progress);
        }
    };
    run(trials_of(model, candidates, options.freedom, false));
    std::ranges::stable_sort(found, by_time);
    std::vector<std::size_t> next;
    for (const auto& [number, plan] : found)
        if (next.size() < followed && std::ranges::find(next, number) == next.end()) next.push_back(number);
    if (exhaustive || next.empty()) {
        next.clear();
        for (std::size_t c = 0; c < std::min(few, candidates.size()); ++c) next.push_back(c);
    }
    std::vector<Trial> following = trials_of(model, candidates, options.freedom, true);
    std::erase_if(following,
                  [&](const Trial& trial) { return std::ranges::find(next, trial.candidate) == next.end(); });
    run(following);
    std::ranges::stable_sort(found, by_time);
    for (std::size_t f = 0; f < std::min<std::size_t>(3, found.size()) && !stopped; ++f) points.polish(found[f].second);
    std::ranges::stable_sort(found, by_time);
    for (const RankedPlan& plan : options.known) found.emplace_back(0, plan);
    std::ranges::stable_sort(found, by_time);
    for (auto& [number, plan] : found) {
        const bool known = std::ranges::any_of(result.best, [&](const RankedPlan& other) {
            return other.point.mesh() == plan.point.mesh() && other.point.micro_batch == plan.point.micro_batch &&
                   other.point.schedule.family == plan.point.schedule.family;
        });
        if (!known && result.best.size() < options.kept) result.best.push_back(std::move(plan));
    }
    if (!result.best.empty()) result.progress.best = result.best.front().cost.time;
    return result;
}

} // namespace tutti
