#include "cli/plan_text.h"

#include "base/counted.h"

#include <algorithm>
#include <functional>

namespace tutti::cli {

std::string schedule_text(const schedule::ScheduleParameters& p) {
    std::string text =
        fmt::format("{}, {}, {}", p.family, counted(p.ranks, "rank"), counted(p.micro_batches, "micro-batch"));
    if (p.stages_per_rank > 1) text += fmt::format(", {} each", counted(p.stages_per_rank, "stage"));
    if (p.model_replicas > 1) text += fmt::format(", {} model replicas", p.model_replicas);
    if (p.in_flight > 0) text += fmt::format(", {} in flight", p.in_flight);
    return text;
}

std::string stages_text(const Plan& plan) {
    if (plan.cuts.empty())
        return plan.schedule && plan.schedule->schedule.parameters.stages() > 1
                   ? fmt::format("{}, not cut from a model", plan.schedule->schedule.parameters.stages())
                   : "1";
    std::string text;
    int first = 0;
    for (int cut : plan.cuts) {
        text += first == cut - 1 ? fmt::format("{} | ", first) : fmt::format("{} to {} | ", first, cut - 1);
        first = cut;
    }
    return fmt::format("{}: blocks {}from {}", plan.stages(), text, first);
}

std::string recomputed_text(const Plan& plan, int blocks) {
    std::vector<std::string> stages;
    std::size_t all = 0;
    for (std::size_t s = 0; s < plan.recompute.size(); ++s) {
        const int first = s == 0 ? 0 : plan.cuts[s - 1], end = s < plan.cuts.size() ? plan.cuts[s] : blocks;
        stages.push_back(fmt::format("{} of {}", plan.recompute[s].size(), end - first));
        all += plan.recompute[s].size();
    }
    const std::string text = all == 0 ? fmt::format("none of {}", counted(blocks, "block"))
                                      : fmt::format("{} of {}", all, counted(blocks, "block"));
    if (all == 0 || stages.size() < 2) return text;
    if (std::ranges::adjacent_find(stages, std::ranges::not_equal_to()) == stages.end())
        return fmt::format("{}: {} in every stage", text, stages[0]);
    return fmt::format("{}; by stage {}", text, fmt::join(stages, ", "));
}

} // namespace tutti::cli
