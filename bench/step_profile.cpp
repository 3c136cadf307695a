// Where the time of a training step goes: seconds and rate per operator, for a model and batch given as in `tutti
// train`.
//   step_profile MODEL SEQUENCE BATCH [float32|bf16] [threads]
#include "checkpoints/weights.h"
#include "ops/operators.h"
#include "train/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>

namespace tutti {

using namespace checkpoints;
using namespace comm;
using namespace offload;
using namespace ops;
using namespace run;
using namespace runtime;
using namespace train;
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Row {
    double seconds = 0, flops = 0, bytes = 0;
    int calls = 0;
};

Cost cost_of(const Instruction& instruction) {
    std::vector<TensorType> inputs, outputs;
    for (const Argument& in : instruction.inputs) inputs.push_back(in.type);
    for (const Argument& out : instruction.outputs) outputs.push_back(out.type);
    return all_operators().at(instruction.op).cost(inputs, outputs, instruction.attributes);
}

void profile(const RunConfig& config) {
    TrainListener silent;
    const std::unique_ptr<World> world = make_single_world();
    Session session(config, silent, *world);
    const auto memory = session.device().allocate(session.device_memory());
    const ModelData data = session.model_data(memory->data());
    session.executor().bind(data, session.scratch_in(*memory));
    initialise_weights(session.stored(), session.initialisation(), 0, data);
    Batches batches(session.data().training, config, session.facts(), session.plan().workload.global_batch);
    StepScalars scalars;
    scalars.inverse_tokens = 1.0 / static_cast<double>(batches.read(0));
    scalars.learning_rate = 1e-5;
    const Executor::Load load = [&](std::int32_t micro, std::span<std::byte* const> inputs) {
        fill_inputs(session.compiled().program, batches, micro * session.plan().workload.micro_batch, inputs);
    };
    session.executor().step(scalars, load); // touches every page
    constexpr int steps = 3;
    double whole = 1e30;
    for (int i = 0; i < steps; ++i) {
        const double start = now();
        session.executor().step(scalars, load);
        whole = std::min(whole, now() - start);
    }
    std::map<std::string, Row> rows;
    for (int i = 0; i < steps; ++i) {
        double last = now();
        session.executor().step(
            scalars, load, [&](const Task&, bool) { last = now(); },
            [&](const Task&, const Instruction& instruction) {
                Row& row = rows[instruction.op];
                const Cost cost = cost_of(instruction);
                row.seconds += (now() - last) / steps;
                row.flops += cost.flops.count / steps;
                row.bytes += static_cast<double>(cost.bytes.count) / steps;
                row.calls += 1;
                last = now();
            });
    }
    std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
    std::ranges::sort(sorted, std::greater{}, [](const auto& row) { return row.second.seconds; });
    double total = 0;
    for (const auto& [op, row] : sorted) total += row.seconds;
    const auto tokens = static_cast<double>(session.plan().workload.global_batch * session.plan().workload.sequence);
    fmt::print("{} step {:.3f} s, {:.0f} tokens/s, {:.1f} GFLOP/s over the whole step\n", config.model, whole,
               tokens / whole, session.flops_per_step() / whole / 1e9);
    fmt::print("{:28} {:>6} {:>9} {:>7} {:>9} {:>8}\n", "operator", "calls", "ms", "share", "GFLOP/s", "GB/s");
    for (const auto& [op, row] : sorted)
        fmt::print("{:28} {:6} {:9.2f} {:6.1f}% {:9.1f} {:8.1f}\n", op, row.calls / steps, row.seconds * 1e3,
                   100 * row.seconds / total, row.flops / row.seconds / 1e9, row.bytes / row.seconds / 1e9);
}

} // namespace
} // namespace tutti

int main(int count, char** arguments) {
    tutti::run::RunConfig config;
    config.model = count > 1 ? arguments[1] : "gpt2";
    config.workload.sequence = count > 2 ? std::atoll(arguments[2]) : 256;
    config.workload.global_batch = count > 3 ? std::atoll(arguments[3]) : 4;
    if (count > 4) config.precision.compute = tutti::parse_dtype(arguments[4]).value_or(tutti::DType::float32);
    if (count > 5) config.device = arguments[5];
    if (count > 6) config.threads = std::atoi(arguments[6]);
    tutti::profile(config);
}
