#include "train/tracing.h"

#include "base/error.h"
#include "base/file.h"
#include "comm/agree.h"
#include "comm/measure.h"
#include "ops/operators.h"
#include "profiling/kernel_speed.h"
#include "profiling/kernel_timing.h"
#include "sharding/mesh.h"
#include "simulate/uneven.h"
#include "train/traced_ranks.h"

#include <algorithm>

namespace tutti::train {
namespace {

constexpr std::int64_t steps_before = 2, most_steps = 3;

// Told before the first step, not after hours: the file is written when the steps are traced.
void check_place(const fs::path& file) {
    if (is_there(file) && !is_file(file)) fail("cannot write the trace to {}: it is not a regular file", file.string());
    fs::path trial = file;
    trial += ".tmp";
    OutputFile{trial}; // goes again
}

} // namespace

TracedSteps traced_steps(const run::RunConfig& config, std::int64_t first_step) {
    std::int64_t steps = std::max<std::int64_t>(config.steps - first_step, 0);
    if (config.stop_after > 0) steps = std::min(steps, config.stop_after);
    const std::int64_t count = std::min(steps, most_steps);
    return {first_step + std::min(steps_before, steps - count), count};
}

Tracing::Tracing(const run::RunConfig& config, Session& session, comm::World& world, std::int64_t first_step)
    : config_(config), session_(session), world_(world), steps_(traced_steps(config, first_step)) {
    comm::first_does(world_.all(), [&] { check_place(config_.trace); });
    comm::barrier(world_.all()); // ranks share cores and memory: they are timed together
    // In no more memory than the run takes, since its table says nothing of timing.
    const Bytes room = session_.device_memory();
    pool(profiling::time_kernels(session_.compiled().program, session_.device(), world_.all(), {1.0}, room));
    kernels_ = profiling::measure_kernels(session_.device(), session_.plan().precision.compute, room);
    link_ = comm::measure_link(world_.all(), room);
    recorder_ =
        std::make_shared<runtime::TraceRecorder>(session_.compiled().program, static_cast<std::size_t>(steps_.count));
    world_.observe([recorder = recorder_](const comm::OperationRecord& record) { recorder->finished(record); });
}

// All get the same times, so that a rank whose core was slow just now is not taken to be so for ever.
void Tracing::pool(const costs::KernelTimes& mine) {
    comm::Group& all = world_.all();
    std::vector<costs::KernelTimes> ranks;
    for (const std::string& text : comm::gather_to_first(all, costs::to_text(mine)))
        ranks.push_back(costs::parse_kernel_times(text));
    costs::PooledTimes together = costs::pooled(ranks);
    times_ = costs::parse_kernel_times(comm::broadcast_text(all, costs::to_text(together.times)));
    slowdowns_ = std::move(together.slowdowns);
}

Tracing::~Tracing() { world_.observe({}); }

runtime::TraceRecorder* Tracing::recorder_of(std::int64_t step) {
    return step >= steps_.first && step < pause() ? recorder_.get() : nullptr;
}

std::string Tracing::write() {
    is_written_ = true;
    comm::Group& all = world_.all();
    const Seconds offset = comm::clock_offset(all); // by now, what was traced has come to the recorder
    const Program& program = session_.compiled().program;
    const std::vector<report::TracedStep> mine = steps_of_rank(program, recorder_->take(), offset);
    const simulate::Outline outline =
        simulate::outline_of(program, world_.rank(), ops::all_operators(), times_, kernels_, link_);
    const std::vector<std::string> traces = comm::gather_to_first(all, to_text(mine));
    const std::vector<std::string> outlines = comm::gather_to_first(all, simulate::to_text(outline));
    const std::vector<std::string> offsets = comm::gather_to_first(all, fmt::format("{}", offset.count));
    if (mine.empty()) return fmt::format("no step was traced, so there is no {}", config_.trace);
    return comm::first_decides(all, [&]() -> std::string {
        try {
            write_file(traces, outlines, offsets);
            return "";
        } catch (const WorldError& error) {
            return fmt::format("the trace is lost: {}", error.what());
        } catch (const Error& error) {
            return fmt::format("the trace is lost: {}", error.what());
        }
    });
}

void Tracing::write_file(std::span<const std::string> traces, std::span<const std::string> outlines,
                         std::span<const std::string> offsets) const {
    const Plan& plan = session_.plan();
    report::RunTrace trace{.model = plan.model,
                           .mesh = sharding::to_string(plan.mesh),
                           .schedule = plan.schedule ? plan.schedule->schedule.parameters.family : "",
                           .device = session_.device().model(),
                           .kernels = kernels_,
                           .link = link_};
    std::vector<std::vector<report::TracedStep>> ranks;
    std::vector<simulate::Outline> scripts;
    for (std::size_t r = 0; r < traces.size(); ++r) {
        ranks.push_back(parse_steps(traces[r]));
        scripts.push_back(simulate::parse_outline(outlines[r]));
        trace.offsets.push_back({std::stod(offsets[r])});
    }
    trace.steps = joined_steps(ranks);
    const std::vector<simulate::SimulatedRank> simulated = simulate::simulate_uneven(scripts, slowdowns_);
    for (std::size_t r = 0; r < simulated.size(); ++r)
        trace.simulated.push_back(simulated_rank(scripts[r], simulated[r], trace.steps.front().ranks[r].tasks));
    write_text_atomically(config_.trace, report::to_chrome(trace));
}

} // namespace tutti::train
