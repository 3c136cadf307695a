#include "train/residency_picture.h"

#include <algorithm>
#include <numeric>

namespace tutti::train {
namespace {

std::string task_name(const Program& program, const Task& task) {
    std::string name(name_of(task.kind));
    if (program.stages.size() > 1) name += fmt::format(" of stage {}", task.stage);
    if (program.micro_batches > 1 && task.kind != TaskKind::norm && task.kind != TaskKind::update)
        name += fmt::format(", micro-batch {}", task.micro_batch);
    return name;
}

} // namespace

report::ResidencyPicture picture_of(const Program& program, const offload::OffloadPlan& plan, Bytes budget) {
    const offload::StepTimePoints& step = plan.training.step;
    const offload::ResidencyPlan& residency = plan.training.residency;
    report::ResidencyPicture picture{.title = "Residency of a step", .budget = budget};
    picture.facts = {
        {"to the device", to_string(residency.fetched)},
        {"back", to_string(residency.returned)},
        {"least possible, both ways", to_string(residency.least)},
        {"predicted step", to_string(Seconds{residency.seconds})},
        {"of it waiting for copies", to_string(Seconds{residency.exposed})},
        {"chunks updated by the host", fmt::format("{} of {}", plan.host_updates.size(), plan.updates)},
        {"chunks updated in the next forward", fmt::format("{} of {}", plan.updates_later, plan.updates)},
    };
    double clock = 0;
    for (std::size_t m = 0; m < step.problem.seconds.size(); ++m) {
        picture.starts.push_back(clock);
        picture.tasks.push_back(task_name(program, program.step[static_cast<std::size_t>(step.tasks[m])]));
        clock += step.problem.seconds[m];
    }
    picture.starts.push_back(clock);
    std::vector<std::size_t> order(step.residents.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {},
                      [&](std::size_t r) { return std::pair(step.residents[r].region, step.residents[r].chunk); });
    std::vector<std::size_t> row_of(order.size());
    for (std::size_t r : order) {
        row_of[r] = picture.rows.size();
        const offload::ChunkResident& chunk = step.residents[r];
        picture.rows.push_back({.name = fmt::format("{} {}", name_of(chunk.region), chunk.chunk),
                                .size = step.problem.residents[r],
                                .tier = std::string(offload::name_of(plan.backing.places[r].tier))});
    }
    auto row = [&](std::int32_t resident) -> report::ResidencyPicture::Row& {
        return picture.rows[row_of[static_cast<std::size_t>(resident)]];
    };
    for (const offload::ResidencyInterval& interval : residency.intervals)
        row(interval.resident)
            .intervals.push_back({.issue = static_cast<double>(interval.issue),
                                  .from = static_cast<double>(interval.first),
                                  .to = static_cast<double>(interval.last),
                                  .fetched = interval.fetched,
                                  .returned = interval.returned,
                                  .always = interval.always});
    for (const offload::ResidentUse& use : step.problem.uses)
        if (use.on_host) row(use.resident).on_host.push_back(use.time_point);
    return picture;
}

void write_residency_page(const run::RunConfig& config, const Session& session, run::TrainListener& listener) {
    const std::optional<offload::OffloadPlan>& plan = session.offload();
    if (!plan) {
        listener.warning(fmt::format("there is nothing to show in {}: all model data stays on the device; "
                                     "--device-memory limits it",
                                     config.report));
        return;
    }
    const Bytes budget = session.plan().device_memory - (session.device_memory() - plan->device);
    report::ResidencyPicture picture = picture_of(session.compiled().program, *plan, budget);
    if (session.plan().mesh.ranks() > 1) picture.title += fmt::format(" on rank {}", session.rank());
    write_text_atomically(config.report, report::residency_page(picture));
    listener.saved(config.report);
}

} // namespace tutti::train
