#include "planner/search.h"

#include "base/error.h"
#include "planner/scaling.h"
#include "schedule/families.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

constexpr int few_cuts = 64;             // so many are all tried
constexpr std::size_t most_noted = 20'000; // searched points

} // namespace

std::vector<ScheduleParameters> schedule_menu(int ranks, int micro_batches, int blocks, bool following_costs) {
    std::vector<ScheduleParameters> menu;
    auto add = [&](const char* family, int stages = 0, int in_flight = 0) {
        ScheduleParameters p{.family = family, .ranks = ranks, .micro_batches = micro_batches};
        p.stages_per_rank = stages;
        p.in_flight = in_flight;
        if (std::max(1, stages) * ranks <= blocks) menu.push_back(p);
    };
    if (ranks == 1) {
        if (!following_costs) add("1f1b");
        return menu;
    }
    if (!following_costs) {
        for (const char* family : {"1f1b", "zb-1p", "zb-2p", "early-recompute", "last-stage-without-recompute"})
            add(family);
        if (micro_batches <= 2 * ranks) add("gpipe");
        for (int stages : {2, 3, 4, 6, 8}) add("interleaved", stages);
        for (const char* family : {"zb-v", "dualpipe-v"}) add(family, 2);
        for (const char* family : {"dualpipe", "chimera"}) add(family);
        for (int stages : {2, 4}) add("hanayo", stages);
        return menu;
    }
    for (const char* family : {"mixpipe", "shifted-critical-path"}) add(family);
    for (const char* family : {"v-half", "v-min"}) add(family, 2);
    // Greedy, with one stage or two as a wave, split, and more or fewer micro-batches in flight.
    for (const bool wave : {false, true})
        for (const int k : {(ranks + 2) / 3, (ranks + 1) / 2, 3 * ranks / 4, ranks, 3 * ranks / 2, 2 * ranks}) {
            if (k < 1 || k > micro_batches) continue;
            add("greedy", wave ? 2 : 1, k);
            if (menu.empty() || menu.back().family != "greedy" || menu.back().in_flight != k) continue;
            menu.back().split_backward = true;
            if (wave) menu.back().placement = StagePlacement::wave;
        }
    return menu;
}

void PointSearch::consider(Splitter& splitter, std::vector<int> cuts, const LaidOut& out, ReadySchedule& ready) {
    const bool fits = splitter.complete(std::move(cuts));
    const PlanPoint& point = splitter.point();
    ++result_.progress.plans;
    PlanCost cost = model_.evaluate(point, out, ready);
    const double margin = cost.tightest().margin();
    if (!fits || margin < 0) {
        if (!result_.closest || margin > result_.closest->cost.tightest().margin())
            result_.closest = RankedPlan{"closest", point, std::move(cost)};
        return;
    }
    if (result_.searched.size() < most_noted)
        result_.searched.push_back({cost.time, cost.tightest().total(), point.schedule.family, describe(point)});
    if (!best_ || cost.time < best_->cost.time) best_ = RankedPlan{"", point, std::move(cost)};
}

void PointSearch::try_schedule(PlanPoint point, const LaidOut& out, const ScheduleParameters& parameters) {
    if (!freedom_.families.empty() && std::ranges::find(freedom_.families, parameters.family) == freedom_.families.end())
        return;
    std::optional<ScheduleParameters> resolved;
    try {
        resolved = resolve(parameters);
    } catch (const Error&) { // the family does not take these numbers
        return;
    }
    if (resolved->stages() > model_.chain().blocks()) return;
    point.schedule = *resolved;
    const bool follows = follows_costs(parameters.family);
    const int spread = point.data * resolved->copies;
    for (int zero = 0; zero <= (spread > 1 ? 3 : 0); ++zero) {
        point.zero = zero;
        // A schedule that follows costs needs a split to follow, and a split needs a schedule: one of equal stages.
        std::unique_ptr<ReadySchedule> nominal;
        ReadySchedule* ready = nullptr;
        if (follows) {
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
        for (std::vector<int>& cuts : splits) {
            if (!follows) {
                consider(splitter, std::move(cuts), out, *ready);
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
            consider(again, std::move(cuts), out, *own);
        }
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
    std::string name = std::move(plan.name);
    plan = *take();
    plan.name = std::move(name);
}

SearchResult search(PlanModel& model, const SearchOptions& options) {
    SearchResult result;
    std::vector<ScalingCandidate> candidates = scaling_candidates(model, options.freedom);
    result.progress.scalings = candidates.size();
    result.progress.bound = std::numeric_limits<double>::infinity();
    for (const ScalingCandidate& one : candidates) result.progress.bound = std::min(result.progress.bound, one.bound);
    if (candidates.empty()) result.progress.bound = 0;

    PointSearch points(model, options.freedom, result);
    std::vector<std::pair<std::size_t, RankedPlan>> found; // by candidate
    double best = std::numeric_limits<double>::infinity();
    auto visit = [&](std::size_t number, bool following_costs) {
        const ScalingCandidate& candidate = candidates[number];
        const LaidOut out = lay_out(model.cluster(), candidate.point.mesh(), candidate.point.layout);
        for (const ScheduleParameters& parameters :
             schedule_menu(candidate.point.pipe, static_cast<int>(candidate.micro_batches), model.chain().blocks(),
                           following_costs))
            points.try_schedule(candidate.point, out, parameters);
        if (std::optional<RankedPlan> plan = points.take()) {
            best = std::min(best, plan->cost.time);
            result.progress.best = best;
            found.emplace_back(number, std::move(*plan));
        }
    };
    auto go_on = [&] {
        ++result.progress.done;
        return !options.listener || options.listener(result.progress);
    };
    bool stopped = false;
    for (std::size_t c = 0; c < candidates.size() && !stopped; ++c) {
        if (candidates[c].bound < best) visit(c, false);
        stopped = !go_on();
    }
    // Schedules that follow costs take long to make: for the scalings that are best without them, and all if few.
    auto by_time = [](const auto& a, const auto& b) { return a.second.cost.time < b.second.cost.time; };
    std::ranges::stable_sort(found, by_time);
    constexpr std::size_t followed = 8, few = 64;
    std::vector<std::size_t> next;
    if (candidates.size() <= few)
        for (std::size_t c = 0; c < candidates.size(); ++c) next.push_back(c);
    else
        for (std::size_t f = 0; f < std::min(followed, found.size()); ++f) next.push_back(found[f].first);
    if (found.empty() && candidates.size() > few)
        for (std::size_t c = 0; c < std::min(followed, candidates.size()); ++c) next.push_back(c);
    for (std::size_t number : next)
        if (!stopped && candidates[number].bound < best) visit(number, true);
    std::ranges::stable_sort(found, by_time);
    for (std::size_t f = 0; f < std::min<std::size_t>(3, found.size()) && !stopped; ++f) points.polish(found[f].second);
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
