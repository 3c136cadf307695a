// The Program's verifier: replays one step on a map of who wrote which bytes last.
#include "base/error.h"
#include "program/program.h"

#include <map>

namespace tutti {
namespace {

struct Range {
    std::int64_t begin, end;
};

// From the first byte to the last. Of strided operands that counts the gaps too: the parts of a concatenation, which
// kernels write row by row into one buffer, cover it together, but one that is missing between others is not seen.
Range bytes_of(const Argument& argument) {
    std::int64_t reach = 0;
    for (int d = 0; d < argument.type.shape.rank(); ++d) reach += (argument.type.shape[d] - 1) * argument.strides[d];
    const std::int64_t begin = argument.address.offset;
    return {begin, begin + (reach + 1) * size_of(argument.type.dtype)};
}

// Bytes that hold a value, as disjoint intervals. Writing replaces what it covers.
class Written {
  public:
    void write(Range range) {
        auto at = intervals_.lower_bound(range.begin);
        if (at != intervals_.begin() && std::prev(at)->second >= range.begin) --at;
        while (at != intervals_.end() && at->first <= range.end) {
            range.begin = std::min(range.begin, at->first);
            range.end = std::max(range.end, at->second);
            at = intervals_.erase(at);
        }
        intervals_[range.begin] = range.end;
    }
    bool covers(Range range) const {
        auto at = intervals_.upper_bound(range.begin);
        return at != intervals_.begin() && std::prev(at)->second >= range.end;
    }
    void clear() { intervals_.clear(); }

  private:
    std::map<std::int64_t, std::int64_t> intervals_;
};

class Replay {
  public:
    explicit Replay(const Program& program) : program_(program) {}

    void run() {
        for (const Task& task : program_.setup) visit(task);
        for (const NamedBuffer& input : program_.inputs) check_inside(input.buffer, "input");
        for (std::size_t i = 0; i < program_.step.size(); ++i) {
            for (std::int32_t wait : program_.step[i].waits)
                TUTTI_CHECK(wait >= 0 && wait < static_cast<std::int32_t>(i), "task {} waits for task {}", i, wait);
            visit(program_.step[i]);
        }
    }

  private:
    Written& written(const Address& address, const Task& task) {
        return written_[{address.region, address.chunk, copy_of(task, address.region)}];
    }

    std::int64_t capacity(const Address& address) const {
        if (!is_chunk(address.region)) return program_.sizes[static_cast<std::size_t>(address.region)].count;
        return program_.chunk_elements[static_cast<std::size_t>(address.chunk)] *
               size_of(program_.chunk_dtypes[static_cast<std::size_t>(address.region)]);
    }

    void check_inside(const Argument& argument, const std::string& who) const {
        const Range range = bytes_of(argument);
        TUTTI_CHECK(range.begin >= 0 && range.end <= capacity(argument.address), "{}: bytes {} to {} of {} ({} bytes)",
                    who, range.begin, range.end, name_of(argument.address.region), capacity(argument.address));
    }

    void visit(const Task& task) {
        for (Region region : {Region::stash, Region::batch})
            TUTTI_CHECK(copy_of(task, region) >= 0 && copy_of(task, region) < copies(program_, region), "{} {} of {}",
                        name_of(region), copy_of(task, region), copies(program_, region));
        if (task.kind == TaskKind::load) {
            for (const NamedBuffer& input : program_.inputs)
                written(input.buffer.address, task).write(bytes_of(input.buffer));
            return;
        }
        const Segment& segment = program_.segments.at(static_cast<std::size_t>(task.segment));
        written_[{Region::transient, 0, 0}].clear();
        for (std::size_t i = 0; i < segment.instructions.size(); ++i) visit(task, segment.instructions[i], i);
    }

    void visit(const Task& task, const Instruction& instruction, std::size_t number) {
        const std::string who =
            fmt::format("{} instruction {} ({} at {})", name_of(task.kind), number, instruction.op, instruction.source);
        for (std::int32_t wait : instruction.waits)
            TUTTI_CHECK(wait >= 0 && wait < static_cast<std::int32_t>(number), "{} waits for {}", who, wait);
        auto must_be_written = [&](const Argument& argument) {
            // Chunks outlive the step: weights and moments hold the last step's, gradients are checked like the rest.
            if (is_chunk(argument.address.region) && argument.address.region != Region::gradients) return;
            if (task.kind == TaskKind::norm || task.kind == TaskKind::update) return; // whole chunks with their padding
            TUTTI_CHECK(written(argument.address, task).covers(bytes_of(argument)),
                        "{} reads bytes of {} at {} that nothing has written", who, name_of(argument.address.region),
                        argument.address.offset);
        };
        for (const Argument& input : instruction.inputs) {
            check_inside(input, who);
            must_be_written(input);
        }
        for (const Argument& output : instruction.outputs) {
            check_inside(output, who);
            const bool adds =
                output.access == Access::accumulate && !(instruction.first_overwrites && task.micro_batch == 0);
            if (adds) must_be_written(output);
            written(output.address, task).write(bytes_of(output));
        }
    }

    const Program& program_;
    std::map<std::tuple<Region, std::int32_t, std::int32_t>, Written> written_;
};

} // namespace

void verify(const Program& program) { Replay(program).run(); }

} // namespace tutti
