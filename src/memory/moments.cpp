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

bool exchanges_chunks(const Instruction& instruction) {
    return instruction.lane == Lane::communication && touches_chunks(instruction);
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
        if (result_.problem.seconds.empty()) result_.problem.seconds.push_back(waiting_);
        result_.problem.seconds.front() += waiting_; // what no moment came before
        forget_gradients();
        return std::move(result_);
    }

  private:
    void run(const Task& task, const Segment& segment) {
        // Exchanges by their place: under way, and those that end before the next moment, which still uses them.
        std::map<std::int32_t, const Instruction*> under_way, ending;
        auto begin_with_exchanges = [&](double seconds) {
            const std::int32_t moment = begin(seconds);
            for (const auto* exchanges : {&under_way, &ending})
                for (const auto& [place, exchange] : *exchanges) use(moment, *exchange);
            ending.clear();
            return moment;
        };
        auto end = [&](auto exchange) {
            if (exchange != under_way.end()) ending.insert(under_way.extract(exchange));
        };
        for (std::size_t i = 0; i < segment.instructions.size(); ++i) {
            const Instruction& instruction = segment.instructions[i];
            for (std::int32_t wait : instruction.waits) end(under_way.find(wait));
            if (instruction.only_last && !task.last) continue;
            if (!touches_chunks(instruction)) {
                (result_.problem.seconds.empty() ? waiting_ : result_.problem.seconds.back()) += seconds_(instruction);
                continue;
            }
            if (exchanges_chunks(instruction) && under_way.size() == most_chunk_exchanges) end(under_way.begin());
            use(begin_with_exchanges(seconds_(instruction)), instruction);
            if (exchanges_chunks(instruction)) under_way[narrow<std::int32_t>(i)] = &instruction;
        }
        if (ends_with_moment(segment)) begin_with_exchanges(0);
    }

    std::int32_t begin(double seconds) {
        result_.problem.seconds.push_back(seconds);
        return narrow<std::int32_t>(result_.problem.seconds.size() - 1);
    }

    void use(std::int32_t moment, const Instruction& instruction) {
        for (const Argument& input : instruction.inputs) use(moment, input, Access::read);
        // An operand is a part of its chunk, so writing it leaves the rest.
        for (const Argument& output : instruction.outputs) use(moment, output, Access::accumulate);
    }

    void use(std::int32_t moment, const Argument& argument, Access access) {
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
        result_.problem.uses.push_back({moment, at->second, access});
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
    double waiting_ = 0;
};

} // namespace

StepMoments moments_of(const Program& program, const std::function<double(const Instruction&)>& seconds,
                       const std::function<bool(const ChunkResident&)>& stays) {
    return Finder(program, seconds, stays).run();
}

} // namespace tutti
