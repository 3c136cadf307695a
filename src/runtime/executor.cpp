#include "runtime/executor.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

std::unique_ptr<Kernel> prepare(const Device& device, const Instruction& instruction, bool accumulate) {
    KernelRequest request{.op = instruction.op,
                          .attributes = instruction.attributes,
                          .inputs = {},
                          .outputs = {},
                          .accumulate = accumulate,
                          .source = instruction.source};
    for (const Argument& input : instruction.inputs) request.inputs.push_back({input.type, input.strides});
    for (const Argument& output : instruction.outputs) request.outputs.push_back({output.type, output.strides});
    return device.prepare(request);
}

// The scalars lie at the start of the scratch.
constexpr std::int64_t scalars_bytes = buffer_alignment;
static_assert(sizeof(StepScalars) <= scalars_bytes);

// From one copy of a region to the next.
std::int64_t stride(const Program& program, Region region) {
    return round_up(program.sizes[static_cast<std::size_t>(region)].count, buffer_alignment);
}

} // namespace

Executor::Executor(const Program& program, const Device& device) : program_(&program), device_(&device) {
    auto largest = [this](const std::unique_ptr<Kernel>& kernel) {
        if (kernel) workspace_ = std::max(workspace_, kernel->workspace());
    };
    for (const Segment& segment : program.segments) {
        std::vector<Prepared>& prepared = segments_.emplace_back();
        for (const Instruction& instruction : segment.instructions) {
            const bool adds = std::ranges::any_of(instruction.outputs,
                                                  [](const Argument& out) { return out.access == Access::accumulate; });
            Prepared& one = prepared.emplace_back();
            one.instruction = &instruction;
            one.inputs.resize(instruction.inputs.size());
            one.outputs.resize(instruction.outputs.size());
            if (adds) one.accumulate = prepare(device, instruction, true);
            if (!adds || instruction.first_overwrites) one.write = prepare(device, instruction, false);
            largest(one.write);
            largest(one.accumulate);
        }
    }
    std::int64_t end = scalars_bytes;
    for (std::size_t r = 0; r < region_count; ++r) {
        const auto region = static_cast<Region>(r);
        if (is_chunk(region)) continue;
        offsets_[r] = end;
        end += copies(program, region) * stride(program, region);
    }
    buffers_ = {end};
    workspace_ = {round_up(workspace_.count, buffer_alignment)};
    queue_ = device.make_queue();
}

std::byte* Executor::address(const Address& address, const Task& task) const {
    if (is_chunk(address.region)) return data_->chunk(address.region, address.chunk) + address.offset;
    return scratch_ + offsets_[static_cast<std::size_t>(address.region)] +
           copy_of(task, address.region) * stride(*program_, address.region) + address.offset;
}

const NamedBuffer& Executor::output(std::string_view name) const {
    const auto found = std::ranges::find(program_->outputs, name, &NamedBuffer::name);
    TUTTI_CHECK(found != program_->outputs.end(), "the program has no output {}", name);
    return *found;
}

Bytes Executor::batches() const { return {copies(*program_, Region::batch) * stride(*program_, Region::batch)}; }

void Executor::bind(const ModelData& data, std::byte* scratch) {
    TUTTI_CHECK(begun_ == finished_, "{} steps are under way", begun_ - finished_);
    if (data_ != &data || scratch_ != scratch) {
        recording_.reset();
        warm_ = false;
    }
    data_ = &data;
    scratch_ = scratch;
    if (!host_) {
        const std::int64_t each = 2 * scalars_bytes + batches().count;
        host_ = device_->allocate_staging({most_begun * each});
        for (std::size_t i = 0; i < staging_.size(); ++i)
            staging_[i].memory = host_->data() + static_cast<std::int64_t>(i) * each;
    }
    for (const Task& task : program_->setup) run(task);
    queue_->synchronize();
}

// Copies scalars and tokens to the device.
void Executor::stage(Staging& staging, const StepScalars& scalars, const Load& load) {
    std::memcpy(staging.memory, &scalars, sizeof scalars);
    std::byte* const batch = staging.memory + 2 * scalars_bytes;
    std::vector<std::byte*> inputs(program_->inputs.size());
    for (const Task& task : program_->step) {
        if (task.kind != TaskKind::load) continue;
        for (std::size_t i = 0; i < inputs.size(); ++i)
            inputs[i] =
                batch + task.micro_batch * stride(*program_, Region::batch) + program_->inputs[i].buffer.address.offset;
        load(task.micro_batch, inputs);
    }
    queue_->copy_in(scratch_, {staging.memory, sizeof scalars});
    const auto region = static_cast<std::size_t>(Region::batch);
    queue_->copy_in(scratch_ + offsets_[region], {batch, static_cast<std::size_t>(batches().count)});
}

void Executor::begin(const StepScalars& scalars, const Load& load) {
    TUTTI_CHECK(begun_ - finished_ < most_begun, "{} steps are under way", begun_ - finished_);
    Staging& staging = staging_[static_cast<std::size_t>(begun_++ % most_begun)];
    stage(staging, scalars, load);
    if (warm_ && !recording_) recording_ = queue_->record([this] { run_tasks(); });
    if (recording_)
        queue_->replay(*recording_);
    else
        run_tasks();
    warm_ = true;
    queue_->copy_out({staging.memory + scalars_bytes, sizeof scalars}, scratch_);
    staging.done = queue_->mark();
}

StepScalars Executor::finish() {
    TUTTI_CHECK(finished_ < begun_, "no step is under way");
    Staging& staging = staging_[static_cast<std::size_t>(finished_++ % most_begun)];
    staging.done->synchronize();
    staging.done.reset();
    StepScalars scalars;
    std::memcpy(&scalars, staging.memory + scalars_bytes, sizeof scalars);
    return scalars;
}

StepScalars Executor::step(const StepScalars& scalars, const Load& load) {
    begin(scalars, load);
    return finish();
}

StepScalars Executor::step(const StepScalars& scalars, const Load& load, const Observer& observer, const Probe& probe) {
    TUTTI_CHECK(begun_ == finished_, "{} steps are under way", begun_ - finished_);
    stage(staging_[0], scalars, load);
    for (const Task& task : program_->step) {
        queue_->synchronize();
        if (observer) observer(task, false);
        if (task.kind != TaskKind::load) run(task, probe);
        queue_->synchronize();
        if (observer) observer(task, true);
    }
    StepScalars results;
    queue_->copy_out({staging_[0].memory, sizeof results}, scratch_);
    queue_->synchronize();
    std::memcpy(&results, staging_[0].memory, sizeof results);
    return results;
}

void Executor::run_tasks() {
    for (const Task& task : program_->step)
        if (task.kind != TaskKind::load) run(task);
}

void Executor::run(const Task& task, const Probe& probe) {
    std::byte* const workspace = scratch_ + buffers_.count;
    for (Prepared& one : segments_[static_cast<std::size_t>(task.segment)]) {
        const Instruction& instruction = *one.instruction;
        for (std::size_t i = 0; i < one.inputs.size(); ++i)
            one.inputs[i] = address(instruction.inputs[i].address, task);
        for (std::size_t i = 0; i < one.outputs.size(); ++i)
            one.outputs[i] = address(instruction.outputs[i].address, task);
        const bool first = instruction.first_overwrites && task.micro_batch == 0;
        const Kernel& kernel = one.accumulate && !first ? *one.accumulate : *one.write;
        kernel.run({.inputs = one.inputs,
                    .outputs = one.outputs,
                    .workspace = workspace,
                    .scalars = device_scalars(),
                    .samples_before = task.micro_batch * program_->micro_batch_samples,
                    .queue = queue_.get()});
        if (!probe) continue;
        queue_->synchronize();
        probe(task, instruction);
    }
}

} // namespace tutti
