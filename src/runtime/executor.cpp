#include "runtime/executor.h"

#include "base/error.h"

#include <algorithm>

namespace tutti::runtime {

Executor::Executor(const Program& program, const backend::Device& device, GroupTable& groups, DeviceLinks* links,
                   const backend::Device* host)
    : program_(program), device_(device), queue_(device.make_queue()), waits_(*queue_, links), timer_(program, waits_),
      runner_(program, {.device = device, .host = host, .groups = groups, .links = links}, *queue_, waits_, timer_),
      staging_(program, runner_.memory()) {}

const NamedBuffer& Executor::output(std::string_view name) const {
    const auto found = std::ranges::find(program_.outputs, name, &NamedBuffer::name);
    TUTTI_CHECK(found != program_.outputs.end(), "the program has no output {}", name);
    return *found;
}

void Executor::bind(const offload::ModelData& data, std::byte* scratch, offload::Residence* residence) {
    TUTTI_CHECK(staging_.under_way() == 0 && !runner_.has_pending_updates(), "{} steps are under way",
                staging_.under_way());
    if (!runner_.memory().is_bound_to(data, scratch)) recording_.forget();
    runner_.bind(data, scratch, residence);
    staging_.allocate(device_);
    for (const Task& task : program_.setup) runner_.run(task);
    waits_.drain();
}

void Executor::begin(const StepScalars& scalars, const Load& load, TraceRecorder* trace) {
    timer_.begin(trace, scalars.step);
    staging_.begin(scalars, load, *queue_, timer_);
    const bool repeats = trace == nullptr && program_.groups.empty() && !runner_.has_residence();
    recording_.run(*queue_, repeats, [this] { run_tasks(); });
    runner_.use_links();
    staging_.end(*queue_);
    timer_.end();
}

void Executor::run_tasks() {
    runner_.begin_step();
    for (const Task& task : program_.step)
        if (task.kind != TaskKind::load)
            timer_.run(
                task, [&] { runner_.await(task); }, [&] { runner_.run(task); });
    timer_.turn_to_end();
    runner_.end_step();
}

StepScalars Executor::finish() {
    const FinishedStep step = staging_.finish(waits_);
    finished_at_ = step.at;
    return step.scalars;
}

void Executor::complete_updates() {
    TUTTI_CHECK(staging_.under_way() == 0 || !runner_.has_pending_updates(), "{} steps are under way",
                staging_.under_way());
    runner_.complete_deferred_updates();
}

StepScalars Executor::step(const StepScalars& scalars, const Load& load) {
    begin(scalars, load);
    return finish();
}

StepScalars Executor::step(const StepScalars& scalars, const Load& load, const Observer& observer, const Probe& probe) {
    TUTTI_CHECK(staging_.under_way() == 0, "{} steps are under way", staging_.under_way());
    staging_.begin(scalars, load, *queue_, timer_);
    runner_.begin_step();
    for (const Task& task : program_.step) {
        runner_.await(task);
        waits_.drain();
        if (observer) observer(task, false);
        if (task.kind != TaskKind::load) runner_.run(task, probe);
        waits_.drain();
        if (observer) observer(task, true);
    }
    runner_.end_step(static_cast<bool>(probe));
    staging_.end(*queue_);
    return finish();
}

} // namespace tutti::runtime
