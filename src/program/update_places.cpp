#include "program/update_places.h"

#include "base/checked.h"
#include "base/error.h"

#include <algorithm>
#include <map>

namespace tutti {
namespace {

bool is_update(const Instruction& instruction) { return instruction.kind == InstructionKind::update; }
std::int32_t chunk_of(const Instruction& update) { return update.inputs[0].address.chunk; }

} // namespace

UpdatePlaces::UpdatePlaces(Program& program) : program_(program), segments_(program.segments) {
    for (const Segment& segment : segments_)
        for (const Instruction& instruction : segment.instructions)
            if (is_update(instruction)) chunks_.push_back(chunk_of(instruction));
    std::ranges::sort(chunks_); // as the next forward comes to them
    find_first_readers();
}

// One forward reads the weights before all others, and until then nobody writes the gradients: not what several stages
// use, and not what is cleared at the start of a step. What only a share was updated of is gathered with its update.
void UpdatePlaces::find_first_readers() {
    readers_.resize(program_.chunk_elements.size());
    std::vector<bool> excluded(readers_.size());
    auto exclude = [&](const Argument& argument) {
        if (is_chunk(argument.address.region)) excluded[static_cast<std::size_t>(argument.address.chunk)] = true;
    };
    for (std::size_t s = 0; s < segments_.size(); ++s) {
        const std::vector<Instruction>& all = segments_[s].instructions;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (segments_[s].kind == TaskKind::clear || (segments_[s].kind == TaskKind::update && !is_update(all[i])))
                std::ranges::for_each(all[i].outputs, exclude);
            if (segments_[s].kind != TaskKind::forward) continue;
            for (const Argument& input : all[i].inputs) {
                if (input.address.region != Region::weights) continue;
                Use& reader = readers_[static_cast<std::size_t>(input.address.chunk)];
                if (reader.segment >= 0 && reader.segment != static_cast<std::int32_t>(s)) exclude(input);
                if (reader.segment < 0) reader = {narrow<std::int32_t>(s), narrow<std::int32_t>(i)};
            }
        }
    }
    for (std::size_t c = 0; c < readers_.size(); ++c)
        if (excluded[c]) readers_[c] = {};
}

int UpdatePlaces::place(const std::set<std::int32_t>& on_host, bool later) const {
    program_.segments = segments_;
    for (Segment& segment : program_.segments) {
        std::vector<Instruction>& all = segment.instructions;
        for (Instruction& one : all)
            if (is_update(one) && on_host.contains(chunk_of(one))) one.lane = Lane::host;
        if (segment.kind != TaskKind::update) continue;
        for (const Instruction& one : all) TUTTI_CHECK(one.waits.empty(), "an update waits for another");
        std::ranges::stable_partition(all, [](const Instruction& one) { return one.lane == Lane::host; });
    }
    return later ? move_later() : 0;
}

int UpdatePlaces::move_later() const {
    std::map<std::int32_t, std::multimap<std::int32_t, Instruction>> moved; // per segment: before which instruction
    int count = 0;
    for (Segment& segment : program_.segments) {
        if (segment.kind != TaskKind::update) continue;
        auto stays = [&](const Instruction& one) {
            return !is_update(one) || one.lane == Lane::host ||
                   readers_[static_cast<std::size_t>(chunk_of(one))].segment < 0;
        };
        const auto leaving = std::ranges::stable_partition(segment.instructions, stays);
        for (Instruction& one : leaving) {
            const Use& reader = readers_[static_cast<std::size_t>(chunk_of(one))];
            one.of_last_step = true;
            moved[reader.segment].emplace(reader.instruction, std::move(one));
            ++count;
        }
        segment.instructions.erase(leaving.begin(), leaving.end());
    }
    for (auto& [s, updates] : moved) {
        std::vector<Instruction>& all = program_.segments[static_cast<std::size_t>(s)].instructions;
        std::vector<Instruction> joined;
        std::vector<std::int32_t> numbers; // that instructions have now
        for (std::size_t i = 0; i < all.size(); ++i) {
            const auto [first, last] = updates.equal_range(narrow<std::int32_t>(i));
            for (auto update = first; update != last; ++update) joined.push_back(std::move(update->second));
            numbers.push_back(narrow<std::int32_t>(joined.size()));
            joined.push_back(std::move(all[i]));
            for (std::int32_t& wait : joined.back().waits) wait = numbers[static_cast<std::size_t>(wait)];
        }
        all = std::move(joined);
    }
    return count;
}

} // namespace tutti
