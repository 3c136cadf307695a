#include "offload/time_points.h"

#include "base/checked.h"
#include "memory/chunks.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tutti::offload {

bool touches_chunks(const Instruction& instruction) {
    auto touches = [](const Argument& argument) { return may_be_offloaded(argument.address.region); };
    return std::ranges::any_of(instruction.inputs, touches) || std::ranges::any_of(instruction.outputs, touches);
}

namespace {

bool communicates_chunks(const Instruction& instruction) {
    return instruction.lane == Lane::communication && touches_chunks(instruction);
}

} // namespace

bool ends_with_task(const Program& program, const Instruction& instruction) {
    return communicates_chunks(instruction) && !program.groups[static_cast<std::size_t>(instruction.group)].across_pipe;
}

bool ends_with_time_point(const Segment& segment) {
    return std::ranges::any_of(segment.instructions, communicates_chunks);
}

namespace {

class Finder {
  public:
    Finder(const Program& program, const InstructionSeconds& seconds,
           const std::function<bool(const ChunkResident&)>& always_on_device)
        : program_(program), seconds_(seconds), always_on_device_(always_on_device) {}

    StepTimePoints run() {
        for (const Task& task : program_.step)
            if (task.segment >= 0) run(task, program_.segments[static_cast<std::size_t>(task.segment)]);
        if (result_.problem.seconds.empty()) {
            result_.problem.seconds.push_back(0);
            result_.tasks.push_back(0);
        }
        result_.problem.seconds.front() += waiting_; // what no time point came before
        return std::move(result_);
    }

  private:
    void run(const Task& task, const Segment& segment) {
        if (task.kind == TaskKind::reduce || task.kind == TaskKind::norm) end_all(detached_);
        Communications under_way, unlimited;
        task_ = narrow<std::int32_t>(&task - program_.step.data());
        if (task.kind == TaskKind::forward) written_.clear();
        for (std::size_t i = 0; i < segment.instructions.size(); ++i) {
            const Instruction& instruction = segment.instructions[i];
            for (std::int32_t wait : instruction.waits) {
                end(under_way, wait);
                end(unlimited, wait);
            }
            if (!is_run_by(instruction, task)) continue;
            if (!touches_chunks(instruction)) {
                (result_.problem.seconds.empty() ? waiting_ : result_.problem.seconds.back()) +=
                    seconds_of(instruction, task);
                continue;
            }
            const bool limited = ends_with_task(program_, instruction);
            if (limited && under_way.size() == most_chunk_communications) end(under_way, under_way.begin()->first);
            const double seconds = seconds_of(instruction, task);
            if (instruction.lane == Lane::host) {
                const std::int32_t time_point = begin(0, {&under_way, &unlimited});
                result_.problem.on_host.resize(static_cast<std::size_t>(time_point) + 1);
                result_.problem.on_host.back() = seconds;
                use(time_point, instruction);
                continue;
            }
            use(begin(seconds, {&under_way, &unlimited}), instruction);
            if (!communicates_chunks(instruction)) continue;
            if (!limited && is_detached(instruction))
                detached_[next_++] = &instruction;
            else
                (limited ? under_way : unlimited)[narrow<std::int32_t>(i)] = &instruction;
        }
        if (ends_with_time_point(segment)) begin(0, {&under_way, &unlimited});
    }

    // Micro-batches do the same.
    double seconds_of(const Instruction& instruction, const Task& task) {
        const auto [at, is_new] = known_.try_emplace({&instruction, accumulates(instruction, task)});
        if (is_new) at->second = seconds_(instruction, task);
        return at->second;
    }

    using Communications = std::map<std::int32_t, const Instruction*>; // under way, by their place

    // A communication that ends before the next time point: that one still uses its chunks.
    void end(Communications& communications, std::int32_t place) {
        const auto at = communications.find(place);
        if (at == communications.end()) return;
        ending_.push_back(at->second);
        communications.erase(at);
    }
    void end_all(Communications& communications) {
        while (!communications.empty()) end(communications, communications.begin()->first);
    }

    std::int32_t begin(double seconds, std::initializer_list<const Communications*> communications) {
        result_.problem.seconds.push_back(seconds);
        result_.tasks.push_back(task_);
        const auto time_point = narrow<std::int32_t>(result_.problem.seconds.size() - 1);
        for (const Communications* some : communications)
            for (const auto& [place, communication] : *some) use(time_point, *communication);
        for (const auto& [place, communication] : detached_) use(time_point, *communication);
        for (const Instruction* communication : ending_) use(time_point, *communication);
        ending_.clear();
        return time_point;
    }

    void use(std::int32_t time_point, const Instruction& instruction) {
        for (const Argument& input : instruction.inputs) use(time_point, instruction, input, Access::read);
        // An operand is a part of its chunk, so writing it leaves the rest.
        for (const Argument& output : instruction.outputs) use(time_point, instruction, output, Access::accumulate);
    }

    void use(std::int32_t time_point, const Instruction& instruction, const Argument& argument, Access access) {
        if (!may_be_offloaded(argument.address.region)) return;
        ChunkResident resident{argument.address.region, argument.address.chunk};
        const Task& task = program_.step[static_cast<std::size_t>(task_)];
        if (resident.region == Region::offloaded) {
            resident.chunk = piece_number(program_, argument.address, task);
            // A forward begins with nothing of it.
            if (task.kind == TaskKind::forward && written_.insert(resident.chunk).second) access = Access::write;
        }
        // Gradient contents are dead between steps, except those of updates that the step before left: a chunk begins
        // as zeros.
        if (resident.region == Region::gradients && !instruction.of_last_step && begun_.insert(resident.chunk).second)
            access = Access::write;
        if (always_on_device_ && always_on_device_(resident)) return;
        const auto [at, is_new] =
            numbers_.try_emplace({resident.region, resident.chunk}, narrow<std::int32_t>(result_.residents.size()));
        if (is_new) {
            result_.residents.push_back(resident);
            result_.problem.residents.push_back(size_of_resident(resident, argument.address, task));
        }
        result_.problem.uses.push_back({time_point, at->second, access, instruction.lane == Lane::host});
    }

    Bytes size_of_resident(const ChunkResident& resident, const Address& address, const Task& task) const {
        if (resident.region == Region::offloaded)
            return program_.stages[static_cast<std::size_t>(task.local)]
                .pieces[static_cast<std::size_t>(address.chunk)];
        const Range owned = program_.owned_of(resident.region, resident.chunk);
        const DType dtype = program_.chunk_dtypes[static_cast<std::size_t>(resident.region)];
        return {round_up(owned.size(), memory::chunk_alignment) * size_of(dtype)};
    }

    const Program& program_;
    const InstructionSeconds& seconds_;
    std::map<std::pair<const Instruction*, bool>, double> known_; // and whether it adds to its outputs
    const std::function<bool(const ChunkResident&)>& always_on_device_;
    std::map<std::pair<Region, std::int32_t>, std::int32_t> numbers_;
    StepTimePoints result_;
    Communications detached_;                // between ranks of a pipeline, until the executor finishes them
    std::vector<const Instruction*> ending_; // before the next time point
    std::int32_t next_ = 0;
    std::int32_t task_ = 0;
    std::set<std::int32_t> written_; // pieces that the forward under way has
    std::set<std::int32_t> begun_;   // gradients of this step
    double waiting_ = 0;
};

} // namespace

StepTimePoints time_points_of(const Program& program, const InstructionSeconds& seconds,
                              const std::function<bool(const ChunkResident&)>& always_on_device) {
    return Finder(program, seconds, always_on_device).run();
}

} // namespace tutti::offload
