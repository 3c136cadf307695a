#include "planner/explanation.h"

#include "base/counted.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace tutti::planner {
namespace {

struct Term {
    const char* name;
    double StepTerms::*seconds;
};

constexpr Term terms[] = {{"computing", &StepTerms::compute},
                          {"recomputing", &StepTerms::recompute},
                          {"waiting for collectives", &StepTerms::tensor},
                          {"the bubble", &StepTerms::bubble},
                          {"waiting for messages and gradients", &StepTerms::communication},
                          {"the optimizer", &StepTerms::optimizer},
                          {"waiting for model data", &StepTerms::offloading}};
constexpr std::span<const Term> losses = std::span(terms).subspan(1);

const RankedPlan* fastest_of(const std::vector<RankedPlan>& plans) {
    const auto fastest = std::ranges::min_element(plans, {}, [](const RankedPlan& plan) { return plan.cost.time; });
    return fastest == plans.end() ? nullptr : &*fastest;
}

std::string compared_with(const RankedPlan& rival, const RankedPlan& best) {
    std::string changes;
    for (const Term& term : terms) {
        const double less = rival.cost.terms.*term.seconds - best.cost.terms.*term.seconds;
        if (std::abs(less) < 0.005 * best.cost.time) continue;
        changes += fmt::format("{}{} takes {} {}", changes.empty() ? "" : ", ", term.name,
                               to_string(Seconds{std::abs(less)}), less > 0 ? "less" : "more");
    }
    return fmt::format("It is {:.2f} times as fast as the best plan set by hand ({}): {}.",
                       rival.cost.time / best.cost.time, rival.name,
                       changes.empty() ? "a little of everything" : changes);
}

// What keeps a plan from being faster: its largest loss, and memory.
std::string what_binds(const PlanCost& cost) {
    std::string text = fmt::format("{:.0f}% of the step is computing", 100 * cost.terms.compute / cost.time);
    const Term& largest =
        *std::ranges::max_element(losses, {}, [&](const Term& one) { return cost.terms.*one.seconds; });
    if (const double seconds = cost.terms.*largest.seconds; seconds > 0)
        text += fmt::format("; the largest loss is {} ({:.1f}%)", largest.name, 100 * seconds / cost.time);
    const RankBytes& tight = cost.tightest();
    return text + (tight.margin() < 0.05 * tight.capacity
                       ? "; memory binds: the fullest rank has less than 5% left."
                       : fmt::format("; memory does not bind: every rank has at least {} left.",
                                     to_string(Bytes{static_cast<std::int64_t>(tight.margin())})));
}

std::string scaling_of(PlanModel& model, const PlanDecisions& decisions) {
    const ScalingLaw law = scaling_law(model, decisions);
    const double beta = model.schedules().idle_coefficient(decisions.schedule);
    return fmt::format(
        "Scaling: a micro-batch takes {} through the model, the schedule idles {:.2f} of that, and the gradients "
        "of all of it take {} to reduce: {}.",
        to_string(Seconds{law.tau}), beta, to_string(Seconds{law.gamma}),
        law.replicates(beta) ? "by these, shorter pipelines with more replicas are faster as far as memory lets them"
                             : "by these, longer pipelines with fewer replicas are faster");
}

// Weights, gradients and optimizer states, once; where a micro-batch may be all of a step, the least of them.
double states_of(const PlanModel& model) {
    const bool at_once = model.workload().global_batch <= largest_micro_batch * model.cluster().device_count();
    return model.least_chunk_bytes(static_cast<double>(model.chain().all_parameters), 0, 1, at_once ? 1 : 2).total();
}

// "; 8 or 12 would work"
std::string batches_that_work(const PlanModel& model, const char* what) {
    std::string near;
    for (std::int64_t batch : nearest_batches(model)) near += fmt::format("{}{}", near.empty() ? "" : " or ", batch);
    return near.empty() ? "" : fmt::format("; {} {}", near, what);
}

} // namespace

std::vector<std::string> reasons(PlanModel& model, const JointResult& result) {
    std::vector<std::string> sentences;
    const RankedPlan& best = result.best();
    // Nobody sets by hand what leaves the device.
    const RankedPlan* rival = best.decisions.offload ? nullptr : fastest_of(result.by_hand);
    if (rival && rival->cost.time > best.cost.time) sentences.push_back(compared_with(*rival, best));
    if (const int idle = model.cluster().device_count() - best.decisions.mesh().ranks(); idle > 0)
        sentences.push_back(fmt::format("{} of {} {} nothing to do in this plan.", idle,
                                        counted(model.cluster().device_count(), "device"), idle == 1 ? "has" : "have"));
    sentences.push_back(what_binds(best.cost));
    if (best.decisions.pipe > 1) sentences.push_back(scaling_of(model, best.decisions));
    return sentences;
}

bool lacks_memory(const PlanModel& model, const JointResult& result) {
    return result.search.closest || states_of(model) > static_cast<double>(model.cluster().device_memory().count);
}

std::string what_is_missing(PlanModel& model, const JointResult& result) {
    const PlannerWorkload& workload = model.workload();
    const double all = static_cast<double>(model.cluster().device_memory().count), held = states_of(model);
    if (held > all)
        return fmt::format("the model's weights, gradients and optimizer states take {}, and all devices together "
                           "have {}",
                           to_string(Bytes{static_cast<std::int64_t>(held)}),
                           to_string(Bytes{static_cast<std::int64_t>(all)}));
    if (!result.search.closest)
        return fmt::format("no scaling divides a global batch of {} over {}{}", workload.global_batch,
                           counted(model.cluster().device_count(), "device"), batches_that_work(model, "would work"));
    const RankedPlan& closest = *result.search.closest;
    const RankBytes& tight = closest.cost.tightest();
    const double missing = -tight.margin();
    return fmt::format("the plan that needs least ({}) asks for {} on its fullest rank, and the device has {}: {} is "
                       "missing",
                       describe(closest.decisions, model.chain().blocks()),
                       to_string(Bytes{static_cast<std::int64_t>(tight.total())}),
                       to_string(Bytes{static_cast<std::int64_t>(tight.capacity)}),
                       to_string(Bytes{static_cast<std::int64_t>(missing)}));
}

} // namespace tutti::planner
