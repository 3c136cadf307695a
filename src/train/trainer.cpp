#include "train/trainer.h"

#include "base/clock.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "checkpoints/old_checkpoints.h"
#include "checkpoints/resume.h"
#include "checkpoints/saving.h"
#include "checkpoints/weights.h"
#include "comm/agree.h"
#include "offload/execution/offload.h"
#include "resolve/run_plan.h"
#include "run/layout.h"
#include "run/run_folder.h"
#include "run/settings.h"
#include "train/evaluation.h"
#include "train/memory_advice.h"
#include "train/metrics.h"
#include "train/non_finite.h"
#include "train/prediction_check.h"
#include "train/residency_picture.h"
#include "train/run_summary.h"
#include "train/session.h"
#include "train/step_dump.h"
#include "train/tracing.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <tuple>
#include <utility>

namespace tutti::train {
namespace {

class Trainer {
  public:
    Trainer(const run::RunConfig& config, run::TrainListener& listener, comm::World& world, const Plan* given,
            const offload::SpeedTable* speeds)
        : config_(config), listener_(listener), world_(world), group_(world.all()),
          session_(config, listener, world, given, speeds),
          batches_({session_.data().training, config, session_.facts(), session_.plan().workload.global_batch},
                   session_.device().asynchronous() ? runtime::Executor::most_begun : 1),
          saving_(group_, config, session_.source(), session_.stored(), listener) {}

    // A run may end by an exception with exchanges under way; the memory they use goes before the session does.
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;
    ~Trainer() { session_.end_groups(); }

    bool fits() const { return has_room(group_, session_); } // the same on all ranks

    run::TrainResult run(const std::atomic<bool>& stop) {
        std::optional<run::RunLock> lock;
        if (!config_.output.empty())
            comm::first_does(group_, [&] { data_files_ = data::data_files(*session_.data().training); });
        if (!config_.dry_run && !config_.output.empty())
            comm::first_does(group_, [&] {
                lock.emplace(config_.output);
                checkpoints::expect_folder(config_.output);
                checkpoints::remove_leftovers(config_.output);
            });
        const std::optional<checkpoints::CheckpointInfo> checkpoint =
            checkpoints::choose_checkpoint(group_, config_, session_.stored(), settings_, data_files_, listener_);
        session_.share_libraries();
        if (const auto& predicted = session_.plan().predicted) prediction_.emplace(*predicted);
        run::RunSummary summary = summary_of(session_, group_);
        summary.steps = config_.steps;
        summary.first_step = checkpoint ? checkpoint->state.step : 0;
        listener_.planned(summary);
        if (const auto& offload = session_.offload())
            if (const auto slow = offload::slow_disk(*offload, config_.disk)) listener_.warning(*slow);
        if (!config_.report.empty()) write_report();
        const std::string lack = lack_of_room(group_, session_);
        if (config_.dry_run) {
            if (!lack.empty()) listener_.warning(lack);
            return {};
        }
        if (!config_.output.empty())
            comm::first_does(group_, [&] {
                write_text_atomically(fs::path(config_.output) / "plan.json", to_json(session_.plan()));
            });
        comm::agree(group_, [&] { // before any rank takes its memory
            if (!lack.empty()) fail_world("{}", lack);
        });
        if (is_asked(stop)) return stopped_early(summary.first_step);
        // Kernels are timed in memory of their own: it is given back before the run takes its own.
        if (!config_.trace.empty()) tracing_.emplace(config_, session_, world_, summary.first_step);
        comm::agree(group_, [&] { allocate(); });
        bind_for_training();
        load(checkpoint);
        if (is_asked(stop)) return stopped_early(state_.step);
        comm::first_does(group_, [&] { metrics_.emplace(config_, state_.step, listener_); });
        if (checkpoint)
            checkpoints::set_newer_aside(group_, config_, state_.step, listener_);
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

    void write_report() {
        comm::first_does(group_, [&] {
            if (!session_.offload()) {
                listener_.warning(fmt::format(
                    "there is nothing to show in {}: all model data stays on the device; --device-memory limits it",
                    config_.report));
                return;
            }
            const Bytes budget =
                session_.plan().device_memory - (session_.device_memory() - session_.offload()->device);
            report::ResidencyPicture picture = picture_of(session_.compiled().program, *session_.offload(), budget);
            if (group_.size() > 1) picture.title += fmt::format(" on rank {}", group_.rank());
            write_text_atomically(config_.report, report::residency_page(picture));
            listener_.saved(config_.report);
        });
    }

    void allocate() {
        memory_ = session_.device().allocate(session_.device_memory());
        if (!session_.offload()) {
            data_.emplace(session_.model_data(memory_->data()));
            return;
        }
        if (const Bytes host = session_.offload()->homes.memory(); host.count >> 30 > 0)
            listener_.waiting(fmt::format("taking {} of host memory", to_string(host)));
        offload_.emplace(session_.device(), *session_.offload(), memory_->data(), config_.disk);
        data_.emplace(session_.model_data(offload_->homes()));
        offload_->attach(*data_);
    }

    void bind_for_training() {
        session_.executor().bind(*data_, session_.scratch_in(*memory_), offload_ ? offload_->training() : nullptr);
    }

    void load(const std::optional<checkpoints::CheckpointInfo>& checkpoint) {
        if (checkpoint) {
            listener_.waiting("loading " + checkpoint->folder.string());
            checkpoints::load_checkpoint(group_, *checkpoint, session_.stored(), *data_);
            state_ = checkpoint->state;
        } else {
            begin_with_weights();
            state_.seed = config_.seed;
        }
        if (checkpoint) saving_.resumed(state_.step);
        good_ = {state_.step, state_.samples, state_.skipped};
        state_.steps = config_.steps;
        state_.settings = settings_;
        state_.data_files = data_files_;
        result_.steps_done = state_.step;
        if (state_.step >= config_.steps)
            listener_.warning(fmt::format("{} done before and steps is {}: there is nothing left to train, and --steps "
                                          "{} would go on",
                                          state_.step == 1 ? "1 step was" : fmt::format("{} steps were", state_.step),
                                          config_.steps, state_.step + config_.steps));
    }

    void begin_with_weights() {
        if (session_.has_weights()) {
            listener_.waiting("loading " + session_.source().folder().string());
            comm::agree(group_, [&] { checkpoints::load_weights(session_.source(), *data_); });
        } else {
            listener_.waiting("initialising weights");
            checkpoints::initialise_weights(session_.stored(), session_.initialisation(), config_.seed, *data_);
        }
    }

    // A request to stop travels with the step's sums, so that all ranks stop after the same step. So does a failure of
    // one rank, which it tells when all have stopped.
    void loop(const std::atomic<bool>& stop) {
        const std::int64_t first = state_.step;
        end_ = config_.stop_after > 0 ? std::min(config_.steps, first + config_.stop_after) : config_.steps;
        comm::agree(group_, [&] {
            for (std::int64_t step = first; step < std::min(first + batches_.ahead(), end_); ++step) read(step);
        });
        while (state_.step < config_.steps) {
            if (state_.step == 0 && !config_.dump_step0.empty()) {
                dumped_step(stop);
            } else {
                const std::int64_t goal = stopping_ ? state_.step + 1 : next_pause(first);
                while (static_cast<std::int64_t>(given_.size()) < std::min(batches_.ahead(), goal - state_.step))
                    begin_step(stop);
                finish_step();
                if (!given_.empty()) continue; // no pause: the next step is under way
            }
            if (stopping_) share_failure();
            if (tracing_ && tracing_->is_complete()) write_trace();
            const bool asked = stopping_ || (config_.stop_after > 0 && state_.step - first >= config_.stop_after);
            if (config_.eval_every > 0 && (state_.step % config_.eval_every == 0 || state_.step == config_.steps))
                evaluate();
            if (asked && state_.step < config_.steps) {
                result_.stopped = true;
                break;
            }
            if (config_.save_every > 0 && state_.step % config_.save_every == 0) {
                complete_updates();
                saving_.checkpoint(good_state(), *data_);
            }
        }
        share_failure();
    }

    // What one rank does beside the others may fail; it goes on with them until all stop.
    void locally(const std::function<void()>& action) {
        try {
            action();
        } catch (const std::exception&) {
            if (!failure_) failure_ = std::current_exception();
        }
    }

    void share_failure() {
        comm::agree(group_, [&] {
            if (failure_) std::rethrow_exception(failure_);
        });
    }

    // All ranks come here together and nothing is under way, unless one was lost or failed in the midst of a step: then
    // nothing can be saved. Called where an exception is handled; throws it on.
    [[noreturn]] void end_in_failure() {
        try {
            if (!midway_ && !world_.failure()) save_after_error();
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

    bool has_diverged() const { return non_finite_ >= config_.non_finite_limit; }

    void save_after_error() {
        drain();
        saving_.checkpoint_after_error(good_state(), *data_);
    }

    void write_trace() {
        if (const std::string failure = tracing_->write(); !failure.empty())
            listener_.warning(failure);
        else
            listener_.saved(config_.trace);
    }

    // The next step after which something is done that needs the device to stand still.
    std::int64_t next_pause(std::int64_t first) const {
        std::int64_t pause = config_.steps;
        auto every = [&](std::int64_t period) {
            if (period > 0) pause = std::min(pause, (state_.step / period + 1) * period);
        };
        every(config_.eval_every);
        every(config_.save_every);
        if (tracing_ && tracing_->pause() > state_.step) pause = std::min(pause, tracing_->pause());
        if (config_.stop_after > 0 && first + config_.stop_after > state_.step)
            pause = std::min(pause, first + config_.stop_after);
        return pause;
    }

    // A step as it is given to the device, and what is known of it on the way.
    struct Given {
        StepScalars scalars;
        std::int64_t tokens = 0;
        Seconds start;
    };

    void read(std::int64_t step) { batches_.read(step, scalars_of(step).first_sample); }

    // Its batch was read when the steps before it began.
    Given prepare(std::int64_t step, bool stop) {
        Given given{.scalars = scalars_of(step), .tokens = 0, .start = steady_now()};
        const std::int64_t later = step + batches_.ahead();
        if (later < end_ && !failure_) locally([&] { read(later); });
        given.tokens = batches_.tokens_of(step);
        given.scalars.inverse_tokens = 1.0 / static_cast<double>(given.tokens);
        given.scalars.stop = stop || failure_ ? 1 : 0;
        return given;
    }

    void begin_step(bool stop) {
        const std::int64_t step = state_.step + static_cast<std::int64_t>(given_.size());
        given_.push_back(prepare(step, stop));
        midway_ = true;
        session_.executor().begin(given_.back().scalars, loader(step),
                                  tracing_ ? tracing_->recorder_of(step) : nullptr);
        midway_ = false;
    }

    // The oldest step that was begun.
    std::pair<Given, StepScalars> finish_oldest() {
        midway_ = true;
        const StepScalars scalars = session_.executor().finish();
        midway_ = false;
        const Given given = given_.front();
        given_.pop_front();
        return {given, scalars};
    }

    void finish_step() {
        const auto [given, scalars] = finish_oldest();
        complete(given, scalars);
    }

    void dumped_step(bool stop) {
        const Given given = prepare(state_.step, stop);
        midway_ = true;
        StepDump dump(group_, config_.dump_step0, session_, *data_);
        const StepScalars scalars = session_.executor().step(given.scalars, loader(state_.step), dump.observer());
        dump.write();
        midway_ = false;
        complete(given, scalars);
    }

    void complete_updates() {
        midway_ = true;
        session_.executor().complete_updates();
        midway_ = false;
    }

    void complete(const Given& given, const StepScalars& scalars) {
        advance(given, scalars);
        non_finite_ = scalars.finite ? 0 : non_finite_ + 1;
        if (has_diverged()) fail_non_finite(scalars.step);
    }

    void advance(const Given& given, const StepScalars& scalars) {
        // A step waits for the one before; the host may hear of its end much later, when it has given the next.
        const Seconds done = session_.executor().finished_at(), start = std::max(given.start, last_done_);
        last_done_ = done;
        locally([&] { report(scalars, given.tokens, {done.count - start.count}); });
        if (!scalars.finite) ++state_.skipped;
        stopping_ |= scalars.stop > 0;
        ++state_.step;
        state_.samples += session_.plan().workload.global_batch;
        result_.steps_done = state_.step;
        if (scalars.finite) good_ = {state_.step, state_.samples, state_.skipped};
        saving_.stepped(scalars.finite != 0);
    }

    // What is saved: the state after the last finite step, since those after it changed nothing.
    checkpoints::CheckpointState good_state() const {
        checkpoints::CheckpointState state = state_;
        std::tie(state.step, state.samples, state.skipped) = std::tie(good_.step, good_.samples, good_.skipped);
        return state;
    }

    StepScalars scalars_of(std::int64_t step) const {
        StepScalars scalars;
        scalars.step = step;
        scalars.first_sample = state_.samples + (step - state_.step) * session_.plan().workload.global_batch;
        scalars.seed = config_.seed;
        scalars.max_norm = config_.clip;
        scalars.learning_rate = run::learning_rate(config_, step);
        scalars.beta1 = config_.beta1;
        scalars.beta2 = config_.beta2;
        scalars.epsilon = config_.eps;
        scalars.weight_decay = config_.weight_decay;
        return scalars;
    }

    runtime::Executor::Load loader(std::int64_t step) {
        return [this, step](std::int32_t micro_batch, std::span<std::byte* const> inputs) {
            const Program& program = session_.compiled().program;
            fill_inputs(program, batches_.of(step), program.first_sample + micro_batch * program.micro_batch_samples,
                        inputs);
        };
    }

    void report(const StepScalars& scalars, std::int64_t tokens, Seconds duration) {
        auto plain = [](double x) { return std::isnan(x) ? std::fabs(x) : x; }; // no "-nan"
        const run::StepReport report{.step = state_.step,
                                     .loss = plain(scalars.loss),
                                     .gradient_norm = plain(scalars.gradient_norm),
                                     .learning_rate = scalars.learning_rate,
                                     .duration = duration,
                                     .tokens = tokens,
                                     .tokens_per_second = static_cast<double>(tokens) / duration.count,
                                     .memory = memory_in_use(),
                                     .skipped = scalars.finite == 0};
        if (result_.steps_run++ == 0) result_.first_loss = report.loss;
        result_.last_loss = report.loss;
        if (metrics_) metrics_->step(report);
        listener_.stepped(report);
        if (prediction_ && prediction_->stepped(duration)) compare();
    }

    void compare() {
        const Bytes used = memory_in_use();
        const bool shared = world_.shares_process() && !session_.device().memory();
        const run::PredictionCheck check = prediction_->compare(session_.place().pipe, session_.memory().libraries,
                                                                {shared ? used.count / world_.size() : used.count});
        if (metrics_) metrics_->comparison(state_.step, check);
        listener_.compared(check);
        prediction_.reset();
    }

    Bytes memory_in_use() const {
        const auto device = session_.device().memory();
        return device ? device->total - device->free : resident_memory();
    }

    // Steps that are under way are finished and counted, whatever comes of them.
    void drain() {
        while (!given_.empty()) {
            const auto [given, scalars] = finish_oldest();
            advance(given, scalars);
        }
        complete_updates();
    }

    // Saves first: what comes after it may fail.
    [[noreturn]] void fail_non_finite(std::int64_t step) {
        save_after_error();
        const std::string place = place_of_non_finite(step), way_around = saving_.way_around(); // of all ranks, in turn
        fail("step {}: the loss or the gradient norm is not finite, and {} in a row end the run; {}. {}", step + 1,
             config_.non_finite_limit, place, way_around);
    }

    // As the first rank that finds it says.
    std::string place_of_non_finite(std::int64_t step) {
        comm::agree(group_, [&] { read(step); });
        StepScalars again = scalars_of(step);
        again.inverse_tokens = 1.0 / static_cast<double>(batches_.tokens_of(step));
        midway_ = true;
        const std::string found = find_non_finite(session_, again, loader(step));
        const std::vector<std::string> all = comm::gather_texts(group_, found);
        midway_ = false;
        const auto first = std::ranges::find_if(all, [](const std::string& place) { return !place.empty(); });
        if (first == all.end()) return "no single tensor is to blame";
        return *first + (group_.size() > 1 ? fmt::format(" of rank {}", first - all.begin()) : "");
    }

    void evaluate() {
        complete_updates();
        listener_.waiting(fmt::format("evaluating after step {}", state_.step));
        midway_ = true;
        const auto [loss, unread] = evaluation_loss(session_, config_, *data_, session_.scratch_in(*memory_),
                                                    offload_ ? offload_->evaluation() : nullptr);
        bind_for_training();
        midway_ = false;
        if (unread && !failure_) failure_ = unread;
        share_failure();
        if (metrics_) metrics_->evaluation(state_.step, loss); // after that step
        listener_.evaluated(state_.step, loss);
    }

    void finish() {
        complete_updates();
        if (!config_.output.empty()) {
            if (result_.stopped) {
                saving_.checkpoint(good_state(), *data_);
            } else {
                // The model first: it is what the run was for.
                result_.model_folder = saving_.model(*data_, result_.steps_run > 0);
                saving_.last_checkpoint(state_, *data_);
            }
        }
        if (tracing_ && !tracing_->is_written()) write_trace();
        if (prediction_ && prediction_->can_compare()) compare();
        if (state_.skipped > 0)
            listener_.warning(
                fmt::format("steps that were not finite and changed nothing: {} of {}", state_.skipped, state_.step));
        if (offload_) result_.waited = offload_->training()->waited();
        result_.peak_resident = std::max(peak_resident_memory(), resident_memory());
        result_.rank_peaks = comm::gather_values(group_, result_.peak_resident);
        if (session_.device().memory()) result_.device_memory = memory_in_use();
    }

    const run::RunConfig& config_;
    run::TrainListener& listener_;
    comm::World& world_;
    comm::Group& group_; // all ranks
    Session session_;
    std::optional<CheckedPrediction> prediction_; // until it was compared
    BatchesAhead batches_;
    checkpoints::Saving saving_;
    std::unique_ptr<backend::Arena> memory_;
    const nlohmann::ordered_json settings_ = run::recorded_settings(config_, session_.plan().workload);
    std::vector<data::DataFile> data_files_; // of rank 0
    std::optional<offload::Offload> offload_;
    std::optional<offload::ModelData> data_;
    std::optional<Metrics> metrics_; // of rank 0
    std::optional<Tracing> tracing_;
    bool stopping_ = false;      // some rank was asked to stop, or has failed
    std::exception_ptr failure_; // of this rank, which the others have yet to hear of
    // Whether the device is at work. Where that throws, the others may be in the midst of a step, and model data
    // between two states.
    bool midway_ = false;
    std::int64_t end_ = 0; // the last step of this process
    checkpoints::CheckpointState state_;
    struct {
        std::int64_t step = 0, samples = 0, skipped = 0;
    } good_;                  // of state_, after the last finite step
    std::deque<Given> given_; // steps under way
    Seconds last_done_;
    std::int64_t non_finite_ = 0;
    run::TrainResult result_;
};

} // namespace

run::TrainResult train(const run::RunConfig& config, run::TrainListener& listener, const std::atomic<bool>& stop,
                       comm::World& world, const TrainPlan& plan) {
    run::check(config);
    if (run::mesh_of(config).ranks() != world.size())
        fail("the mesh {} has {}, but there are {}", sharding::to_string(run::mesh_of(config)),
             counted(run::mesh_of(config).ranks(), "rank"), world.size());
    std::optional<Trainer> trainer(std::in_place, config, listener, world, plan.given, plan.speeds);
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
    return trainer.emplace(fitted, listener, world, &fitting, plan.speeds).run(stop);
}

run::TrainResult train(const run::RunConfig& config, run::TrainListener& listener, const std::atomic<bool>& stop) {
    const std::unique_ptr<comm::World> world = comm::make_single_world();
    return train(config, listener, stop, *world);
}

} // namespace tutti::train
