#include "compile/compile.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/philox.h"
#include "compile/placement.h"
#include "memory/liveness.h"

#include <algorithm>
#include <map>

namespace tutti {
namespace {

std::size_t at(Region region) { return static_cast<std::size_t>(region); }

// Writes the instructions of a placed graph.
class Lowering {
  public:
    Lowering(const Graph& graph, const Plan& plan, const ChunkLayout& chunks, bool trains)
        : graph_(graph), plan_(plan), chunks_(chunks), trains_(trains) {
        const Precision& types = plan.precision;
        check_runs();
        placement_ = place_values(graph, chunks, {plan.split_backward, types.gradients});
        program_.trains = trains;
        program_.micro_batches = narrow<std::int32_t>(plan.micro_batches());
        program_.micro_batch_samples = plan.workload.micro_batch;
        program_.has_master = types.has_master();
        program_.chunk_dtypes = {types.compute, types.gradients, types.master, types.moments, types.moments};
        for (const Chunk& chunk : chunks.chunks) program_.chunk_elements.push_back(chunk.elements);
    }

    Program run() {
        find_contributions();
        segments_[index_of(Part::setup)].kind = TaskKind::setup;
        segments_[index_of(Part::forward)].kind = TaskKind::forward;
        segments_[index_of(Part::backward)].kind = TaskKind::backward;
        segments_[index_of(Part::weight_gradient)].kind = TaskKind::weight_gradient;
        lay_out_results();
        for (std::size_t i : placement_.order) lower(i);
        name_buffers();
        for (std::size_t part = 0; part < part_count; ++part) segments_[part].transient = placement_.transient[part];
        write_tasks();
        size_regions();
        verify(program_);
        return std::move(program_);
    }

  private:
    static std::size_t index_of(Part part) { return static_cast<std::size_t>(part); }

    Argument argument(ValueId value, Access access) const {
        return {placement_.addresses[index(value)], graph_.type(value), placement_.strides[index(value)], access};
    }

    // The chunks may have been laid out for another graph.
    void check_runs() const {
        for (const Parameter& parameter : graph_.parameters()) {
            const ChunkPlace& first = chunks_.places[static_cast<std::size_t>(parameter.stored)];
            std::int64_t offset = first.offset;
            for (std::int32_t stored : parameter.run()) {
                const ChunkPlace& place = chunks_.places[static_cast<std::size_t>(stored)];
                TUTTI_CHECK(place.chunk == first.chunk && place.offset == offset, "{} is not laid out as one",
                            graph_.value(parameter.value).name);
                offset += graph_.stored()[static_cast<std::size_t>(stored)].type.elements();
            }
        }
    }

    // The place of a parameter's gradient: the parameter's own layout, in the gradient chunk.
    Argument gradient_of(ValueId parameter) const {
        const Value& value = graph_.value(parameter);
        const Parameter* found = graph_.parameter_of(parameter);
        const ChunkPlace& place = chunks_.places[static_cast<std::size_t>(found->stored)];
        const DType dtype = plan_.precision.gradients;
        return {{Region::gradients, place.chunk, (place.offset + value.layout.offset) * size_of(dtype)},
                {dtype, value.type.shape},
                value.layout.strides,
                Access::accumulate};
    }

    // Contributions in the order they run; the first to each view of a stored tensor overwrites in the first
    // micro-batch.
    void find_contributions() {
        for (std::size_t o = 0; o < graph_.outputs().size(); ++o) {
            const Output& output = graph_.outputs()[o];
            if (output.parameter != ValueId::none)
                by_producer_[index(graph_.value(output.value).producer)].push_back(o);
        }
        std::map<std::int32_t, std::vector<ValueId>> views; // per stored tensor: parameters seen so far
        first_.assign(graph_.outputs().size(), false);
        for (std::size_t i : placement_.order) {
            const auto found = by_producer_.find(i);
            if (found == by_producer_.end()) continue;
            for (std::size_t o : found->second) {
                const ValueId parameter = graph_.outputs()[o].parameter;
                std::vector<ValueId>& seen = views[graph_.parameter_of(parameter)->stored];
                const bool known =
                    std::ranges::any_of(seen, [&](ValueId other) { return same_view(other, parameter); });
                if (!known) {
                    for (ValueId other : seen) check_disjoint(other, parameter);
                    seen.push_back(parameter);
                }
                first_[o] = !known;
            }
        }
    }

    bool same_view(ValueId a, ValueId b) const {
        if (a == b) return true;
        const Value &x = graph_.value(a), &y = graph_.value(b);
        return x.layout == y.layout && x.type == y.type;
    }

    // Two different views of one stored tensor may only overwrite if they share no element.
    void check_disjoint(ValueId a, ValueId b) const {
        std::vector<bool> taken(static_cast<std::size_t>(
            graph_.stored()[static_cast<std::size_t>(graph_.parameter_of(a)->stored)].type.elements()));
        for (ValueId view : {a, b}) {
            const Value& value = graph_.value(view);
            Shape position = value.type.shape;
            for (std::int64_t n = 0; n < value.type.elements(); ++n) {
                std::int64_t rest = n, element = value.layout.offset;
                for (int d = position.rank() - 1; d >= 0; --d) {
                    element += rest % value.type.shape[d] * value.layout.strides[d];
                    rest /= value.type.shape[d];
                }
                TUTTI_CHECK(!taken[static_cast<std::size_t>(element)], "two views of {} overlap", value.name);
                taken[static_cast<std::size_t>(element)] = true;
            }
        }
    }

    // results: [loss sum][norm][one square per chunk]
    void lay_out_results() {
        if (const Output* loss = graph_.output("loss")) {
            loss_ = {{Region::results, 0, 0}, graph_.type(loss->value), {}, Access::accumulate};
            loss_value_ = loss->value;
        }
        norm_ = {{Region::results, 0, 64}, {DType::float64, {}}, {}, Access::write};
        squares_offset_ = 128;
        program_.sizes[at(Region::results)] = {
            round_up(squares_offset_ + 8 * static_cast<std::int64_t>(chunks_.chunks.size()), buffer_alignment)};
    }

    void lower(std::size_t i) {
        const Node& node = graph_.nodes()[i];
        Segment& segment = segments_[index_of(placement_.parts[i])];
        const auto found = by_producer_.find(i);
        const std::vector<std::size_t> contributions =
            found == by_producer_.end() ? decltype(found->second){} : found->second;
        if (!node.op->view && !placement_.joined[i]) {
            segment.flops +=
                node.op->cost(graph_.input_types(node), graph_.output_types(node), node.attributes).flops.count;
            segment.instructions.push_back(instruction_of(node));
            for (std::size_t o : contributions)
                if (is_direct(o)) write_gradient(node, o, segment.instructions.back());
        }
        for (std::size_t o : contributions)
            if (!is_direct(o))
                accumulate(segment, graph_.outputs()[o].value, gradient_of(graph_.outputs()[o].parameter), first_[o],
                           node.source);
        if (loss_value_ != ValueId::none && graph_.value(loss_value_).producer == static_cast<NodeId>(i))
            accumulate(segment, loss_value_, loss_, true, node.source);
    }

    Instruction instruction_of(const Node& node) const {
        Instruction instruction{.op = std::string(node.op->name), .attributes = node.attributes, .source = node.source};
        for (ValueId input : node.inputs) instruction.inputs.push_back(argument(input, Access::read));
        for (ValueId output : node.outputs) instruction.outputs.push_back(argument(output, Access::write));
        return instruction;
    }

    bool is_direct(std::size_t o) const { return placement_.direct[index(graph_.outputs()[o].value)]; }

    // A contribution that its node writes where gradients are kept. Those of one node are first or not alike: placement
    // sees to it.
    void write_gradient(const Node& node, std::size_t o, Instruction& instruction) const {
        const auto which =
            static_cast<std::size_t>(std::ranges::find(node.outputs, graph_.outputs()[o].value) - node.outputs.begin());
        const bool others = std::ranges::any_of(
            instruction.outputs, [](const Argument& output) { return output.access == Access::accumulate; });
        TUTTI_CHECK(!others || instruction.first_overwrites == first_[o], "{} has ties of two kinds", node.source);
        instruction.outputs[which] = gradient_of(graph_.outputs()[o].parameter);
        instruction.first_overwrites = first_[o];
    }

    void accumulate(Segment& segment, ValueId value, Argument into, bool first, const std::string& source) const {
        Instruction instruction{
            .op = "accumulate", .attributes = {{"dtype", std::string(name_of(into.type.dtype))}}, .source = source};
        instruction.inputs.push_back(argument(value, Access::read));
        instruction.outputs.push_back(std::move(into));
        instruction.first_overwrites = first;
        segment.instructions.push_back(std::move(instruction));
    }

    Argument whole_chunk(Region region, std::size_t chunk, Access access) const {
        const std::int64_t elements = chunks_.chunks[chunk].elements;
        return {{region, narrow<std::int32_t>(chunk), 0}, {program_.chunk_dtypes[at(region)], {elements}}, {1}, access};
    }

    Segment norm_segment() const {
        Segment segment{.kind = TaskKind::norm};
        const auto count = static_cast<std::int64_t>(chunks_.chunks.size());
        for (std::size_t c = 0; c < chunks_.chunks.size(); ++c) {
            Instruction square{.op = "squared_norm"};
            square.inputs.push_back(whole_chunk(Region::gradients, c, Access::read));
            square.outputs.push_back({{Region::results, 0, squares_offset_ + 8 * static_cast<std::int64_t>(c)},
                                      {DType::float64, {}},
                                      {},
                                      Access::write});
            segment.instructions.push_back(std::move(square));
        }
        Instruction finish{.op = "finish_norm"};
        finish.inputs.push_back({{Region::results, 0, squares_offset_}, {DType::float64, {count}}, {1}, Access::read});
        finish.inputs.push_back(loss_);
        finish.inputs.back().access = Access::read;
        finish.outputs.push_back(norm_);
        segment.instructions.push_back(std::move(finish));
        return segment;
    }

    Segment update_segment() const {
        Segment segment{.kind = TaskKind::update};
        for (std::size_t c = 0; c < chunks_.chunks.size(); ++c) {
            std::vector<std::int64_t> ranges, streams;
            for (const ChunkEntry& entry : chunks_.chunks[c].entries) {
                if (!entry.trained) continue;
                ranges.insert(ranges.end(), {entry.offset, entry.offset + entry.count, entry.decays});
                streams.push_back(
                    static_cast<std::int64_t>(hash_of(graph_.stored()[static_cast<std::size_t>(entry.stored)].name)));
            }
            if (ranges.empty()) continue;
            Instruction update{.op = "adamw", .attributes = {{"ranges", ranges}}};
            const Precision& types = plan_.precision;
            if (types.rounds_weights() || types.rounds_moments()) update.attributes.set("streams", streams);
            if (types.compute != types.gradients) update.attributes.set("weights", std::string(name_of(types.compute)));
            if (types.moments != types.gradients) update.attributes.set("moments", std::string(name_of(types.moments)));
            update.inputs.push_back(whole_chunk(Region::gradients, c, Access::read));
            for (Region region : {Region::weights, Region::moments1, Region::moments2})
                update.outputs.push_back(whole_chunk(region, c, Access::write));
            if (program_.has_master) {
                update.attributes.set("master", true);
                update.outputs.push_back(whole_chunk(Region::master, c, Access::write));
            }
            segment.instructions.push_back(std::move(update));
        }
        return segment;
    }

    void name_buffers() {
        for (ValueId input : graph_.inputs())
            program_.inputs.push_back({graph_.value(input).name, argument(input, Access::write)});
        for (const Output& output : graph_.outputs())
            if (output.parameter == ValueId::none)
                program_.outputs.push_back(
                    {output.name, output.name == "loss" ? loss_ : argument(output.value, Access::read)});
    }

    std::int32_t add_segment(Segment segment) {
        program_.segments.push_back(std::move(segment));
        return narrow<std::int32_t>(program_.segments.size() - 1);
    }

    std::int32_t add_task(TaskKind kind, std::int64_t micro_batch, std::int32_t segment) {
        const auto number = narrow<std::int32_t>(program_.step.size());
        Task task{.kind = kind, .micro_batch = narrow<std::int32_t>(micro_batch), .segment = segment};
        if (number > 0) task.waits.push_back(number - 1); // one slot: nothing of a micro-batch can overtake another
        program_.step.push_back(std::move(task));
        return number;
    }

    void write_tasks() {
        const bool split = !segments_[index_of(Part::weight_gradient)].instructions.empty();
        if (!segments_[index_of(Part::setup)].instructions.empty())
            program_.setup.push_back(
                {.kind = TaskKind::setup, .segment = add_segment(segments_[index_of(Part::setup)])});
        const std::int32_t forward = add_segment(segments_[index_of(Part::forward)]);
        const std::int32_t backward = trains_ ? add_segment(segments_[index_of(Part::backward)]) : -1;
        const std::int32_t weight = split ? add_segment(segments_[index_of(Part::weight_gradient)]) : -1;
        for (std::int64_t m = 0; m < plan_.micro_batches(); ++m) add_task(TaskKind::load, m, -1);
        for (std::int64_t m = 0; m < plan_.micro_batches(); ++m) {
            add_task(TaskKind::forward, m, forward);
            if (trains_) add_task(TaskKind::backward, m, backward);
            if (split) add_task(TaskKind::weight_gradient, m, weight);
        }
        if (!trains_) return;
        add_task(TaskKind::norm, 0, add_segment(norm_segment()));
        add_task(TaskKind::update, 0, add_segment(update_segment()));
    }

    void size_regions() {
        program_.sizes[at(Region::constants)] = placement_.constants;
        program_.sizes[at(Region::batch)] = placement_.batch;
        program_.sizes[at(Region::stash)] = placement_.stash;
        Bytes& transient = program_.sizes[at(Region::transient)];
        for (const Segment& segment : program_.segments) transient = std::max(transient, segment.transient);
    }

    const Graph& graph_;
    const Plan& plan_;
    const ChunkLayout& chunks_;
    bool trains_;
    Placement placement_;
    Program program_;
    std::array<Segment, part_count> segments_;
    std::map<std::size_t, std::vector<std::size_t>> by_producer_; // node -> its contributions, as outputs of the graph
    std::vector<bool> first_;                                     // per output of the graph
    Argument loss_, norm_;
    ValueId loss_value_ = ValueId::none;
    std::int64_t squares_offset_ = 0;
};

} // namespace

Compiled compile_training(const Graph& graph, const Plan& plan) {
    check(plan);
    Compiled result;
    result.chunks = lay_out_chunks(graph, plan.chunk_elements);
    result.program = Lowering(graph, plan, result.chunks, true).run();
    return result;
}

Program compile_forward(const Graph& graph, const Plan& plan, const ChunkLayout& chunks) {
    check(plan);
    return Lowering(graph, plan, chunks, false).run();
}

} // namespace tutti
