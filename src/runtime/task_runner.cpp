#include "runtime/task_runner.h"

#include "base/error.h"

namespace tutti::runtime {

TaskRunner::TaskRunner(const Program& program, const ProgramMachine& machine, backend::Queue& queue, DeviceWaits& waits,
                       StepTimer& timer)
    : program_(program), machine_(machine), queue_(queue), waits_(waits), prepared_(prepare_program(program, machine)),
      memory_(program, prepared_.workspace), communication_(program, timer), host_updates_(machine.host, prepared_),
      deferred_(program) {}

void TaskRunner::bind(const offload::ModelData& data, std::byte* scratch, offload::Residence* residence) {
    memory_.bind(data, scratch);
    residence_ = residence;
    host_updates_.allocate(machine_.device);
}

void TaskRunner::begin_step() {
    host_updates_.scalars_changed();
    if (residence_) residence_->begin_step();
}

void TaskRunner::run(const Task& task, const Probe& probe) {
    await(task);
    PreparedSegment& segment = prepared_.of(task);
    communication_.begin_segment(segment.instructions.size());
    for (std::size_t i = 0; i < segment.instructions.size(); ++i) {
        PreparedInstruction& one = segment.instructions[i];
        communication_.finish_for(*one.instruction);
        if (!is_run_by(*one.instruction, task)) continue;
        waits_.keep_pace();
        const bool is_time_point = residence_ && one.touches_chunks;
        if (is_time_point) {
            if (one.ends_with_task) communication_.make_room_for_chunks();
            residence_->before(queue_);
        }
        const bool skipped = (probe && one.updates_weights) || (one.instruction->of_last_step && !deferred_.pending());
        if (!skipped) run(task, one, i);
        if (probe && one.kind != WorkKind::host_kernel) {
            waits_.drain();
            probe(task, *one.instruction);
        }
        if (is_time_point) residence_->after(queue_);
    }
    communication_.finish_segment();
    if (residence_ && segment.ends_with_time_point) end_chunk_collectives();
}

void TaskRunner::run(const Task& task, PreparedInstruction& one, std::size_t number) {
    if (one.kind != WorkKind::host_kernel) bind(task, one);
    switch (one.kind) {
    case WorkKind::device_kernel: return compute(task, one);
    case WorkKind::host_kernel: return host_updates_.start(one, memory_, queue_, *residence_);
    case WorkKind::communication: return communicate(task, one, number);
    case WorkKind::local_send: sent_.push_back(one.inputs[0]); return;
    case WorkKind::local_receive: return take_from_own_stage(one);
    }
}

void TaskRunner::bind(const Task& task, PreparedInstruction& one) const {
    memory_.find(one.instruction->inputs, task, std::span(one.inputs));
    memory_.find(one.instruction->outputs, task, std::span(one.outputs));
}

backend::Launch TaskRunner::launch_of(const PreparedInstruction& one) const {
    return {.inputs = one.inputs,
            .outputs = one.outputs,
            .workspace = memory_.workspace(),
            .scalars = one.instruction->of_last_step ? memory_.deferred_scalars() : memory_.scalars(),
            .queue = &queue_};
}

void TaskRunner::compute(const Task& task, const PreparedInstruction& one) {
    backend::Launch launch = launch_of(one);
    launch.samples_before = program_.first_sample + task.micro_batch * program_.micro_batch_samples;
    (accumulates(*one.instruction, task) ? *one.accumulate : *one.write).run(launch);
    if (one.sets_scalars) host_updates_.scalars_changed();
}

void TaskRunner::communicate(const Task& task, PreparedInstruction& one, std::size_t number) {
    Communication& communication = one.communications.free_one(*one.instruction, machine_.device, route_);
    communication.start(one.inputs, one.outputs, queue_);
    if (residence_ && one.ends_with_task) communication_.add_of_chunks(communication);
    if (task.kind == TaskKind::send || task.kind == TaskKind::receive)
        communication_.started_message(task, communication);
    else if (one.is_detached)
        communication_.started_detached(communication);
    else
        communication_.started(number, communication);
}

// The send before it has left word of where its values lie.
void TaskRunner::take_from_own_stage(const PreparedInstruction& receive) {
    const std::byte* from = sent_.front();
    sent_.erase(sent_.begin());
    backend::Launch launch = launch_of(receive);
    launch.inputs = {&from, 1};
    receive.write->run(launch);
}

// Collectives of chunks end with their task: it is a time point of its own, until which the chunks stay on the device.
void TaskRunner::end_chunk_collectives() {
    residence_->before(queue_);
    communication_.finish_of_chunks();
    residence_->after(queue_);
}

// A step that probes updates nothing, and leaves nothing to update.
void TaskRunner::end_step(bool probes) {
    communication_.finish_all();
    if (residence_) residence_->end_step();
    if (!probes) deferred_.leave(memory_, queue_);
}

void TaskRunner::complete_deferred_updates() {
    if (!deferred_.pending()) return;
    TUTTI_CHECK(residence_ != nullptr, "updates were left to the next step, and all model data is on the device");
    deferred_.complete(prepared_, queue_, *residence_, [this](const Task& task, PreparedInstruction& one) {
        bind(task, one);
        compute(task, one);
    });
}

// Kernels are loaded when they first run, and a driver may let everything come to an end on the device before: where
// that is an operation that waits for a rank that waits for this one, never. So the first step goes by way of the host,
// and devices communicate by themselves when all ranks have run all kernels.
void TaskRunner::use_links() {
    if (machine_.links == nullptr || route_ == Route::links) return;
    waits_.drain();
    machine_.links->meet();
    for (PreparedSegment& segment : prepared_.segments)
        for (PreparedInstruction& one : segment.instructions) one.communications.clear();
    route_ = Route::links;
}

} // namespace tutti::runtime
