// The Program's verifier: replays one step on a map of who wrote which bytes last.
#include "base/error.h"
#include "program/program.h"

#include <map>

namespace tutti {
namespace {

struct Interval {
    std::int64_t begin, end;
};

// From the first byte to the last. Of strided operands that counts the gaps too: the parts of a concatenation, which
// kernels write row by row into one buffer, cover it together, but one that is missing between others is not seen.
Interval bytes_of(const Argument& argument) {
    std::int64_t reach = 0;
    for (int d = 0; d < argument.type.shape.rank(); ++d) reach += (argument.type.shape[d] - 1) * argument.strides[d];
    const std::int64_t begin = argument.address.offset;
    return {begin, begin + (reach + 1) * size_of(argument.type.dtype)};
}

// Bytes that hold a value, as disjoint intervals. Writing replaces what it covers.
class Written {
  public:
    void write(Interval range) {
        auto at = intervals_.lower_bound(range.begin);
        if (at != intervals_.begin() && std::prev(at)->second >= range.begin) --at;
        while (at != intervals_.end() && at->first <= range.end) {
            range.begin = std::min(range.begin, at->first);
            range.end = std::max(range.end, at->second);
            at = intervals_.erase(at);
        }
        intervals_[range.begin] = range.end;
    }
    bool covers(Interval range) const {
        auto at = intervals_.upper_bound(range.begin);
        return at != intervals_.begin() && std::prev(at)->second >= range.end;
    }
    void clear() { intervals_.clear(); }

  private:
    std::map<std::int64_t, std::int64_t> intervals_;
};

class CheckedReplay {
  public:
    explicit CheckedReplay(const Program& program) : program_(program) {}

    void run() {
        for (const Task& task : program_.setup) visit(task);
        for (const NamedBuffer& input : program_.inputs) check_inside(input.buffer, {}, "input");
        for (std::size_t i = 0; i < program_.step.size(); ++i) {
            for (std::int32_t wait : program_.step[i].waits)
                TUTTI_CHECK(wait >= 0 && wait < static_cast<std::int32_t>(i), "task {} waits for task {}", i, wait);
            visit(program_.step[i]);
        }
    }

  private:
    // Slots are of a stage; batches of a micro-batch.
    Written& written(const Address& address, const Task& task) {
        std::int32_t place = 0, slot = 0;
        if (has_slots(address.region)) {
            place = task.local;
            slot = task.slots[slotted(address.region)];
        }
        if (address.region == Region::batch) slot = task.micro_batch;
        if (address.region == Region::offloaded)
            return written_[{address.region, piece_number(program_, address, task), 0}];
        return written_[{address.region, is_chunk(address.region) ? address.chunk : place, slot}];
    }

    std::int64_t capacity(const Address& address, const Task& task) const {
        if (has_slots(address.region))
            return program_.stages[static_cast<std::size_t>(task.local)].sizes[slotted(address.region)].count;
        if (address.region == Region::offloaded)
            return program_.stages[static_cast<std::size_t>(task.local)]
                .pieces.at(static_cast<std::size_t>(address.chunk))
                .count;
        if (!is_chunk(address.region)) return program_.sizes[static_cast<std::size_t>(address.region)].count;
        return program_.owned_of(address.region, address.chunk).size() *
               size_of(program_.chunk_dtypes[static_cast<std::size_t>(address.region)]);
    }

    void check_inside(const Argument& argument, const Task& task, const std::string& who) const {
        const Bytes bytes{capacity(argument.address, task)};
        const Interval range = bytes_of(argument);
        TUTTI_CHECK(range.begin >= 0 && range.end <= bytes.count, "{}: bytes {} to {} of {} ({} bytes)", who,
                    range.begin, range.end, name_of(argument.address.region), bytes.count);
    }

    void check_slots(const Task& task) const {
        TUTTI_CHECK(task.local >= 0 && static_cast<std::size_t>(task.local) < program_.stages.size(), "stage {} of {}",
                    task.local, program_.stages.size());
        const LocalStage& stage = program_.stages[static_cast<std::size_t>(task.local)];
        for (std::size_t r = 0; r < slotted_count; ++r)
            TUTTI_CHECK(task.slots[r] >= 0 && task.slots[r] < std::max(1, stage.slots[r]), "{} slot {} of {}",
                        name_of(static_cast<Region>(static_cast<std::size_t>(Region::received) + r)), task.slots[r],
                        stage.slots[r]);
        TUTTI_CHECK(task.micro_batch >= 0 && task.micro_batch < program_.micro_batches, "micro-batch {} of {}",
                    task.micro_batch, program_.micro_batches);
    }

    void visit(const Task& task) {
        check_slots(task);
        if (task.kind == TaskKind::load) {
            for (const NamedBuffer& input : program_.inputs)
                written(input.buffer.address, task).write(bytes_of(input.buffer));
            return;
        }
        const Segment& segment = program_.segments.at(static_cast<std::size_t>(task.segment));
        written_[{Region::transient, 0, 0}].clear();
        under_way_.clear();
        for (std::size_t i = 0; i < segment.instructions.size(); ++i) visit(task, segment.instructions[i], i);
    }

    void visit(const Task& task, const Instruction& instruction, std::size_t number) {
        if (!is_run_by(instruction, task)) return;
        const std::string who =
            fmt::format("{} instruction {} ({} at {})", name_of(task.kind), number, instruction.op, instruction.source);
        TUTTI_CHECK(is_communication(instruction.kind) == (instruction.lane == Lane::communication) &&
                        is_message(instruction.kind) == (instruction.peer >= 0),
                    "{} is a {}", who, name_of(instruction.kind));
        for (std::int32_t wait : instruction.waits) {
            TUTTI_CHECK(wait >= 0 && wait < static_cast<std::int32_t>(number), "{} waits for {}", who, wait);
            under_way_.erase(static_cast<std::size_t>(wait));
        }
        for (const auto& [other, communication] : under_way_) check_apart(instruction, *communication, who);
        if (instruction.lane == Lane::communication) under_way_[number] = &instruction;
        auto must_be_written = [&](const Argument& argument) {
            // Chunks outlive the step: weights and moments hold the last step's, gradients are checked like the rest.
            if (is_chunk(argument.address.region) && argument.address.region != Region::gradients) return;
            // Whole chunks with their padding, which come from no place in the model.
            if (is_chunk(argument.address.region) && instruction.source.empty()) return;
            TUTTI_CHECK(written(argument.address, task).covers(bytes_of(argument)),
                        "{} reads bytes of {} at {} that nothing has written", who, name_of(argument.address.region),
                        argument.address.offset);
        };
        for (const Argument& input : instruction.inputs) {
            check_inside(input, task, who);
            must_be_written(input);
        }
        for (const Argument& output : instruction.outputs) {
            check_inside(output, task, who);
            const bool adds = output.access == Access::accumulate && !(instruction.first_overwrites && task.first);
            if (adds) must_be_written(output);
            written(output.address, task).write(bytes_of(output));
        }
    }

    // No instruction writes operands that a communication under way reads, or touches those that it writes.
    static void check_apart(const Instruction& instruction, const Instruction& communication, const std::string& who) {
        auto meet = [](const Argument& a, const Argument& b) {
            if (a.address.region != b.address.region || a.address.chunk != b.address.chunk) return false;
            const Interval x = bytes_of(a), y = bytes_of(b);
            return x.begin < y.end && y.begin < x.end;
        };
        for (const Argument& output : instruction.outputs) {
            for (const Argument& read : communication.inputs)
                TUTTI_CHECK(!meet(output, read), "{} writes what {} at {} still reads", who, communication.op,
                            communication.source);
            for (const Argument& made : communication.outputs)
                TUTTI_CHECK(!meet(output, made), "{} writes what {} at {} still writes", who, communication.op,
                            communication.source);
        }
        for (const Argument& input : instruction.inputs)
            for (const Argument& made : communication.outputs)
                TUTTI_CHECK(!meet(input, made), "{} reads what {} at {} still writes", who, communication.op,
                            communication.source);
    }

    const Program& program_;
    std::map<std::size_t, const Instruction*>
        under_way_; // communication of the segment that no instruction has waited for
    std::map<std::tuple<Region, std::int32_t, std::int32_t>, Written> written_;
};

} // namespace

void verify(const Program& program) { CheckedReplay(program).run(); }

} // namespace tutti
