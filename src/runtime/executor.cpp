#include "runtime/executor.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/measure.h"
#include "memory/liveness.h"
#include "offload/execution/residence.h"
#include "offload/moments.h"
#include "runtime/device_exchange.h"
#include "runtime/prepare.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::runtime {
namespace {

// The scalars lie at the start of the scratch.
constexpr std::int64_t scalars_bytes = memory::buffer_alignment;
static_assert(2 * sizeof(StepScalars) <= scalars_bytes); // and those that updates left by a step read

// From one stage of this rank to the next: a copy.
Instruction copy_of(const Instruction& receive) {
    Instruction copy{.op = "contiguous", .inputs = receive.outputs, .outputs = receive.outputs};
    return copy;
}

} // namespace

Executor::Executor(const Program& program, const backend::Device& device, GroupTable& groups, DeviceLinks* links,
                   const backend::Device* host)
    : program_(&program), device_(&device), links_(links), map_(program, {scalars_bytes}) {
    if (links != nullptr) links->connect(program);
    auto largest = [this](const std::unique_ptr<backend::Kernel>& kernel) {
        if (kernel) workspace_ = std::max(workspace_, kernel->workspace());
    };
    std::size_t norms = 0;
    for (const Segment& segment : program.segments) {
        norms += static_cast<std::size_t>(std::ranges::count(segment.instructions, "finish_norm", &Instruction::op));
        leaves_ += std::ranges::count(segment.instructions, true, &Instruction::of_last_step);
        std::vector<Prepared>& prepared = segments_.emplace_back();
        for (const Instruction& instruction : segment.instructions) {
            Prepared& one = prepared.emplace_back();
            one.instruction = &instruction;
            one.touches_chunks = offload::touches_chunks(instruction);
            one.inputs.resize(instruction.inputs.size());
            one.outputs.resize(instruction.outputs.size());
            if (instruction.lane == Lane::communication) {
                comm::Group& group = groups.at(program.groups[static_cast<std::size_t>(instruction.group)]);
                if (instruction.peer != group.rank()) {
                    one.group = &group;
                    if (links != nullptr) one.link = &links->at(program, instruction);
                } else if (instruction.op == "receive") {
                    one.write = prepare(device, copy_of(instruction), false);
                }
                largest(one.write);
                continue;
            }
            if (instruction.lane == Lane::host) {
                TUTTI_CHECK(host != nullptr, "{} runs on the host, and there is none", instruction.op);
                one.at_home = prepare(*host, instruction, false);
                if (const Bytes needed = one.at_home->workspace();
                    needed.count > 0 && (!workspace_at_home_ || workspace_at_home_->size() < needed))
                    workspace_at_home_ = host->allocate(needed);
                continue;
            }
            if (adds(instruction)) one.accumulate = prepare(device, instruction, true);
            if (!adds(instruction) || instruction.first_overwrites) one.write = prepare(device, instruction, false);
            largest(one.write);
            largest(one.accumulate);
        }
    }
    if (host != nullptr) scalars_at_home_.resize(static_cast<std::size_t>(most_begun) * norms);
    messages_.resize(program.step.size());
    buffers_ = map_.size();
    workspace_ = {round_up(workspace_.count, memory::buffer_alignment)};
    queue_ = device.make_queue();
}

std::byte* Executor::address(const Address& address, const Task& task) const {
    if (is_chunk(address.region)) return data_->chunk(address.region, address.chunk) + address.offset;
    if (address.region == Region::offloaded)
        return data_->chunk(address.region, piece_number(*program_, address, task)) + address.offset;
    return scratch_ + map_.offset(address, task);
}

const NamedBuffer& Executor::output(std::string_view name) const {
    const auto found = std::ranges::find(program_->outputs, name, &NamedBuffer::name);
    TUTTI_CHECK(found != program_->outputs.end(), "the program has no output {}", name);
    return *found;
}

void Executor::bind(const offload::ModelData& data, std::byte* scratch, offload::Residence* residence) {
    TUTTI_CHECK(begun_ == finished_ && !has_left_, "{} steps are under way", begun_ - finished_);
    if (data_ != &data || scratch_ != scratch) {
        recording_.reset();
        warm_ = false;
    }
    data_ = &data;
    scratch_ = scratch;
    residence_ = residence;
    if (!host_) {
        const std::int64_t each = 2 * scalars_bytes + map_.batch_bytes().count;
        host_ = device_->allocate_staging(
            {most_begun * each + static_cast<std::int64_t>(scalars_at_home_.size()) * scalars_bytes});
        std::byte* memory = host_->data();
        for (Staging& staging : staging_) staging.memory = std::exchange(memory, memory + each);
        for (ScalarsAtHome& scalars : scalars_at_home_)
            scalars.memory = reinterpret_cast<StepScalars*>(std::exchange(memory, memory + scalars_bytes));
    }
    for (const Task& task : program_->setup) run(task);
    settle();
}

// Copies scalars and tokens to the device.
void Executor::stage(Staging& staging, const StepScalars& scalars, const Load& load) {
    has_scalars_at_home_ = false;
    std::memcpy(staging.memory, &scalars, sizeof scalars);
    std::byte* const batch = staging.memory + 2 * scalars_bytes;
    std::vector<std::byte*> inputs(program_->inputs.size());
    for (const Task& task : program_->step) {
        if (task.kind != TaskKind::load) continue;
        for (std::size_t i = 0; i < inputs.size(); ++i)
            inputs[i] = batch + task.micro_batch * map_.batch_stride() + program_->inputs[i].buffer.address.offset;
        const Seconds begin = trace_ ? steady_now() : Seconds{};
        load(task.micro_batch, inputs);
        if (trace_) trace_->ran(number_of(task), begin, steady_now());
    }
    queue_->copy_in(scratch_, {staging.memory, sizeof scalars});
    queue_->copy_in(scratch_ + map_.batches(), {batch, static_cast<std::size_t>(map_.batch_bytes().count)});
}

void Executor::begin(const StepScalars& scalars, const Load& load, TraceRecorder* trace) {
    TUTTI_CHECK(begun_ - finished_ < most_begun, "{} steps are under way", begun_ - finished_);
    Staging& staging = staging_[static_cast<std::size_t>(begun_++ % most_begun)];
    trace_ = trace;
    if (trace_) {
        settle();
        trace_->begin_step(scalars.step);
    }
    stage(staging, scalars, load);
    if (warm_ && !recording_ && !trace_ && program_->groups.empty() && !residence_)
        recording_ = queue_->record([this] { run_tasks(); });
    if (recording_ && !trace_)
        queue_->replay(*recording_);
    else
        run_tasks();
    warm_ = true;
    if (links_ != nullptr && !linked_) link();
    queue_->copy_out({staging.memory + scalars_bytes, sizeof scalars}, scratch_);
    queue_->note_time(staging.finished);
    staging.done = queue_->mark();
    if (trace_) trace_->end_step();
    trace_ = nullptr;
}

StepScalars Executor::finish() {
    TUTTI_CHECK(finished_ < begun_, "no step is under way");
    Staging& staging = staging_[static_cast<std::size_t>(finished_++ % most_begun)];
    wait(*staging.done);
    staging.done.reset();
    finished_at_ = staging.finished;
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
    if (residence_) residence_->begin_step();
    for (const Task& task : program_->step) {
        settle();
        if (task.kind == TaskKind::norm) finish_detached();
        if (observer) observer(task, false);
        if (task.kind != TaskKind::load) run(task, probe);
        settle();
        if (observer) observer(task, true);
    }
    finish_all();
    if (!probe) leave_updates();
    StepScalars results;
    queue_->copy_out({staging_[0].memory, sizeof results}, scratch_);
    settle();
    std::memcpy(&results, staging_[0].memory, sizeof results);
    finished_at_ = steady_now();
    return results;
}

void Executor::run_tasks() {
    if (residence_) residence_->begin_step();
    for (const Task& task : program_->step) {
        if (task.kind == TaskKind::load) continue;
        if (trace_)
            run_traced(task);
        else
            run(task);
    }
    if (trace_) trace_->turn_to(-1);
    finish_all();
    leave_updates();
}

// They need this step's scalars.
void Executor::leave_updates() {
    if (leaves_ == 0) return;
    constexpr std::int64_t bytes = sizeof(StepScalars);
    queue_->copy_blocks(reinterpret_cast<std::byte*>(left_scalars()), bytes, scratch_, bytes, bytes, 1);
    has_left_ = true;
}

// Goes through the step without computing anything else, as far as there are updates.
void Executor::complete_updates() {
    if (!has_left_) return;
    TUTTI_CHECK(residence_ != nullptr && begun_ == finished_, "{} steps are under way", begun_ - finished_);
    residence_->begin_step();
    std::int64_t left = leaves_;
    for (const Task& task : program_->step) {
        if (task.segment < 0) continue;
        for (Prepared& one : segments_[static_cast<std::size_t>(task.segment)]) {
            if (left == 0 || !is_run_by(*one.instruction, task) || !one.touches_chunks) continue;
            residence_->before(*queue_);
            if (one.instruction->of_last_step) {
                bind(task, one);
                compute(task, one);
                --left;
            }
            residence_->after(*queue_);
        }
        if (left == 0) break;
        if (!offload::ends_with_moment(program_->segments[static_cast<std::size_t>(task.segment)])) continue;
        residence_->before(*queue_);
        residence_->after(*queue_);
    }
    has_left_ = false;
    residence_->leave();
}

void Executor::run_traced(const Task& task) {
    trace_->turn_to(number_of(task));
    await(task);
    settle();
    const Seconds begin = steady_now();
    run(task);
    settle();
    trace_->ran(number_of(task), begin, steady_now());
}

void Executor::finish(Exchange& exchange) {
    if (!trace_ || !exchange.under_way()) return exchange.finish();
    settle();
    const Seconds begin = steady_now();
    exchange.finish();
    settle();
    trace_->wait(exchange.instruction(), begin, steady_now());
}

void Executor::finish_message(std::int32_t task) {
    std::vector<Exchange*>& messages = messages_[static_cast<std::size_t>(task)];
    for (Exchange* message : messages) finish(*message);
    messages.clear();
}

void Executor::finish_detached() {
    for (Exchange* exchange : detached_) finish(*exchange);
    detached_.clear();
}

// Messages that nobody here waits for, and what was detached.
void Executor::finish_all() {
    for (std::size_t task = 0; task < messages_.size(); ++task) finish_message(static_cast<std::int32_t>(task));
    finish_detached();
    if (residence_) residence_->end_step();
}

void Executor::wait(const backend::Event& event) {
    if (links_ != nullptr)
        links_->wait(event);
    else
        event.synchronize();
}

void Executor::settle() { wait(*queue_->mark()); }

// Kernels are loaded when they first run, and a driver may let everything come to an end on the device before: where
// that is an operation that waits for a rank that waits for this one, never. So the first step goes by way of the host,
// and devices exchange data by themselves when all ranks have run all kernels.
void Executor::link() {
    settle();
    links_->meet();
    for (std::vector<Prepared>& segment : segments_)
        for (Prepared& one : segment) one.exchanges.clear();
    linked_ = true;
}

// A driver takes about a thousand pieces of work and then blocks whoever gives it more. Where the device waits for a
// rank that has died, that would be for ever, and nobody would watch over the links. So the host goes fewer
// instructions ahead than that.
void Executor::keep_pace() {
    constexpr std::int64_t stretch = 128;
    if (links_ == nullptr || ++given_ % stretch != 0) return;
    if (last_pace_) wait(*last_pace_);
    last_pace_ = queue_->mark();
}

void Executor::bind(const Task& task, Prepared& one) const {
    for (std::size_t i = 0; i < one.inputs.size(); ++i)
        one.inputs[i] = address(one.instruction->inputs[i].address, task);
    for (std::size_t i = 0; i < one.outputs.size(); ++i)
        one.outputs[i] = address(one.instruction->outputs[i].address, task);
}

// One that is free.
Exchange& Executor::exchange(Prepared& one) {
    const auto free = std::ranges::find_if(one.exchanges, [](const auto& each) { return !each->under_way(); });
    if (free != one.exchanges.end()) return **free;
    if (linked_)
        one.exchanges.push_back(std::make_unique<DeviceExchange>(*one.instruction, *one.link));
    else
        one.exchanges.push_back(std::make_unique<HostExchange>(*one.instruction, *one.group, *device_));
    return *one.exchanges.back();
}

// What a task needs from other ranks before it can begin.
void Executor::await(const Task& task) {
    for (std::int32_t wait : task.waits) finish_message(wait);
    if (task.kind == TaskKind::reduce || task.kind == TaskKind::norm) finish_detached();
}

void Executor::run(const Task& task, const Probe& probe) {
    const bool in_step = &task >= program_->step.data() && &task < program_->step.data() + program_->step.size();
    const bool is_message = task.kind == TaskKind::send || task.kind == TaskKind::receive;
    await(task);
    std::vector<Prepared>& segment = segments_[static_cast<std::size_t>(task.segment)];
    under_way_.assign(segment.size(), nullptr);
    for (std::size_t i = 0; i < segment.size(); ++i) {
        Prepared& one = segment[i];
        const Instruction& instruction = *one.instruction;
        for (std::int32_t wait : instruction.waits)
            if (Exchange* exchange = under_way_[static_cast<std::size_t>(wait)]) finish(*exchange);
        if (!is_run_by(instruction, task)) continue;
        keep_pace();
        if (residence_ && one.touches_chunks) {
            if (offload::ends_with_task(*program_, instruction)) finish_oldest_of_chunks();
            residence_->before(*queue_);
        }
        // Who looks for trouble changes nothing; and the step before may have left nothing.
        const bool left_out = (probe && instruction.op == "adamw") || (instruction.of_last_step && !has_left_);
        if (instruction.lane == Lane::host) {
            if (!left_out) compute_at_home(one);
            residence_->after(*queue_);
            continue;
        }
        bind(task, one);
        if (instruction.lane != Lane::communication) {
            if (!left_out) compute(task, one);
        } else if (one.group == nullptr) {
            hand_over(one);
        } else {
            Exchange& started = exchange(one);
            started.start(one.inputs, one.outputs, *queue_);
            if (residence_ && offload::ends_with_task(*program_, instruction)) of_chunks_.push_back(&started);
            if (is_message && in_step)
                messages_[static_cast<std::size_t>(number_of(task))].push_back(&started);
            else if (is_detached(instruction))
                detached_.push_back(&started);
            else
                under_way_[i] = &started;
        }
        if (probe) {
            settle();
            probe(task, instruction);
        }
        if (residence_ && one.touches_chunks) residence_->after(*queue_);
    }
    for (Exchange* exchange : under_way_)
        if (exchange != nullptr) finish(*exchange);
    if (!residence_ || !offload::ends_with_moment(program_->segments[static_cast<std::size_t>(task.segment)])) return;
    // Chunks that are exchanged stay until then.
    residence_->before(*queue_);
    for (Exchange* exchange : of_chunks_) finish(*exchange);
    of_chunks_.clear();
    residence_->after(*queue_);
}

// Where chunks come and go, few of them are exchanged at a time.
void Executor::finish_oldest_of_chunks() {
    std::erase_if(of_chunks_, [](const Exchange* exchange) { return !exchange->under_way(); });
    if (of_chunks_.size() < offload::most_chunk_exchanges) return;
    finish(*of_chunks_.front());
    of_chunks_.erase(of_chunks_.begin());
}

void Executor::compute(const Task& task, Prepared& one) {
    const backend::Kernel& kernel = accumulates(*one.instruction, task) ? *one.accumulate : *one.write;
    kernel.run({.inputs = one.inputs,
                .outputs = one.outputs,
                .workspace = scratch_ + buffers_.count,
                .scalars = one.instruction->of_last_step ? left_scalars() : device_scalars(),
                .samples_before = program_->first_sample + task.micro_batch * program_->micro_batch_samples,
                .queue = queue_.get()});
    if (one.instruction->op == "finish_norm") has_scalars_at_home_ = false;
}

// On chunks where they are at home, when the queue has come as far as here; nobody waits for it but those who bring the
// chunks back.
void Executor::compute_at_home(const Prepared& one) {
    if (!has_scalars_at_home_) {
        ScalarsAtHome& next = scalars_at_home_[++copied_home_ % scalars_at_home_.size()];
        if (next.used) next.used->synchronize();
        queue_->copy_out(std::as_writable_bytes(std::span(next.memory, 1)), scratch_);
        next.there = queue_->mark();
        has_scalars_at_home_ = true;
    }
    ScalarsAtHome& scalars = scalars_at_home_[copied_home_ % scalars_at_home_.size()];
    auto at_home = [&](const Argument& argument) {
        return residence_->memory_at_home({argument.address.region, argument.address.chunk}) + argument.address.offset;
    };
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (const Argument& input : one.instruction->inputs) inputs.push_back(at_home(input));
    for (const Argument& output : one.instruction->outputs) outputs.push_back(at_home(output));
    scalars.used =
        residence_->work_at_home([kernel = one.at_home.get(), inputs = std::move(inputs), outputs = std::move(outputs),
                                  workspace = workspace_at_home_ ? workspace_at_home_->data() : nullptr,
                                  memory = scalars.memory, there = scalars.there] {
            there->synchronize();
            kernel->run({.inputs = inputs, .outputs = outputs, .workspace = workspace, .scalars = memory});
        });
}

// A send leaves word of where its values lie; the receive that follows copies them.
void Executor::hand_over(Prepared& one) {
    if (one.instruction->op == "send") {
        handed_over_.push_back(one.inputs[0]);
        return;
    }
    const std::byte* from = handed_over_.front();
    handed_over_.erase(handed_over_.begin());
    one.write->run({.inputs = {&from, 1},
                    .outputs = one.outputs,
                    .workspace = scratch_ + buffers_.count,
                    .scalars = device_scalars(),
                    .queue = queue_.get()});
}

} // namespace tutti::runtime
