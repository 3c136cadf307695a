#include "planner/joint.h"

#include "base/error.h"
#include "planner/offload_search.h"
#include "planner/pareto_strategies.h"
#include "planner/predict.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace tutti::planner {
namespace {

// What another search evaluated counts, too.
void count(SearchResult& all, SearchResult& with) {
    all.progress.plans += with.progress.plans;
    all.searched.insert(all.searched.end(), std::make_move_iterator(with.searched.begin()),
                        std::make_move_iterator(with.searched.end()));
}

// The best plan of one scaling that fits, as a person would have it.
std::optional<RankedPlan> set_by_hand(PlanModel& model, PlanDecisions scaling, std::vector<std::string> families,
                                      std::optional<Zero> zero, const ProgressListener& listener, SearchResult& all) {
    SearchOptions options;
    options.kept = 1;
    options.listener = listener;
    options.space = {.families = std::move(families), .splitting = false, .assignment = false, .scaling = scaling};
    options.space.zero = zero;
    SearchResult found = search(model, options);
    count(all, found);
    if (found.best.empty()) return std::nullopt;
    return std::move(found.best.front());
}

void keep_faster(std::optional<RankedPlan>& best, std::optional<RankedPlan> other) {
    if (other && (!best || other->cost.time < best->cost.time)) best = std::move(other);
}

// Replicas on the devices that are left, as many as divide the batch.
int replicas_on(const PlanModel& model, int devices) {
    const std::int64_t batch = model.workload().global_batch;
    for (std::int64_t data = std::min<std::int64_t>(devices, batch); data > 1; --data)
        if (batch % data == 0) return static_cast<int>(data);
    return 1;
}

struct ByHand {
    PlanModel& model;
    const ProgressListener& listener;
    SearchResult& all;
    std::vector<RankedPlan> plans{};

    void add(std::string name, std::optional<RankedPlan> plan) {
        if (!plan) return;
        plan->name = std::move(name);
        plans.push_back(std::move(*plan));
    }

    std::optional<RankedPlan> best_micro_batch(const PlanDecisions& scaling, const std::vector<std::string>& families,
                                               std::optional<Zero> zero = {}, std::int64_t largest = 4) {
        std::optional<RankedPlan> best;
        for (std::int64_t b = 1; b <= largest; b *= 2) {
            PlanDecisions decisions = scaling;
            decisions.micro_batch = b;
            if (model.workload().global_batch % (b * decisions.data) == 0)
                keep_faster(best, set_by_hand(model, decisions, families, zero, listener, all));
        }
        return best;
    }

    void megatron() {
        const costs::Cluster& cluster = model.cluster();
        int node = cluster.levels.front().size;
        for (const costs::NodeKind& kind : cluster.kinds) node = std::min(node, kind.devices);
        const int devices = cluster.device_count();
        for (int pipe = 1; pipe <= std::min(model.chain().blocks(), devices / node); ++pipe) {
            if (devices % (node * pipe) != 0) continue;
            PlanDecisions scaling{.tensor_parallel = {.ranks = node}, .pipe = pipe};
            scaling.data = replicas_on(model, devices / node / pipe);
            std::optional<RankedPlan> plain = best_micro_batch(scaling, {"1f1b"}, scaling.data > 1 ? 1 : 0);
            if (!plain) continue;
            add("Megatron, 1F1B", plain);
            if (pipe > 1) {
                add("Megatron, interleaved", best_micro_batch(scaling, {"interleaved"}, scaling.data > 1 ? 1 : 0));
                std::optional<RankedPlan> merak = best_micro_batch(scaling, {"shifted-critical-path"}, 0);
                if (node > 1) {
                    scaling.tensor_parallel.sub_pipeline = true;
                    keep_faster(merak, best_micro_batch(scaling, {"shifted-critical-path"}, 0));
                }
                add("Merak", std::move(merak));
            }
            return;
        }
    }

    // Without a pipeline, a larger micro-batch costs nothing but memory.
    void data_parallel() {
        PlanDecisions scaling;
        scaling.data = replicas_on(model, model.cluster().device_count());
        if (scaling.data == 1) return;
        const auto elements = static_cast<double>(model.chain().all_parameters);
        const auto memory = static_cast<double>(model.cluster().largest_memory().count);
        for (const Zero zero : zero_stages(scaling.data))
            if (model.least_chunk_bytes(elements, zero, scaling.data, 1).total() <= memory)
                add(zero.shards_states() ? fmt::format("ZeRO {}", zero.stage()) : "DDP",
                    best_micro_batch(scaling, {"1f1b"}, zero, largest_micro_batch));
    }
};

bool is_same(const PlanDecisions& a, const PlanDecisions& b) { return a == b; }

// The same by another name: schedules that come to one order of tasks.
bool is_alike(const RankedPlan& a, const RankedPlan& b) {
    return a.decisions.mesh() == b.decisions.mesh() && a.decisions.micro_batch == b.decisions.micro_batch &&
           a.decisions.zero == b.decisions.zero && a.decisions.cuts == b.decisions.cuts &&
           a.decisions.tensor_parallel == b.decisions.tensor_parallel &&
           std::abs(a.cost.time - b.cost.time) <= 1e-9 * a.cost.time &&
           std::abs(a.cost.tightest().total() - b.cost.tightest().total()) < 1;
}

void remove_alike(std::vector<RankedPlan>& plans) {
    std::vector<RankedPlan> different;
    for (RankedPlan& plan : plans)
        if (std::ranges::none_of(different, [&](const RankedPlan& one) { return is_alike(one, plan); }))
            different.push_back(std::move(plan));
    plans = std::move(different);
}

void insert_by_time(std::vector<RankedPlan>& plans, const RankedPlan& plan) {
    if (std::ranges::any_of(plans, [&](const RankedPlan& one) { return is_same(one.decisions, plan.decisions); }))
        return;
    plans.insert(
        std::ranges::upper_bound(plans, plan.cost.time, {}, [](const RankedPlan& one) { return one.cost.time; }), plan);
}

} // namespace

std::vector<RankedPlan> plans_by_hand(PlanModel& model, const ProgressListener& listener, SearchResult& all) {
    ByHand by_hand{model, listener, all};
    try {
        by_hand.megatron();
    } catch (const Error&) { // the model cannot be split over a whole node
    }
    by_hand.data_parallel();
    return std::move(by_hand.plans);
}

std::optional<RankedPlan> plan_in_stages(PlanModel& model, const ProgressListener& listener, SearchResult& all) {
    SearchSpace space{.families = {"1f1b"}, .splitting = false, .assignment = false};
    auto next = [&] {
        SearchOptions options;
        options.space = space;
        options.kept = 1;
        options.listener = listener;
        SearchResult found = search(model, options);
        count(all, found);
        return found.best.empty() ? std::nullopt : std::optional(std::move(found.best.front()));
    };
    std::optional<RankedPlan> plan = next(); // scaling
    if (!plan) return std::nullopt;
    space.scaling = plan->decisions;
    space.splitting = true;
    keep_faster(plan, next());
    space.families.clear();
    keep_faster(plan, next());
    space.families = {plan->decisions.schedule.family};
    space.assignment = true;
    keep_faster(plan, next());
    plan->name = "one after the other";
    return plan;
}

std::vector<RankedPlan> ablations(PlanModel& model, const RankedPlan& staged, const ProgressListener& listener,
                                  SearchResult& all) {
    std::vector<RankedPlan> plans;
    auto add = [&](const char* name, SearchSpace space) {
        SearchOptions options;
        options.space = std::move(space);
        options.kept = 1;
        options.listener = listener;
        SearchResult found = search(model, options);
        count(all, found);
        if (found.best.empty()) return;
        found.best.front().name = name;
        plans.push_back(std::move(found.best.front()));
    };
    add("without scaling", {.scaling = staged.decisions});
    add("without splitting", {.splitting = false});
    add("without scheduling", {.families = {"1f1b"}});
    add("without assignment", {.assignment = false});
    return plans;
}

namespace {

// A search tries orders of tasks that are near to what a plan is written with: that follows the costs which the plan
// came to. What is told of plans is what their files say; those that need too much so are left out.
void predict_as_written(PlanModel& model, std::vector<RankedPlan>& plans, std::optional<RankedPlan>& closest) {
    std::vector<RankedPlan> fitting;
    for (RankedPlan& plan : plans) {
        // What is offloaded has the order of 1F1B, whatever the costs, and takes long to evaluate.
        if (!plan.decisions.offload) plan.cost = predict(model, plan_of(model, plan.decisions));
        if (plan.cost.fits())
            fitting.push_back(std::move(plan));
        else if (!closest)
            closest = std::move(plan);
    }
    plans = std::move(fitting);
}

void search_offloaded(PlanModel& model, const SearchSpace& space, SearchResult& found,
                      const ProgressListener& listener) {
    const double best = found.best.empty() ? std::numeric_limits<double>::infinity() : found.best.front().cost.time;
    const SearchResult offloaded = plans_with_offload(model, space, best, listener);
    for (const RankedPlan& plan : offloaded.best) insert_by_time(found.best, plan);
    found.progress.trials += offloaded.best.size();
    found.progress.plans += offloaded.progress.plans;
}

// Half of the nodes, half of those, and of the last one half of its devices. (Of nodes that differ, the search itself
// leaves out the slow ones.)
std::vector<int> fewer_devices(const costs::Cluster& cluster) {
    std::vector<int> counts;
    if (cluster.kinds.size() > 1) return counts;
    const int node = cluster.kinds.front().devices;
    for (auto nodes = static_cast<int>(cluster.nodes.size()); nodes > 1;) {
        nodes = (nodes + 1) / 2;
        counts.push_back(nodes * node);
    }
    for (int devices = node / 2; devices > 0; devices /= 2) counts.push_back(devices);
    return counts;
}

// Communication grows with the number of devices, so fewer of them may be faster for a small batch. Returns how many,
// if they are.
std::optional<int> search_fewer_devices(PlanModel& model, SearchOptions options, SearchResult& found) {
    const int all = model.cluster().device_count();
    std::optional<int> fastest;
    for (const int devices : fewer_devices(model.cluster())) {
        const double best = found.best.empty() ? std::numeric_limits<double>::infinity() : found.best.front().cost.time;
        if (found.progress.bound * all / devices >= best) break; // and so for all that follow
        options.space.devices = devices;
        options.known = found.best;
        SearchResult with = search(model, options);
        found.best = std::move(with.best);
        count(found, with);
        if (!found.best.empty() && found.best.front().cost.time < best) fastest = devices;
        if (with.stopped) break;
    }
    return fastest;
}

// Tries micro-batch halves where the waiting for tensor-parallel collectives is noticeable.
void search_sub_pipelines(PlanModel& model, const SearchSpace& space, SearchResult& found,
                          const ProgressListener& listener) {
    std::vector<RankedPlan> halves;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, found.best.size()); ++i) {
        const RankedPlan& plan = found.best[i];
        for (const std::int64_t size : {plan.decisions.micro_batch, 2 * plan.decisions.micro_batch}) {
            PlanDecisions decisions = plan.decisions;
            decisions.micro_batch = size;
            if (decisions.tensor_parallel.ranks == 1 || decisions.offload || size % 2 != 0 ||
                size != space.micro_batch.value_or(size) ||
                model.workload().global_batch % (size * decisions.data) != 0)
                continue;
            decisions.tensor_parallel.sub_pipeline = true;
            SearchOptions again{.space = {.scaling = decisions}, .kept = 1, .listener = listener};
            again.space.families = {plan.decisions.schedule.family};
            again.space.zero = plan.decisions.zero;
            SearchResult with = search(model, again);
            count(found, with);
            if (!with.best.empty()) halves.push_back(std::move(with.best.front()));
        }
    }
    for (const RankedPlan& plan : halves) insert_by_time(found.best, plan);
}

} // namespace

JointResult plan_jointly(PlanModel& model, const JointOptions& options) {
    JointResult result;
    // What is told is of all searches together.
    SearchProgress known;
    bool stopped = false;
    ProgressListener listener;
    if (options.listener)
        listener = [&](const SearchProgress& now) {
            SearchProgress all = now;
            all.plans += known.plans;
            if (known.best > 0 && (all.best == 0 || known.best < all.best)) all.best = known.best;
            if (known.bound > 0) all.bound = known.bound;
            stopped = stopped || !options.listener(all);
            return !stopped;
        };
    SearchResult by_hand;
    if (options.by_hand) result.by_hand = plans_by_hand(model, listener, by_hand);
    result.search = search(
        model, {.space = options.space, .kept = 3 * options.kept, .known = result.by_hand, .listener = listener});
    count(result.search, by_hand);
    known = result.search.progress;
    SearchResult& found = result.search;
    if (options.offload && !stopped && (found.best.empty() || model.cluster().device_count() <= few_devices))
        search_offloaded(model, options.space, found, listener);
    // No scaling uses most of the devices: a plan by hand for a few of them is not what anyone wants.
    if (found.progress.trials == 0 && !stopped) {
        found.best.clear();
        result.by_hand.clear();
        return result;
    }
    SearchSpace space = options.space;
    if (!stopped && !space.scaling && !space.all_devices)
        space.devices =
            search_fewer_devices(model, {.space = space, .kept = 3 * options.kept, .listener = listener}, found);
    if (!stopped) search_sub_pipelines(model, options.space, found, listener);
    if (options.intra_operator && !space.scaling && !stopped)
        search_pareto_strategies(model, {.space = space, .kept = 3 * options.kept, .listener = listener}, found);
    if (options.compare && !stopped)
        if (std::optional<RankedPlan> staged = plan_in_stages(model, listener, found)) {
            result.compared = ablations(model, *staged, listener, found);
            result.compared.insert(result.compared.begin(), std::move(*staged));
        }
    found.stopped = stopped;
    for (const auto* others : {&result.by_hand, &result.compared})
        for (const RankedPlan& plan : *others)
            if (found.best.empty() || plan.cost.time < found.best.front().cost.time) insert_by_time(found.best, plan);
    remove_alike(found.best);
    if (found.best.size() > options.kept) found.best.resize(options.kept);
    for (auto* plans : {&found.best, &result.by_hand, &result.compared})
        predict_as_written(model, *plans, found.closest);
    std::ranges::stable_sort(found.best, {}, [](const RankedPlan& plan) { return plan.cost.time; });
    if (!found.best.empty()) found.progress.best = found.best.front().cost.time;
    return result;
}

} // namespace tutti::planner
