#include "planner/strategies/compiled.h"

#include "base/error.h"
#include "compile/memory_use.h"
#include "planner/strategies/baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tutti::planner::strategies {
namespace {

class Compiler {
  public:
    Compiler(const StrategyModel& model, const Graph& forward, const Plan& one)
        : model_(model), forward_(forward), one_(one) {}

    void add(std::string name, const Solution& solution, std::optional<double> epsilon = {}) {
        CompiledPlan compiled{.name = std::move(name),
                              .epsilon = epsilon,
                              .plan = one_,
                              .solution = solution,
                              .predicted = model_.outcome(solution)};
        compiled.plan.strategies = model_.operator_strategies(solution);
        const auto same = std::ranges::find_if(
            plans_, [&](const CompiledPlan& other) { return other.plan.strategies == compiled.plan.strategies; });
        if (same == plans_.end()) {
            compile(compiled);
        } else {
            compiled.program = same->program;
            compiled.reason = same->reason;
        }
        plans_.push_back(std::move(compiled));
    }
    void add_default(std::string name, bool sequence_parallel) {
        CompiledPlan compiled{.name = std::move(name), .plan = one_};
        compiled.plan.sequence_parallel = sequence_parallel;
        compile(compiled);
        plans_.push_back(std::move(compiled));
    }
    void add_impossible(std::string name, std::string reason) {
        plans_.push_back({.name = std::move(name), .plan = one_, .reason = std::move(reason)});
    }
    std::vector<CompiledPlan> take() { return std::move(plans_); }

  private:
    void compile(CompiledPlan& compiled) const {
        try {
            const compile::MemoryUse use = compile::memory_use_of(forward_, compiled.plan, 0);
            // A stage by itself has one micro-batch at a time; one of a pipeline has a slot for each in flight.
            compiled.program = use.total() + (model_.options().in_flight - 1) * use.slots;
        } catch (const Error& error) { // the model cannot be split like that
            compiled.reason = error.what();
        }
    }

    const StrategyModel& model_;
    const Graph& forward_;
    const Plan& one_;
    std::vector<CompiledPlan> plans_{};
};

double seconds_of(const CompiledPlan& plan) {
    return plan.predicted ? plan.predicted->time.count : std::numeric_limits<double>::infinity();
}

bool keeps_to(const CompiledPlan& plan, std::optional<Bytes> most) {
    return plan.program && (!most || *plan.program <= *most);
}

// Of equally fast ones the smaller, of equal ones the first.
const CompiledPlan* fastest_within(std::span<const CompiledPlan> plans, std::optional<Bytes> most) {
    const CompiledPlan* fastest = nullptr;
    for (const CompiledPlan& plan : plans)
        if (keeps_to(plan, most) && (fastest == nullptr || std::pair(seconds_of(plan), *plan.program) <
                                                               std::pair(seconds_of(*fastest), *fastest->program)))
            fastest = &plan;
    return fastest;
}

} // namespace

std::vector<CompiledPlan> compiled_plans(const StrategyModel& model, const StagesResult& found, const Graph& forward,
                                         const Plan& one) {
    Compiler compiler(model, forward, one);
    for (const ParetoPoint& point : found.points)
        compiler.add(fmt::format("epsilon {:.3g}", point.epsilon), point.solution, point.epsilon);
    for (const Baseline& baseline : baselines(model)) {
        if (baseline.solution)
            compiler.add(baseline.name, *baseline.solution);
        else
            compiler.add_impossible(baseline.name, baseline.reason);
    }
    compiler.add_default(default_name, true);
    compiler.add_default(std::string(default_name) + ", norms whole", false);
    return compiler.take();
}

const CompiledPlan* least_of(std::span<const CompiledPlan> plans) {
    const CompiledPlan* least = nullptr;
    for (const CompiledPlan& plan : plans)
        if (plan.program && (least == nullptr || *plan.program < *least->program)) least = &plan;
    return least;
}

const CompiledPlan* choose(std::span<const CompiledPlan> plans, double epsilon, std::optional<Bytes> cap) {
    const CompiledPlan *least = least_of(plans), *fastest = fastest_within(plans, cap);
    if (fastest == nullptr) return nullptr;
    const double more = epsilon * static_cast<double>((*fastest->program - *least->program).count);
    return fastest_within(plans, *least->program + Bytes{static_cast<std::int64_t>(std::floor(more))});
}

} // namespace tutti::planner::strategies
