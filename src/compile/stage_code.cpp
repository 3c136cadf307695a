#include "compile/stage_code.h"

#include "base/error.h"
#include "compile/contributions.h"
#include "compile/final_gradients.h"
#include "compile/graphs/stages.h"
#include "compile/graphs/step_graph.h"
#include "compile/likely_cached.h"
#include "compile/operands.h"
#include "compile/segment_writer.h"
#include "compile/window_code.h"
#include "program/packing.h"

#include <algorithm>

namespace tutti::compile {
namespace {

// Per chunk: gradients that the first contribution of a step does not overwrite.
std::vector<bool> cleared_chunks(const Ownership& ownership, Zero zero) {
    std::vector<bool> cleared;
    for (std::size_t c = 0; c < ownership.layout.chunks.size(); ++c)
        cleared.push_back(is_cleared_first(ownership.kind_of(c), zero));
    return cleared;
}

Placement place_stage(const Graph& graph, const Ownership& ownership, const StageCodeOptions& options,
                      const StoredPlaces& places) {
    PlacementOptions placing{.trains = options.trains,
                             .split_backward = options.split_backward,
                             .weights = options.precision.compute,
                             .gradients = options.precision.gradients,
                             .batch = options.batch,
                             .constants = options.constants,
                             .cleared = cleared_chunks(ownership, options.zero),
                             .offloaded = options.offloaded};
    for (std::size_t c = 0; c < ownership.layout.chunks.size(); ++c) {
        const bool sharded = ownership.kind_of(c).sharded_over >= 0;
        placing.gathered.push_back(sharded && options.zero.shards_weights());
        placing.scattered.push_back(sharded && options.zero.shards_gradients());
    }
    return place_values(graph, places, placing);
}

class StageCompiler {
  public:
    StageCompiler(const Graph& graph, const Ownership& ownership, const StageCodeOptions& options)
        : graph_(graph), options_(options), places_(graph, ownership),
          placement_(place_stage(graph, ownership, options, places_)),
          contributions_(find_contributions(graph, placement_.order, places_, cleared_chunks(ownership, options.zero))),
          operands_(graph, places_, placement_, options.precision.gradients), writer_(code_.segments, placement_),
          windows_(ownership, placement_, options.precision, writer_),
          final_(graph, ownership, options, contributions_, places_, placement_, writer_) {}

    StageCode run() {
        constexpr std::array<TaskKind, part_count> kinds = {TaskKind::setup, TaskKind::forward, TaskKind::recompute,
                                                            TaskKind::backward, TaskKind::weight_gradient};
        for (std::size_t part = 0; part < part_count; ++part) {
            code_.segments[part].kind = kinds[part];
            code_.segments[part].transient = placement_.transient[part];
        }
        for (std::size_t p = 0; p < placement_.order.size(); ++p) {
            writer_.go_to(narrow<std::int32_t>(p));
            windows_.open();
            lower(writer_.node());
            windows_.close();
            final_.reduce();
            final_.update();
        }
        collect_messages();
        for (Segment& segment : code_.segments) mark_likely_cached(segment);
        name_buffers();
        code_.updated = final_.updated();
        code_.slots = placement_.slots;
        code_.pieces = placement_.pieces;
        code_.constants = placement_.constants;
        return std::move(code_);
    }

  private:
    Argument argument(ValueId value, Access access) const { return operands_.value(value, access, writer_.part()); }
    bool is_direct(std::size_t o) const { return placement_.direct[index(graph_.outputs()[o].value)]; }

    // ---- instructions

    void lower(std::size_t i) {
        const Node& node = graph_.nodes()[i];
        const std::vector<std::size_t>& contributions = contributions_.of(i);
        if (!node.op->view && !placement_.joined[i]) {
            writer_.segment().flops +=
                node.op->cost(graph_.input_types(node), graph_.output_types(node), node.attributes).flops.count;
            Instruction instruction = instruction_of(node, i);
            for (std::size_t o : contributions)
                if (is_direct(o)) write_gradient(node, o, instruction);
            const std::int32_t number = writer_.add(std::move(instruction));
            if (node.op->collective) started_[i] = number;
        }
        for (std::size_t o : contributions)
            if (!is_direct(o))
                accumulate(graph_.outputs()[o].value,
                           operands_.gradient_of(graph_.outputs()[o].parameter, writer_.part()),
                           contributions_.first[o], node.source);
        const Output* loss = graph_.output("loss");
        if (loss && graph_.value(loss->value).producer == static_cast<NodeId>(i))
            accumulate(loss->value, options_.loss, true, node.source);
    }

    Instruction instruction_of(const Node& node, std::size_t i) {
        Instruction instruction{.op = std::string(node.op->name),
                                .kind = kind_of(*node.op),
                                .attributes = node.attributes,
                                .source = node.source};
        for (ValueId input : node.inputs) instruction.inputs.push_back(argument(input, Access::read));
        for (ValueId output : node.outputs) instruction.outputs.push_back(argument(output, Access::write));
        if (node.op->collective) {
            instruction.lane = Lane::communication;
            instruction.group = options_.groups.at(node.attributes.text("axis"));
            if (placement_.staging[i] >= 0) {
                const std::int64_t bytes = packing_bytes(*node.op->collective, node.attributes,
                                                         graph_.type(node.inputs[0]), graph_.type(node.outputs[0]))
                                               .count;
                instruction.outputs.push_back(
                    {{Region::transient, 0, placement_.staging[i]}, {DType::boolean, {bytes}}, {1}, Access::write});
            }
        }
        wait_for_collectives(node, instruction);
        return instruction;
    }

    // Those that make what the instruction reads, where nobody has waited for them before.
    void wait_for_collectives(const Node& node, Instruction& instruction) {
        for (ValueId input : node.inputs) wait_for_collective(input, instruction);
        for (ValueId input : node.inputs)
            if (const Parameter* parameter = graph_.parameter_of(graph_.value(input).storage))
                if (const auto gather = windows_.take_gather(places_.chunk_of(*parameter)))
                    instruction.waits.push_back(*gather);
    }

    void wait_for_collective(ValueId value, Instruction& instruction) {
        const NodeId made = graph_.value(graph_.value(value).storage).producer;
        if (made == NodeId::none || placement_.parts[index(made)] != writer_.part()) return;
        if (const auto at = started_.find(index(made)); at != started_.end()) {
            instruction.waits.push_back(at->second);
            started_.erase(at);
        }
    }

    // A contribution that its node writes where gradients are kept. Those of one node are first or not alike: placement
    // sees to it.
    void write_gradient(const Node& node, std::size_t o, Instruction& instruction) const {
        const auto which =
            static_cast<std::size_t>(std::ranges::find(node.outputs, graph_.outputs()[o].value) - node.outputs.begin());
        const bool first = contributions_.first[o];
        const bool others = std::ranges::any_of(
            instruction.outputs, [](const Argument& output) { return output.access == Access::accumulate; });
        TUTTI_CHECK(!others || instruction.first_overwrites == first, "{} has ties of two kinds", node.source);
        instruction.outputs[which] = operands_.gradient_of(graph_.outputs()[o].parameter, writer_.part());
        instruction.first_overwrites = first;
    }

    void accumulate(ValueId value, Argument into, bool first, const std::string& source) {
        Instruction instruction{
            .op = "accumulate", .attributes = {{"dtype", std::string(name_of(into.type.dtype))}}, .source = source};
        instruction.inputs.push_back(argument(value, Access::read));
        instruction.outputs.push_back(std::move(into));
        instruction.first_overwrites = first;
        wait_for_collective(value, instruction);
        writer_.add(std::move(instruction));
    }

    // ---- what goes in and out

    void collect_messages() {
        for (ValueId input : graph_.inputs()) {
            const std::string& name = graph_.value(input).name;
            if (name.starts_with(sharding::stage_input)) code_.activations_in.push_back(argument(input, Access::write));
            if (name.starts_with(sharding::stage_output_gradient))
                code_.gradients_in.push_back(argument(input, Access::write));
        }
        for (const SentValue& sent : placement_.sent) {
            const Output& output = graph_.outputs()[sent.output];
            const bool forward = output.name.starts_with(sharding::stage_output);
            writer_.go_to(forward ? Part::forward : Part::backward);
            const TensorType& type = graph_.type(output.value);
            const Argument dense{sent.address, type, dense_strides(type.shape), Access::read};
            if (sent.copied) copy_to_outbox(output, dense);
            (forward ? code_.activations_out : code_.gradients_out).push_back(dense);
        }
    }

    void copy_to_outbox(const Output& output, const Argument& outbox) {
        Instruction copy{.op = "contiguous", .source = output.name};
        copy.inputs.push_back(argument(output.value, Access::read));
        copy.outputs.push_back(outbox);
        copy.outputs.back().access = Access::write;
        const NodeId made = graph_.value(graph_.value(output.value).storage).producer;
        if (made != NodeId::none)
            if (const auto at = started_.find(index(made)); at != started_.end()) {
                copy.waits.push_back(at->second);
                started_.erase(at);
            }
        writer_.add(std::move(copy));
    }

    void name_buffers() {
        for (ValueId input : graph_.inputs())
            if (options_.batch.contains(graph_.value(input).name))
                code_.inputs.push_back({graph_.value(input).name, argument(input, Access::write)});
        for (const Output& output : graph_.outputs()) {
            if (output.name == "loss") code_.outputs.push_back({output.name, options_.loss});
            if (output.name == "logits") code_.outputs.push_back({output.name, argument(output.value, Access::read)});
        }
    }

    const Graph& graph_;
    const StageCodeOptions& options_;
    StoredPlaces places_;
    Placement placement_;
    Contributions contributions_;
    StageCode code_;
    Operands operands_;
    SegmentWriter writer_;
    WindowCode windows_;
    FinalGradients final_;
    std::map<std::size_t, std::int32_t> started_; // collectives that nobody has waited for: instructions
};

} // namespace

Instruction zeros(Argument what) {
    const Shape& shape = what.type.shape;
    Instruction clear{.op = "fill",
                      .attributes = {{"dtype", std::string(name_of(what.type.dtype))},
                                     {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
                                     {"value", 0.0}}};
    clear.outputs.push_back(std::move(what));
    return clear;
}

StageCode compile_stage(const Graph& graph, const Ownership& ownership, const StageCodeOptions& options) {
    return StageCompiler(graph, ownership, options).run();
}

} // namespace tutti::compile
