#include "program/over_weights.h"

#include "base/checked.h"
#include "base/error.h"

#include <algorithm>

namespace tutti {
namespace {

Range common(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }
bool meet(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

class Proof {
  public:
    Proof(const Program& program, std::span<const std::vector<Range>> tensors, const OperatorSet& operators)
        : program_(program), operators_(operators) {
        const auto& types = program.chunk_dtypes;
        const bool mirrored = program.trains && program.has_master && types[0] == types[1];
        for (std::size_t c = 0; c < program.chunk_elements.size(); ++c) {
            const auto number = narrow<std::int32_t>(c);
            const Range whole{0, program.chunk_elements[c]};
            ChunkProof& chunk = chunks_.emplace_back();
            chunk.holds = mirrored && program.owned_of(Region::weights, number) == whole &&
                          program.owned_of(Region::gradients, number) == whole;
            for (const Range& range : tensors[c]) chunk.tensors.push_back({range});
        }
    }

    std::vector<bool> run() {
        for (const Task& task : program_.step) {
            if (task.segment < 0) continue;
            for (const Instruction& one : program_.segments[static_cast<std::size_t>(task.segment)].instructions)
                if (!one.only_last || task.last) visit(one, task);
        }
        std::vector<bool> result;
        for (const ChunkProof& chunk : chunks_) {
            const bool renewed = std::ranges::none_of(chunk.tensors, &TensorProof::written);
            result.push_back(chunk.holds && renewed);
        }
        return result;
    }

  private:
    // A stored tensor within its chunk.
    struct TensorProof {
        Range range;
        std::int64_t written = 0; // elements that hold gradients
    };
    struct ChunkProof {
        bool holds = true;
        bool read_by_others = false; // a communication reads its weights, and it is not known until when
        std::vector<TensorProof> tensors{};
        std::vector<const Argument*> views{}; // that gradients were written to since the last update
        std::vector<Range> updated{};         // since then: weights again, of tensors that may be others' in part
    };

    ChunkProof* find(const Argument& argument, Region region) {
        return argument.address.region == region ? &chunks_[static_cast<std::size_t>(argument.address.chunk)] : nullptr;
    }

    // From the first element to the last, gaps included.
    static Range elements_of(const Argument& argument) {
        std::int64_t reach = 0;
        for (int d = 0; d < argument.type.shape.rank(); ++d)
            reach += (argument.type.shape[d] - 1) * argument.strides[d];
        const std::int64_t begin = argument.address.offset / size_of(argument.type.dtype);
        return {begin, begin + reach + 1};
    }

    static bool same_view(const Argument& a, const Argument& b) {
        return a.address == b.address && a.type == b.type && a.strides == b.strides;
    }

    void visit(const Instruction& one, const Task& task) {
        for (const Argument& input : one.inputs) {
            if (ChunkProof* chunk = find(input, Region::weights)) read_weights(*chunk, one, input);
            if (ChunkProof* chunk = find(input, Region::gradients)) read_gradients(*chunk, input);
        }
        for (const Argument& output : one.outputs) {
            if (ChunkProof* chunk = find(output, Region::gradients)) write_gradients(*chunk, one, output, task);
            if (ChunkProof* chunk = find(output, Region::weights)) write_weights(*chunk, one, output);
        }
    }

    static bool is_updated(const ChunkProof& chunk, Range range) {
        return std::ranges::any_of(chunk.updated,
                                   [&](Range part) { return part.begin <= range.begin && range.end <= part.end; });
    }

    static void read_weights(ChunkProof& chunk, const Instruction& one, const Argument& input) {
        const Range range = elements_of(input);
        for (const TensorProof& tensor : chunk.tensors)
            if (tensor.written > 0 && meet(tensor.range, range) && !is_updated(chunk, common(tensor.range, range)))
                chunk.holds = false;
        chunk.read_by_others |= one.lane == Lane::communication;
    }

    // What is no tensor's is zero, as it would be in a chunk of gradients.
    static void read_gradients(ChunkProof& chunk, const Argument& input) {
        const Range range = elements_of(input);
        for (const TensorProof& tensor : chunk.tensors)
            if (tensor.written != tensor.range.size() && meet(tensor.range, range)) chunk.holds = false;
    }

    void write_gradients(ChunkProof& chunk, const Instruction& one, const Argument& output, const Task& task) {
        if (one.lane == Lane::communication) return; // sums what it has read there
        const bool known =
            std::ranges::any_of(chunk.views, [&](const Argument* view) { return same_view(*view, output); });
        const bool adds = output.access == Access::accumulate && !(one.first_overwrites && task.first);
        if (adds != known || chunk.read_by_others) chunk.holds = false;
        const Range range = elements_of(output);
        const Operator* op = operators_.find(one.op);
        if (!op || !op->stores_last)
            for (const Argument& input : one.inputs)
                if (find(input, Region::weights) == &chunk && meet(elements_of(input), range)) chunk.holds = false;
        if (known) return;
        chunk.views.push_back(&output);
        chunk.updated.clear();
        // Views of a tensor share no element (compile/contributions.cpp), so those that have all are all of it.
        const bool dense = output.type.elements() == range.size();
        for (TensorProof& tensor : chunk.tensors) {
            if (!meet(tensor.range, range)) continue;
            tensor.written += dense ? std::min(tensor.range.end, range.end) - std::max(tensor.range.begin, range.begin)
                                    : output.type.elements();
        }
    }

    static void write_weights(ChunkProof& chunk, const Instruction& one, const Argument& output) {
        const Range range = elements_of(output);
        auto renew = [&](Range part) {
            for (TensorProof& tensor : chunk.tensors)
                if (part.begin <= tensor.range.begin && tensor.range.end <= part.end) tensor.written = 0;
        };
        if (one.kind != InstructionKind::update) return renew(range); // what other ranks have updated
        if (!one.attributes.flag("master")) chunk.holds = false;
        const std::vector<std::int64_t>& ranges = one.attributes.integers("ranges");
        for (std::size_t r = 0; r + 2 < ranges.size(); r += 3) {
            const Range part{range.begin + ranges[r], range.begin + ranges[r + 1]};
            chunk.updated.push_back(part);
            renew(part);
        }
        chunk.views.clear();
    }

    const Program& program_;
    const OperatorSet& operators_;
    std::vector<ChunkProof> chunks_;
};

} // namespace

std::vector<bool> find_over_weights(const Program& program, std::span<const std::vector<Range>> tensors,
                                    const OperatorSet& operators) {
    TUTTI_CHECK(tensors.size() == program.chunk_elements.size(), "tensors of {} chunks for {}", tensors.size(),
                program.chunk_elements.size());
    return Proof(program, tensors, operators).run();
}

void put_over_weights(Program& program, const std::vector<bool>& chunks) {
    auto moves = [&](const Argument& argument) {
        return argument.address.region == Region::gradients && chunks[static_cast<std::size_t>(argument.address.chunk)];
    };
    for (Segment& segment : program.segments)
        for (Instruction& one : segment.instructions) {
            if (one.kind == InstructionKind::update && moves(one.inputs[0])) one.attributes.set("restores", true);
            for (std::vector<Argument>* arguments : {&one.inputs, &one.outputs})
                for (Argument& argument : *arguments)
                    if (moves(argument)) argument.address.region = Region::weights;
        }
    std::vector<Range>& owned = program.owned[static_cast<std::size_t>(Region::gradients)];
    for (std::size_t c = owned.size(); c < chunks.size(); ++c) owned.push_back({0, program.chunk_elements[c]});
    for (std::size_t c = 0; c < chunks.size(); ++c)
        if (chunks[c]) owned[c] = {};
}

Bytes over_weights_bytes(const Program& program) {
    std::int64_t elements = 0;
    for (std::size_t c = 0; c < program.chunk_elements.size(); ++c) {
        const auto chunk = narrow<std::int32_t>(c);
        if (program.owned_of(Region::gradients, chunk).size() == 0)
            elements += program.owned_of(Region::weights, chunk).size();
    }
    return {program.trains ? elements * size_of(program.chunk_dtypes[1]) : 0};
}

} // namespace tutti
