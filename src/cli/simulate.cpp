// tutti simulate: walks the Programs of a plan's schedule with the costs kept in it, and shows when what runs.

#include "simulate/simulate.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/pictures.h"
#include "resolve/run_plan.h"
#include "schedule/lower.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

namespace tutti::cli {
namespace {

struct SimulateCommandFlags {
    CLI::Option* plan = nullptr;
    PictureFlags picture{};
};

bool computes(const Task& task) {
    return task.kind == TaskKind::forward || task.kind == TaskKind::recompute || task.kind == TaskKind::backward ||
           task.kind == TaskKind::weight_gradient;
}

// Times are the simulator's; what follows from them (idle times, activations) is attributed as the evaluator does.
EvaluatedSchedule simulated(const PlannedSchedule& planned) {
    EvaluatedSchedule result{planned.schedule, planned.costs, schedule::evaluate(planned.schedule, planned.costs)};
    const std::vector<Program> programs = schedule::lower(planned.schedule, planned.costs);
    const simulate::Simulation simulation = simulate::simulate(programs);
    std::size_t at = 0;
    for (std::size_t r = 0; r < programs.size(); ++r) {
        for (std::size_t i = 0; i < programs[r].step.size(); ++i) {
            if (!computes(programs[r].step[i])) continue;
            TUTTI_CHECK(at < result.evaluation.start.size(), "rank {} computes more than is scheduled", r);
            result.evaluation.start[at] = simulation.ranks[r][i].start;
            result.evaluation.end[at++] = simulation.ranks[r][i].end;
        }
    }
    TUTTI_CHECK(at == planned.schedule.tasks.size(), "{} tasks of {}", at, planned.schedule.tasks.size());
    result.evaluation.time = simulation.time;
    return result;
}

// A plan of a model has its costs in seconds and bytes: its picture is drawn in units in which these are short numbers.
EvaluatedSchedule in_short_units(const PlannedSchedule& planned) {
    const EvaluatedSchedule plain = simulated(planned);
    struct Unit {
        const char* name;
        double size;
    };
    auto unit_of = [](double most, std::span<const Unit> units) { // the first are the largest
        const auto found = std::ranges::find_if(units, [&](const Unit& unit) { return most >= unit.size; });
        return found == units.end() ? units.back() : *found;
    };
    static constexpr std::array<Unit, 3> times = {{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}}};
    static constexpr std::array<Unit, 4> sizes = {{{"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"B", 1}}};
    const Unit time = unit_of(plain.evaluation.time, times), size = unit_of(plain.evaluation.peak_activations(), sizes);
    PlannedSchedule scaled = planned;
    for (schedule::StageCosts& stage : scaled.costs.stages) {
        for (double* one : {&stage.forward, &stage.backward, &stage.weight_gradient, &stage.recompute,
                            &stage.synchronise, &stage.update})
            *one /= time.size;
        for (double* one : {&stage.activation, &stage.kept_after_backward, &stage.boundary}) *one /= size.size;
    }
    for (double& one : scaled.costs.communication) one /= time.size;
    EvaluatedSchedule result = simulated(scaled);
    result.units = fmt::format("{} and {}", time.name, size.name);
    return result;
}

int run_simulate(const SimulateCommandFlags& flags) {
    const auto file = text_of(flags.plan);
    if (!file) fail("simulate what? as in tutti simulate plan.json");
    const Plan plan = resolve::read_plan(*file);
    if (!plan.schedule)
        fail("{} has no schedule: it is a plan for one rank; tutti schedule FAMILY --plan FILE writes one with a "
             "schedule",
             *file);
    UsedFiles files;
    files.reads("the plan", *file);
    add_picture_files(flags.picture, files);
    const bool plain = plan.model == Plan::no_model || is_set(flags.picture.json); // JSON is for programs
    const EvaluatedSchedule result = plain ? simulated(*plan.schedule) : in_short_units(*plan.schedule);
    show(std::span(&result, 1), flags.picture);
    return 0;
}

} // namespace

Command simulate_command() {
    Command command;
    command.name = "simulate";
    command.summary = "show the timeline and the memory of a plan's schedule";
    command.usage = "plan.json [options]";
    command.about = "Walks the programs of all ranks of a plan as training would, with the costs kept in the plan "
                    "instead of kernels, and shows when every task runs and what every rank holds.";
    command.examples = "tutti schedule zb-v --pipe 4 --micro-batches 8 --plan plan.json\n"
                       "tutti simulate plan.json --html page.html";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<SimulateCommandFlags>();
        flags->plan = add_value(app, "plan", "PLAN", "a plan file with a schedule");
        flags->picture = add_picture_flags(app);
        return [flags] { return run_simulate(*flags); };
    };
    return command;
}

} // namespace tutti::cli
