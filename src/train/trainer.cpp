#include "train/trainer.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "checkpoints/old_checkpoints.h"
#include "checkpoints/resume.h"
#include "checkpoints/saving.h"
#include "comm/agree.h"
#include "resolve/run_plan.h"
#include "run/layout.h"
#include "run/run_folder.h"
#include "run/settings.h"
#include "train/evaluation.h"
#include "train/memory_advice.h"
#include "train/non_finite.h"
#include "train/pauses.h"
#include "train/run_memory.h"
#include "train/run_reports.h"
#include "train/run_start.h"
#include "train/step_dump.h"
#include "train/steps_under_way.h"
#include "train/tracing.h"

#include <algorithm>

namespace tutti::train {
namespace {

// One rank of a run, from what was opened to the trained model: what is done before the first step, the loop, what is
// done at its pauses, and how it ends.
class Trainer {
  public:
    Trainer(const run::RunConfig& config, run::TrainListener& listener, comm::World& world, const TrainPlan& plan)
        : config_(config), listener_(listener), world_(world), group_(world.all()),
          session_(config, listener, world, plan.given, plan.speeds, plan.before),
          steps_(config, session_, position_, failure_, work_), reports_(config, session_, world, listener),
          saving_(group_, config, session_.source(), session_.stored(), listener) {}

    // A run may end by an exception with communication under way; the memory that it uses is freed before the session
    // is.
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;
    ~Trainer() { session_.end_groups(); }

    bool fits() const { return has_room(group_, session_); } // the same on all ranks

    run::TrainResult run(const std::atomic<bool>& stop) {
        RunStart start(config_, session_, group_, listener_);
        if (!config_.output.empty())
            comm::first_does(group_, [&] { data_files_ = data::data_files(*session_.data().training); });
        std::optional<run::RunLock> lock;
        start.take_folder(lock);
        const std::optional<checkpoints::CheckpointInfo> checkpoint =
            checkpoints::choose_checkpoint(group_, config_, session_.stored(), settings_, data_files_, listener_);
        const std::int64_t first_step = checkpoint ? checkpoint->state.step : 0;
        session_.share_libraries();
        start.announce(first_step);
        if (!start.goes_on()) return {};
        if (is_asked(stop)) return stopped_early(first_step);
        // Kernels are timed in memory of their own: it is given back before the run takes its own.
        if (!config_.trace.empty()) {
            listener_.waiting("timing kernels and links, for the simulated step of the trace");
            tracing_.emplace(config_, session_, world_, first_step);
        }
        comm::agree(group_, [&] { memory_.emplace(session_, listener_); });
        memory_->bind_for_training();
        begin(start.load(checkpoint, memory_->data()));
        if (checkpoint) saving_.resumed(position_.step());
        if (is_asked(stop)) return stopped_early(position_.step());
        comm::first_does(group_, [&] { reports_.open_metrics(position_.step()); });
        if (checkpoint)
            checkpoints::set_newer_aside(group_, config_, position_.step(), listener_);
        else
            checkpoints::set_checkpoints_aside(group_, config_, listener_);
        try {
            loop(stop);
            finish();
        } catch (...) {
            end_in_failure();
        }
        return result_;
    }

  private:
    // Whether one of the ranks was asked to stop: before the first step, while nothing travels between them.
    bool is_asked(const std::atomic<bool>& stop) {
        return std::ranges::count(comm::gather_values(group_, static_cast<char>(stop.load() ? 1 : 0)), 1) > 0;
    }
    // Nothing new is saved: no step was run.
    static run::TrainResult stopped_early(std::int64_t steps_done) {
        run::TrainResult result;
        result.steps_done = steps_done;
        result.stopped = true;
        return result;
    }

    void begin(checkpoints::CheckpointState state) {
        state.steps = config_.steps;
        state.settings = settings_;
        state.data_files = data_files_;
        position_.begin(std::move(state));
        const std::int64_t done = position_.step();
        result_.steps_done = done;
        if (done >= config_.steps)
            listener_.warning(fmt::format("{} done before and steps is {}: there is nothing left to train, and --steps "
                                          "{} would go on",
                                          done == 1 ? "1 step was" : fmt::format("{} steps were", done), config_.steps,
                                          config_.steps + done));
    }

    // ---- the loop

    // A request to stop travels with the step's sums, so that all ranks stop after the same step. So does a failure of
    // one rank, which it tells when all have stopped.
    void loop(const std::atomic<bool>& stop) {
        const std::int64_t first = position_.step();
        const std::int64_t end =
            config_.stop_after > 0 ? std::min(config_.steps, first + config_.stop_after) : config_.steps;
        comm::agree(group_, [&] { steps_.read_first(end); });
        while (position_.step() < config_.steps) {
            if (position_.step() == 0 && !config_.dump_step0.empty()) {
                complete(dumped_step(stop));
            } else {
                begin_steps(first, stop);
                complete(steps_.finish());
                if (steps_.count() > 0) continue; // no pause: the next step is under way
            }
            if (stopping_) failure_.share(group_);
            if (tracing_ && tracing_->is_complete()) write_trace();
            const bool asked = stopping_ || (config_.stop_after > 0 && position_.step() - first >= config_.stop_after);
            if (evaluates_after(config_, position_.step())) evaluate();
            if (asked && position_.step() < config_.steps) {
                result_.stopped = true;
                break;
            }
            if (saves_after(config_, position_.step())) {
                complete_updates();
                saving_.checkpoint(position_.good_state(), memory_->data());
            }
        }
        failure_.share(group_);
    }

    // As many as may be under way before the next pause.
    void begin_steps(std::int64_t first, const std::atomic<bool>& stop) {
        const std::int64_t done = position_.step();
        const auto traced = tracing_ ? std::optional(tracing_->pause()) : std::nullopt;
        const std::int64_t pause = stopping_ ? done + 1 : next_pause(config_, done, first, traced);
        while (steps_.count() < std::min(steps_.most(), pause - done))
            steps_.begin(stop, tracing_ ? tracing_->recorder_of(steps_.next()) : nullptr);
    }

    DoneStep dumped_step(bool stop) {
        DoneStep done;
        work_.run([&] {
            StepDump dump(group_, config_.dump_step0, session_, memory_->data());
            done = steps_.run(stop, dump.observer());
            dump.write();
        });
        return done;
    }

    void complete(const DoneStep& done) {
        advance(done);
        non_finite_ = done.scalars.finite ? 0 : non_finite_ + 1;
        if (has_diverged()) fail_non_finite(done.scalars.step);
    }

    void advance(const DoneStep& done) {
        failure_.keep([&] { report(done); });
        const bool finite = done.scalars.finite != 0;
        stopping_ |= done.scalars.stop > 0;
        position_.advance(finite, session_.plan().workload.global_batch);
        result_.steps_done = position_.step();
        saving_.stepped(finite);
    }

    void report(const DoneStep& done) {
        const run::StepReport report = reports_.report_of(done, position_.step());
        if (result_.steps_run++ == 0) result_.first_loss = report.loss;
        result_.last_loss = report.loss;
        reports_.stepped(report);
    }

    // ---- at its pauses

    void complete_updates() {
        work_.run([&] { session_.executor().complete_updates(); });
    }

    void evaluate() {
        complete_updates();
        listener_.waiting(fmt::format("evaluating after step {}", position_.step()));
        EvaluationLoss evaluated;
        work_.run([&] {
            evaluated = evaluation_loss(session_, config_, memory_->data(), memory_->scratch(), memory_->evaluation());
            memory_->bind_for_training();
        });
        failure_.add(evaluated.unread);
        failure_.share(group_);
        reports_.evaluated(position_.step(), evaluated.loss);
    }

    void write_trace() {
        if (const std::string failure = tracing_->write(); !failure.empty())
            listener_.warning(failure);
        else
            listener_.saved(config_.trace);
    }

    // ---- how it ends

    void finish() {
        complete_updates();
        if (!config_.output.empty()) {
            if (result_.stopped) {
                saving_.checkpoint(position_.good_state(), memory_->data());
            } else {
                // The model first: it is what the run was for.
                result_.model_folder = saving_.model(memory_->data(), result_.steps_run > 0);
                saving_.last_checkpoint(position_.state(), memory_->data());
            }
        }
        if (tracing_ && !tracing_->is_written()) write_trace();
        reports_.end(position_.step());
        if (position_.skipped() > 0)
            listener_.warning(fmt::format("steps that were not finite and changed nothing: {} of {}",
                                          position_.skipped(), position_.step()));
        if (const offload::Residence* residence = memory_->training()) result_.waited = residence->waited();
        result_.peak_resident = std::max(peak_resident_memory(), resident_memory());
        result_.rank_peaks = comm::gather_values(group_, result_.peak_resident);
        if (session_.device().memory()) result_.device_memory = memory_in_use(session_.device());
    }

    // All ranks come here together and nothing is under way, unless one was lost or failed in the midst of a step: then
    // nothing can be saved. Called where an exception is handled; throws it on.
    [[noreturn]] void end_in_failure() {
        try {
            if (!work_.is_interrupted() && !world_.failure()) save_after_error();
        } catch (const std::exception& error) {
            listener_.warning(fmt::format("no checkpoint could be saved: {}", error.what()));
        }
        try {
            throw;
        } catch (const WorldError& error) {
            throw WorldError(with_outlook(error.what()));
        } catch (const Error& error) {
            throw Error(with_outlook(error.what()));
        }
    }

    // What the world told this rank stays as it is. That there is a failure says nothing: another rank may have come
    // here before and ended with the same sentence.
    std::string with_outlook(const std::string& sentence) {
        const auto told = world_.failure();
        const bool is_dead_end = has_diverged() && saving_.is_suspected();
        return is_dead_end || (told && told->sentence == sentence) ? sentence : sentence + saving_.outlook();
    }

    // Steps that are under way are finished and counted first, whatever comes of them.
    void save_after_error() {
        while (steps_.count() > 0) advance(steps_.finish());
        complete_updates();
        saving_.checkpoint_after_error(position_.good_state(), memory_->data());
    }

    bool has_diverged() const { return non_finite_ >= config_.non_finite_limit; }

    // Saves first: what comes after it may fail.
    [[noreturn]] void fail_non_finite(std::int64_t step) {
        save_after_error();
        const std::string place = place_of_non_finite(step), way_around = saving_.way_around(); // of all ranks, in turn
        fail("step {}: the loss or the gradient norm is not finite, and {} in a row end the run; {}. {}", step + 1,
             config_.non_finite_limit, place, way_around);
    }

    // As the first rank that finds it says.
    std::string place_of_non_finite(std::int64_t step) {
        StepScalars again;
        comm::agree(group_, [&] { again = steps_.read_again(step); });
        std::vector<std::string> places;
        work_.run([&] { places = comm::gather_texts(group_, find_non_finite(session_, again, steps_.loader(step))); });
        const auto first = std::ranges::find_if(places, [](const std::string& place) { return !place.empty(); });
        if (first == places.end()) return "no single tensor is to blame";
        return *first + (group_.size() > 1 ? fmt::format(" of rank {}", first - places.begin()) : "");
    }

    const run::RunConfig& config_;
    run::TrainListener& listener_;
    comm::World& world_;
    comm::Group& group_; // all ranks
    Session session_;
    RunPosition position_;
    RankFailure failure_; // of this rank, which the others have yet to hear of
    DeviceWork work_;
    StepsUnderWay steps_;
    RunReports reports_;
    checkpoints::Saving saving_;
    const nlohmann::ordered_json settings_ = run::recorded_settings(config_, session_.plan().workload);
    std::vector<data::DataFile> data_files_; // of rank 0
    std::optional<RunMemory> memory_;
    std::optional<Tracing> tracing_;
    bool stopping_ = false;       // some rank was asked to stop, or has failed
    std::int64_t non_finite_ = 0; // steps, the last ones
    run::TrainResult result_;
};

} // namespace

run::TrainResult train(const run::RunConfig& config, run::TrainListener& listener, const std::atomic<bool>& stop,
                       comm::World& world, const TrainPlan& plan) {
    run::check(config);
    if (run::mesh_of(config).ranks() != world.size())
        fail("the mesh {} has {}, but there are {}", sharding::to_string(run::mesh_of(config)),
             counted(run::mesh_of(config).ranks(), "rank"), world.size());
    std::optional<Trainer> trainer(std::in_place, config, listener, world, plan);
    if (!plan.fit || trainer->fits()) return trainer->run(stop);
    if (!config.dry_run) trainer.reset(); // nothing was taken yet for a dry run
    std::optional<Plan> found;
    try {
        found = plan.fit();
    } catch (const Error& error) {
        if (!config.dry_run) throw;
        const run::TrainResult result = trainer->run(stop); // shows the table of what was asked for, and what would fit
        listener.warning(error.what());
        return result;
    }
    const Plan& fitting = *found;
    const run::RunConfig fitted = resolve::with_plan(config, fitting);
    return trainer.emplace(fitted, listener, world, TrainPlan{.given = &fitting, .speeds = plan.speeds}).run(stop);
}

run::TrainResult train(const run::RunConfig& config, run::TrainListener& listener, const std::atomic<bool>& stop) {
    const std::unique_ptr<comm::World> world = comm::make_single_world();
    return train(config, listener, stop, *world);
}

} // namespace tutti::train
