#include "planner/pareto_strategies.h"

#include "base/error.h"
#include "compile/graphs/step_graph.h"
#include "planner/strategies/model.h"
#include "planner/strategies/stages.h"

#include <algorithm>
#include <limits>

namespace tutti::planner {
namespace {

constexpr std::size_t most_pairs = 2; // widths with a micro-batch, whose lists are made

// What an entry costs a rank, as far as that tells entries apart.
struct Price {
    double seconds = 0, elements = 0, stash = 0, transient = 0;

    bool dominates(const Price& other) const {
        constexpr double same = 1 + 1e-4;
        return seconds <= other.seconds * same && elements <= other.elements * same && stash <= other.stash * same &&
               transient <= other.transient * same;
    }
};

// Names of the sample's layers are those of the model's only as patterns.
bool is_for_all_layers(const sharding::OperatorStrategies& strategies) {
    return std::ranges::all_of(strategies.operators, [](const sharding::OperatorStrategy& one) {
        return one.name.source == sharding::layer_pattern(one.name.source);
    });
}

class ParetoEntries {
  public:
    ParetoEntries(PlanModel& model, int tensor, std::int64_t micro_batch, double slowest)
        : model_(model),
          slowest_(slowest), decisions_{.tensor_parallel = {.ranks = tensor}, .micro_batch = micro_batch},
          shape_(place_ranks(model.cluster(), decisions_.mesh(), usual_layout(model.cluster(), decisions_.mesh()))
                     .shapes) {}

    std::vector<TensorParallelism> run() {
        std::vector<std::pair<TensorParallelism, Price>> kept;
        try {
            const Price usual = price_of(decisions_.tensor_parallel);
            for (sharding::OperatorStrategies& strategies : solved()) {
                if (!is_for_all_layers(strategies)) continue;
                TensorParallelism one = decisions_.tensor_parallel;
                one.strategies = model_.segments().add_strategies(std::move(strategies));
                const auto there = std::ranges::find(kept, one, &std::pair<TensorParallelism, Price>::first);
                if (there == kept.end() && splits_ties(one)) consider(one, usual, kept);
            }
        } catch (const Error&) { // the model cannot be split like that
        }
        std::vector<TensorParallelism> list;
        for (const auto& [one, price] : kept) list.push_back(one);
        return list;
    }

  private:
    std::vector<sharding::OperatorStrategies> solved() const {
        const PlannerWorkload& workload = model_.workload();
        models::Model sample =
            model_.chain().sample.build({decisions_.micro_batch, model_.chain().sequence, workload.precision.compute});
        const Graph step = compile::differentiated(std::move(sample.graph), false);
        strategies::ModelOptions options;
        options.axes = {decisions_.tensor_parallel.ranks};
        options.precision = workload.precision;
        // As in a pipeline of a few ranks.
        options.in_flight = std::min<std::int64_t>(4, model_.micro_batches(1, decisions_.micro_batch));
        options.micro_batches = 2 * options.in_flight;
        const strategies::StrategyModel strategies(step, model_.costs(), options);
        strategies::StagesOptions few;
        few.solver = strategies::Solver::elimination;
        few.elimination = {.most_cells = 1e6, .most_entries = 4e6};
        few.epsilons = {0, 0.1, 0.35, 1};
        const strategies::StagesResult found = strategies::solve_stages(strategies.problem(), few);
        std::vector<sharding::OperatorStrategies> list;
        const auto fastest = static_cast<double>(found.points.back().solution.time);
        for (const strategies::ParetoPoint& entry : found.points)
            if (static_cast<double>(entry.solution.time) <= slowest_ * fastest)
                list.push_back(strategies.operator_strategies(entry.solution));
        return list;
    }

    const ChainFigures& figures_of(const TensorParallelism& tensor_parallel) const {
        PlanDecisions decisions = decisions_;
        decisions.tensor_parallel = tensor_parallel;
        return model_.segments().figures(model_.key_of(decisions, BackwardStyle::whole, false), shape_, 0);
    }

    Price price_of(const TensorParallelism& tensor_parallel) const {
        const StageFigures all = figures_of(tensor_parallel).stage(0, model_.chain().blocks());
        Price price{.elements = all.elements, .stash = all.slot(Region::stash), .transient = all.transient};
        for (double seconds : all.seconds) price.seconds += seconds;
        return price;
    }

    // A tied tensor counts as split over all ranks wherever stages share it. The last block that reads one has hardly
    // anything else.
    bool splits_ties(const TensorParallelism& tensor_parallel) const {
        return std::ranges::all_of(model_.chain().ties, [&](const TiedTensor& tie) {
            const int last = tie.blocks.back();
            return figures_of(tensor_parallel).stage(last, last + 1).elements <
                   0.999 * static_cast<double>(tie.elements);
        });
    }

    void consider(const TensorParallelism& one, const Price& usual,
                  std::vector<std::pair<TensorParallelism, Price>>& kept) const {
        const Price price = price_of(one);
        if (usual.dominates(price)) return;
        if (std::ranges::any_of(kept, [&](const auto& other) { return other.second.dominates(price); })) return;
        std::erase_if(kept, [&](const auto& other) { return price.dominates(other.second); });
        kept.emplace_back(one, price);
    }

    PlanModel& model_;
    double slowest_;
    PlanDecisions decisions_;
    GroupShapes shape_;
};

// Whether it could be faster than the best plan if no rank ever waited.
bool may_win(PlanModel& model, int tensor, std::int64_t micro_batch, const SearchResult& found) try {
    if (found.best.empty()) return true;
    const PlanDecisions decisions{.tensor_parallel = {.ranks = tensor}, .micro_batch = micro_batch};
    const GroupShapes shapes =
        place_ranks(model.cluster(), decisions.mesh(), usual_layout(model.cluster(), decisions.mesh())).shapes;
    double pass = std::numeric_limits<double>::infinity(); // of a micro-batch, on the fastest devices
    for (int kind = 0; kind < static_cast<int>(model.cluster().kinds.size()); ++kind) {
        const StageFigures all = model.segments()
                                     .figures(model.key_of(decisions, BackwardStyle::whole, false), shapes, kind)
                                     .stage(0, model.chain().blocks());
        double computing = 0;
        for (std::size_t i = 0; i < stage_part_count; ++i) computing += all.seconds[i] - all.exposed[i];
        pass = std::min(pass, computing);
    }
    const double groups = static_cast<double>(model.cluster().device_count()) / tensor;
    return pass * static_cast<double>(model.micro_batches(1, micro_batch)) / groups < found.best.front().cost.time;
} catch (const Error&) { // the model cannot be split so far
    return false;
}

// Of the best plans, then of whole nodes with the micro-batch of the best; where nothing fits, of what comes closest.
std::vector<std::pair<int, std::int64_t>> promising_pairs(PlanModel& model, const SearchResult& found) {
    std::vector<std::pair<int, std::int64_t>> pairs;
    auto add = [&](int tensor, std::int64_t micro_batch) {
        const std::pair pair(tensor, micro_batch);
        if (tensor > 1 && pairs.size() < most_pairs && std::ranges::find(pairs, pair) == pairs.end() &&
            may_win(model, tensor, micro_batch, found))
            pairs.push_back(pair);
    };
    std::vector<const PlanDecisions*> candidates;
    for (const RankedPlan& plan : found.best) candidates.push_back(&plan.decisions);
    if (candidates.empty() && found.closest) candidates.push_back(&found.closest->decisions);
    for (const PlanDecisions* decisions : candidates) {
        add(decisions->tensor_parallel.ranks, decisions->micro_batch);
        if (decisions == candidates.front()) add(model.cluster().levels.front().size, decisions->micro_batch);
    }
    return pairs;
}

} // namespace

std::vector<TensorParallelism> pareto_strategies(PlanModel& model, int tensor, std::int64_t micro_batch,
                                                 double slowest) {
    return ParetoEntries(model, tensor, micro_batch, slowest).run();
}

void search_pareto_strategies(PlanModel& model, const SearchOptions& options, SearchResult& found) {
    // What fits already can be slower by a recomputation at most. The best plan's schedule is as good for a list's.
    const double slowest = found.best.empty() ? std::numeric_limits<double>::infinity() : 1.4;
    std::vector<std::string> families;
    if (!found.best.empty()) families = {"1f1b", found.best.front().decisions.schedule.family};
    bool stopped = false;
    auto listener = [&](const SearchProgress& progress) { return !(stopped = !options.listener(progress)); };
    for (const auto& [tensor, micro_batch] : promising_pairs(model, found))
        for (const TensorParallelism& one : pareto_strategies(model, tensor, micro_batch, slowest)) {
            if (stopped) return;
            SearchOptions again = options;
            if (again.space.families.empty()) again.space.families = families;
            if (options.listener) again.listener = listener;
            again.space.tensor_parallel = {{one, micro_batch}};
            again.known.clear();
            if (!found.best.empty()) again.known = {found.best.front()};
            try {
                SearchResult with = search(model, again);
                found.progress.plans += with.progress.plans;
                found.searched.insert(found.searched.end(), with.searched.begin(), with.searched.end());
                for (RankedPlan& plan : with.best)
                    if (plan.decisions.tensor_parallel.strategies > 0 &&
                        (found.best.empty() || plan.cost.time < found.best.front().cost.time))
                        found.best.insert(found.best.begin(), std::move(plan));
                if (!with.best.empty() || !with.closest) continue;
                if (!found.closest || with.closest->cost.tightest().margin() > found.closest->cost.tightest().margin())
                    found.closest = std::move(with.closest);
            } catch (const Error&) { // some part of a plan cannot be compiled with it
            }
        }
    if (found.best.size() > options.kept) found.best.resize(options.kept);
    if (!found.best.empty()) found.progress.best = found.best.front().cost.time;
}

} // namespace tutti::planner
