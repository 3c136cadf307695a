#include "train/steps_under_way.h"

#include "base/clock.h"

#include <algorithm>

namespace tutti::train {

StepsUnderWay::StepsUnderWay(const run::RunConfig& config, Session& session, const RunPosition& position,
                             RankFailure& failure, DeviceWork& work)
    : config_(config), session_(session), position_(position), failure_(failure), work_(work),
      batches_({session.data().training, config, session.facts(), session.plan().workload.global_batch},
               session.device().asynchronous() ? runtime::Executor::most_begun : 1) {}

void StepsUnderWay::read_first(std::int64_t end) {
    end_ = end;
    const std::int64_t first = position_.step();
    for (std::int64_t step = first; step < std::min(first + most(), end); ++step) read(step);
}

void StepsUnderWay::read(std::int64_t step) { batches_.read(step, scalars_of(step).first_sample); }

StepScalars StepsUnderWay::scalars_of(std::int64_t step) const {
    StepScalars scalars;
    scalars.step = step;
    scalars.first_sample = position_.first_sample_of(step, session_.plan().workload.global_batch);
    scalars.seed = config_.seed;
    scalars.max_norm = config_.clip;
    scalars.learning_rate = run::learning_rate(config_, step);
    scalars.beta1 = config_.beta1;
    scalars.beta2 = config_.beta2;
    scalars.epsilon = config_.eps;
    scalars.weight_decay = config_.weight_decay;
    return scalars;
}

// Its batch was read when the steps before it began; a later one's is read now.
StepsUnderWay::Given StepsUnderWay::prepare(bool stop) {
    const std::int64_t step = next(), later = step + most();
    Given given{.scalars = scalars_of(step), .tokens = 0, .start = steady_now()};
    if (later < end_ && !failure_.is_there()) failure_.keep([&] { read(later); });
    given.tokens = batches_.tokens_of(step);
    given.scalars.inverse_tokens = 1.0 / static_cast<double>(given.tokens);
    given.scalars.stop = stop || failure_.is_there() ? 1 : 0;
    return given;
}

runtime::Executor::Load StepsUnderWay::loader(std::int64_t step) const {
    return [this, step](std::int32_t micro_batch, std::span<std::byte* const> inputs) {
        const Program& program = session_.compiled().program;
        fill_inputs(program, batches_.of(step), program.first_sample + micro_batch * program.micro_batch_samples,
                    inputs);
    };
}

void StepsUnderWay::begin(bool stop, runtime::TraceRecorder* recorder) {
    const Given& given = given_.emplace_back(prepare(stop));
    work_.run([&] { session_.executor().begin(given.scalars, loader(given.scalars.step), recorder); });
}

DoneStep StepsUnderWay::finish() {
    StepScalars results;
    work_.run([&] { results = session_.executor().finish(); });
    const Given given = given_.front();
    given_.pop_front();
    return done(given, results);
}

DoneStep StepsUnderWay::run(bool stop, const runtime::Executor::Observer& observer) {
    const Given given = prepare(stop);
    StepScalars results;
    work_.run([&] { results = session_.executor().step(given.scalars, loader(given.scalars.step), observer); });
    return done(given, results);
}

// A step waits for the one before; the host may hear of its end much later, when it has given the next.
DoneStep StepsUnderWay::done(const Given& given, const StepScalars& results) {
    const Seconds end = session_.executor().finished_at(), start = std::max(given.start, last_done_);
    last_done_ = end;
    return {.scalars = results, .tokens = given.tokens, .duration = {end.count - start.count}};
}

StepScalars StepsUnderWay::read_again(std::int64_t step) {
    read(step);
    StepScalars scalars = scalars_of(step);
    scalars.inverse_tokens = 1.0 / static_cast<double>(batches_.tokens_of(step));
    return scalars;
}

} // namespace tutti::train
