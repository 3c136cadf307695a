#include "memory/moments.h"

#include "base/checked.h"
#include "memory/chunks.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti {

bool touches_chunks(const Instruction& instruction) {
    auto touches = [](const Argument& argument) { return is_chunk(argument.address.region); };
    return std::ranges::any_of(instruction.inputs, touches) || std::ranges::any_of(instruction.outputs, touches);
}

namespace {

bool exchanges_chunks(const Instruction& instruction) {
    return instruction.lane == Lane::communication && touches_chunks(instruction);
}

} // namespace

bool ends_with_task(const Program& program, const Instruction& instruction) {
    return exchanges_chunks(instruction) && !program.groups[static_cast<std::size_t>(instruction.group)].across_pipe;
}

bool ends_with_moment(const Segment& segment) { return std::ranges::any_of(segment.instructions, exchanges_chunks); }

namespace {

class Finder {
  public:
    Finder(const Program& program, const std::function<double(const Instruction&)>& seconds,
           const std::function<bool(const ChunkResident&)>& stays)
        : program_(program), seconds_(seconds), stays_(stays) {}

    StepMoments run() {
        for (const Task& task : program_.step)
            if (task.segment >= 0) run(task, program_.segments[static_cast<std::size_t>(task.segment)]);
        if (result_.problem.seconds.empty()) {
            result_.problem.seconds.push_back(0);
            result_.tasks.push_back(0);
        }
        result_.problem.seconds.front() += waiting_; // what no moment came before
        forget_gradients();
        return std::move(result_);
    }

  private:
    void run(const Task& task, const Segment& segment) {
        if (task.kind == TaskKind::reduce || task.kind == TaskKind::norm) end_all(detached_);
        Exchanges under_way, unlimited;
        task_ = narrow<std::int32_t>(&task - program_.step.data());
        for (std::size_t i = 0; i < segment.instructions.size(); ++i) {
            const Instruction& instruction = segment.instructions[i];
            for (std::int32_t wait : instruction.waits) {
                end(under_way, wait);
                end(unlimited, wait);
            }
            if (instruction.only_last && !task.last) continue;
            if (!touches_chunks(instruction)) {
                (result_.problem.seconds.empty() ? waiting_ : result_.problem.seconds.back()) += seconds_(instruction);
                continue;
            }
            const bool limited = ends_with_task(program_, instruction);
            if (limited && under_way.size() == most_chunk_exchanges) end(under_way, under_way.begin()->first);
            const double seconds = seconds_(instruction);
            if (instruction.lane == Lane::host) {
                const std::int32_t moment = begin(0, {&under_way, &unlimited});
                result_.problem.at_home.resize(static_cast<std::size_t>(moment) + 1);
                result_.problem.at_home.back() = seconds;
                use(moment, instruction);
                continue;
            }
            use(begin(seconds, {&under_way, &unlimited}), instruction);
            if (!exchanges_chunks(instruction)) continue;
            if (!limited && is_detached(instruction))
                detached_[next_++] = &instruction;
            else
                (limited ? under_way : unlimited)[narrow<std::int32_t>(i)] = &instruction;
        }
        if (ends_with_moment(segment)) begin(0, {&under_way, &unlimited});
    }

    using Exchanges = std::map<std::int32_t, const Instruction*>; // under way, by their place

    // An exchange that ends before the next moment: that one still uses its chunks.
    void end(Exchanges& exchanges, std::int32_t place) {
        const auto at = exchanges.find(place);
        if (at == exchanges.end()) return;
        ending_.push_back(at->second);
        exchanges.erase(at);
    }
    void end_all(Exchanges& exchanges) {
        while (!exchanges.empty()) end(exchanges, exchanges.begin()->first);
    }

    std::int32_t begin(double seconds, std::initializer_list<const Exchanges*> exchanges) {
        result_.problem.seconds.push_back(seconds);
        result_.tasks.push_back(task_);
        const auto moment = narrow<std::int32_t>(result_.problem.seconds.size() - 1);
        for (const Exchanges* some : exchanges)
            for (const auto& [place, exchange] : *some) use(moment, *exchange);
        for (const auto& [place, exchange] : detached_) use(moment, *exchange);
        for (const Instruction* exchange : ending_) use(moment, *exchange);
        ending_.clear();
        return moment;
    }

    void use(std::int32_t moment, const Instruction& instruction) {
        const bool at_home = instruction.lane == Lane::host;
        for (const Argument& input : instruction.inputs) use(moment, input, Access::read, at_home);
        // An operand is a part of its chunk, so writing it leaves the rest.
        for (const Argument& output : instruction.outputs) use(moment, output, Access::accumulate, at_home);
    }

    void use(std::int32_t moment, const Argument& argument, Access access, bool at_home) {
        if (!is_chunk(argument.address.region)) return;
        const ChunkResident resident{argument.address.region, argument.address.chunk};
        if (stays_ && stays_(resident)) return;
        const auto [at, is_new] =
            numbers_.try_emplace({resident.region, resident.chunk}, narrow<std::int32_t>(result_.residents.size()));
        if (is_new) {
            result_.residents.push_back(resident);
            const Range held = program_.held_of(resident.region, resident.chunk);
            const DType dtype = program_.chunk_dtypes[static_cast<std::size_t>(resident.region)];
            result_.problem.residents.push_back({round_up(held.size(), chunk_alignment) * size_of(dtype)});
        }
        result_.problem.uses.push_back({moment, at->second, access, at_home});
    }

    // Gradients of the step before are nobody's: a chunk begins as zeros.
    void forget_gradients() {
        std::vector<bool> seen(result_.residents.size());
        for (ResidentUse& use : result_.problem.uses) {
            const auto resident = static_cast<std::size_t>(use.resident);
            if (result_.residents[resident].region == Region::gradients && !seen[resident]) use.access = Access::write;
            seen[resident] = true;
        }
    }

    const Program& program_;
    const std::function<double(const Instruction&)>& seconds_;
    const std::function<bool(const ChunkResident&)>& stays_;
    std::map<std::pair<Region, std::int32_t>, std::int32_t> numbers_;
    StepMoments result_;
    Exchanges detached_;                     // between ranks of a pipeline, until the executor finishes them
    std::vector<const Instruction*> ending_; // before the next moment
    std::int32_t next_ = 0;
    std::int32_t task_ = 0;
    double waiting_ = 0;
};

} // namespace

StepMoments moments_of(const Program& program, const std::function<double(const Instruction&)>& seconds,
                       const std::function<bool(const ChunkResident&)>& stays) {
    return Finder(program, seconds, stays).run();
}

} // namespace tutti
