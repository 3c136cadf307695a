#include "compile/stage_code.h"

#include "base/checked.h"
#include "base/error.h"
#include "compile/graphs/stages.h"
#include "compile/graphs/step_graph.h"
#include "program/packing.h"

#include <algorithm>
#include <deque>

namespace tutti::compile {
namespace {

std::size_t index_of(Part part) { return static_cast<std::size_t>(part); }

class StageCompiler {
  public:
    StageCompiler(const Graph& graph, const Ownership& ownership, const StageCodeOptions& options)
        : graph_(graph), ownership_(ownership), options_(options), tensors_(ownership.tensors_of(graph)) {
        check_runs();
        PlacementOptions placing{.trains = options.trains,
                                 .split_backward = options.split_backward,
                                 .weights = options.precision.compute,
                                 .gradients = options.precision.gradients,
                                 .batch = options.batch,
                                 .tensors = tensors_,
                                 .constants = options.constants,
                                 .offloaded = options.offloaded};
        for (std::size_t c = 0; c < ownership.layout.chunks.size(); ++c) {
            const bool spread = ownership.kind_of(c).spread_over >= 0;
            placing.cleared.push_back(is_cleared_first(ownership.kind_of(c), options.zero));
            placing.gathered.push_back(spread && options.zero.shards_weights());
            placing.scattered.push_back(spread && options.zero.shards_gradients());
        }
        placement_ = place_values(graph, ownership.layout, placing);
    }

    StageCode run() {
        constexpr std::array<TaskKind, part_count> kinds = {TaskKind::setup, TaskKind::forward, TaskKind::recompute,
                                                            TaskKind::backward, TaskKind::weight_gradient};
        for (std::size_t part = 0; part < part_count; ++part) code_.segments[part].kind = kinds[part];
        find_contributions();
        if (options_.early) find_early_updates();
        for (std::size_t p = 0; p < placement_.order.size(); ++p) {
            position_ = narrow<std::int32_t>(p);
            part_ = placement_.parts[placement_.order[p]];
            open_windows();
            lower(placement_.order[p]);
            close_windows();
            reduce_chunks();
            update_chunks(p + 1 == placement_.order.size() || placement_.parts[placement_.order[p + 1]] != part_);
        }
        collect_messages();
        for (Segment& segment : code_.segments) find_near(segment);
        name_buffers();
        for (std::size_t part = 0; part < part_count; ++part)
            code_.segments[part].transient = placement_.transient[part];
        code_.slots = placement_.slots;
        code_.pieces = placement_.pieces;
        code_.constants = placement_.constants;
        return std::move(code_);
    }

  private:
    Segment& segment() { return code_.segments[index_of(part_)]; }
    std::int32_t next() { return narrow<std::int32_t>(segment().instructions.size()); }

    // The chunks may have been laid out for another graph.
    void check_runs() const {
        for (const Parameter& parameter : graph_.parameters()) {
            const memory::ChunkTensor& first = place_of(parameter.stored);
            std::int64_t offset = first.offset;
            for (std::int32_t stored : parameter.run()) {
                const memory::ChunkTensor& place = place_of(stored);
                TUTTI_CHECK(place.chunk == first.chunk && place.offset == offset, "{} is not laid out as one",
                            graph_.value(parameter.value).name);
                offset += graph_.stored()[static_cast<std::size_t>(stored)].type.elements();
            }
        }
    }

    const memory::ChunkTensor& place_of(std::int32_t stored) const {
        return ownership_.layout.tensor(tensors_[static_cast<std::size_t>(stored)]);
    }

    // ---- operands

    // A chunk that is spread is looked at through this part's window.
    Address seen(Address address) const {
        if (address.region != Region::weights && address.region != Region::gradients) return address;
        const auto& windows =
            (address.region == Region::weights ? placement_.weights : placement_.gradients)[index_of(part_)];
        const auto window = std::ranges::find(windows, address.chunk, &Window::chunk);
        if (window == windows.end()) return address;
        return {Region::transient, 0, window->offset + address.offset};
    }

    Argument argument(ValueId value, Access access) const {
        const Address address = placement_.addresses[index(value)];
        const bool near = address.region == Region::transient; // a window is not: much goes by while it is open
        return {seen(address), graph_.type(value), placement_.strides[index(value)], access, near};
    }

    // Weights and gradients that halves of a micro-batch touch one after the other, and the like.
    static void find_near(Segment& segment) {
        constexpr std::size_t moment = 2; // kernels
        std::deque<std::vector<Address>> before;
        for (Instruction& instruction : segment.instructions) {
            if (instruction.lane != Lane::compute) continue;
            std::vector<Address> touched;
            for (auto* arguments : {&instruction.inputs, &instruction.outputs})
                for (Argument& argument : *arguments) {
                    touched.push_back(argument.address);
                    argument.near |= std::ranges::any_of(before, [&](const auto& kernel) {
                        return std::ranges::find(kernel, argument.address) != kernel.end();
                    });
                }
            before.push_back(std::move(touched));
            if (before.size() > moment) before.pop_front();
        }
    }

    // The place of a parameter's gradient: the parameter's own layout, in the gradient chunk.
    Argument gradient_of(ValueId parameter) const {
        const Value& value = graph_.value(parameter);
        const memory::ChunkTensor& place = place_of(graph_.parameter_of(parameter)->stored);
        const DType dtype = options_.precision.gradients;
        return {seen({Region::gradients, place.chunk, (place.offset + value.layout.offset) * size_of(dtype)}),
                {dtype, value.type.shape},
                value.layout.strides,
                Access::accumulate};
    }

    // ---- contributions

    // In the order they run; the first to each view of a stored tensor overwrites in the first micro-batch. Tensors of
    // several stages are cleared instead, and so are windows, which hold one micro-batch's.
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
                const std::int32_t stored = graph_.parameter_of(parameter)->stored;
                const std::int32_t chunk = place_of(stored).chunk;
                last_contribution_[chunk] = i;
                std::vector<ValueId>& seen = views[stored];
                const bool known =
                    std::ranges::any_of(seen, [&](ValueId other) { return same_view(other, parameter); });
                if (!known) {
                    for (ValueId other : seen) check_disjoint(other, parameter);
                    seen.push_back(parameter);
                }
                first_[o] = !known && !is_cleared(chunk);
            }
        }
    }

    bool is_cleared(std::int32_t chunk) const {
        return is_cleared_first(ownership_.kind_of(static_cast<std::size_t>(chunk)), options_.zero);
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

    bool is_direct(std::size_t o) const { return placement_.direct[index(graph_.outputs()[o].value)]; }

    // ---- instructions

    void lower(std::size_t i) {
        const Node& node = graph_.nodes()[i];
        const auto found = by_producer_.find(i);
        const std::vector<std::size_t> contributions =
            found == by_producer_.end() ? decltype(found->second){} : found->second;
        if (!node.op->view && !placement_.joined[i]) {
            segment().flops +=
                node.op->cost(graph_.input_types(node), graph_.output_types(node), node.attributes).flops.count;
            Instruction instruction = instruction_of(node, i);
            for (std::size_t o : contributions)
                if (is_direct(o)) write_gradient(node, o, instruction);
            if (node.op->collective) started_[i] = next();
            segment().instructions.push_back(std::move(instruction));
        }
        for (std::size_t o : contributions)
            if (!is_direct(o))
                accumulate(graph_.outputs()[o].value, gradient_of(graph_.outputs()[o].parameter), first_[o],
                           node.source);
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
        for (ValueId input : node.inputs) {
            const Parameter* parameter = graph_.parameter_of(graph_.value(input).storage);
            if (parameter == nullptr) continue;
            if (const auto at = gathered_.find({part_, place_of(parameter->stored).chunk}); at != gathered_.end()) {
                instruction.waits.push_back(at->second);
                gathered_.erase(at);
            }
        }
    }

    void wait_for_collective(ValueId value, Instruction& instruction) {
        const NodeId made = graph_.value(graph_.value(value).storage).producer;
        if (made == NodeId::none || placement_.parts[index(made)] != part_) return;
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
        const bool others = std::ranges::any_of(
            instruction.outputs, [](const Argument& output) { return output.access == Access::accumulate; });
        TUTTI_CHECK(!others || instruction.first_overwrites == first_[o], "{} has ties of two kinds", node.source);
        instruction.outputs[which] = gradient_of(graph_.outputs()[o].parameter);
        instruction.first_overwrites = first_[o];
    }

    void accumulate(ValueId value, Argument into, bool first, const std::string& source) {
        Instruction instruction{
            .op = "accumulate", .attributes = {{"dtype", std::string(name_of(into.type.dtype))}}, .source = source};
        instruction.inputs.push_back(argument(value, Access::read));
        instruction.outputs.push_back(std::move(into));
        instruction.first_overwrites = first;
        wait_for_collective(value, instruction);
        segment().instructions.push_back(std::move(instruction));
    }

    // ---- chunks that are spread over ranks

    Argument flat(Address address, DType dtype, std::int64_t elements, Access access) const {
        return {address, {dtype, {elements}}, {1}, access};
    }

    void open_windows() {
        for (const Window& window : placement_.weights[index_of(part_)]) {
            if (window.first != position_) continue;
            const auto c = static_cast<std::size_t>(window.chunk);
            const ChunkKind& kind = ownership_.kind_of(c);
            const DType dtype = options_.precision.compute;
            Instruction gather = exchange_of(InstructionKind::gather_chunk, kind.spread_over);
            gather.inputs.push_back(
                flat({Region::weights, window.chunk, 0}, dtype, ownership_.share(c).size(), Access::read));
            gather.outputs.push_back(flat({Region::transient, 0, window.offset}, dtype,
                                          ownership_.layout.chunks[c].elements, Access::write));
            gathered_[{part_, window.chunk}] = next();
            segment().instructions.push_back(std::move(gather));
        }
        for (const Window& window : placement_.gradients[index_of(part_)]) {
            if (window.first != position_) continue;
            const std::int64_t elements = ownership_.layout.chunks[static_cast<std::size_t>(window.chunk)].elements;
            segment().instructions.push_back(zeros(
                flat({Region::transient, 0, window.offset}, options_.precision.gradients, elements, Access::write)));
        }
    }

    // This rank's share of the sum is formed where it lies in the window, and added to what is kept when the next
    // reduction has begun.
    void close_windows() {
        const DType dtype = options_.precision.gradients;
        for (const Window& window : placement_.gradients[index_of(part_)]) {
            if (window.used != position_) continue;
            const auto c = static_cast<std::size_t>(window.chunk);
            reducing_[{part_, window.chunk}] = next();
            segment().instructions.push_back(reduction(
                ownership_.kind_of(c).spread_over,
                flat({Region::transient, 0, window.offset}, dtype, ownership_.layout.chunks[c].elements, Access::read),
                share_of(window)));
        }
        for (const Window& window : placement_.gradients[index_of(part_)]) {
            if (window.last != position_) continue;
            const auto c = static_cast<std::size_t>(window.chunk);
            Instruction add{.op = "accumulate", .attributes = {{"dtype", std::string(name_of(dtype))}}};
            add.inputs.push_back(share_of(window));
            add.inputs.back().access = Access::read;
            add.outputs.push_back(
                flat({Region::gradients, window.chunk, 0}, dtype, ownership_.share(c).size(), Access::accumulate));
            add.waits.push_back(reducing_.at({part_, window.chunk}));
            segment().instructions.push_back(std::move(add));
        }
    }

    Argument share_of(const Window& window) const {
        const Range share = ownership_.share(static_cast<std::size_t>(window.chunk));
        const DType dtype = options_.precision.gradients;
        return flat({Region::transient, 0, window.offset + share.begin * size_of(dtype)}, dtype, share.size(),
                    Access::write);
    }

    static Instruction reduction(std::int32_t group, Argument whole, Argument share) {
        Instruction reduce = exchange_of(InstructionKind::reduce_chunk, group);
        reduce.inputs.push_back(std::move(whole));
        reduce.outputs.push_back(std::move(share));
        return reduce;
    }

    // Where one reduction is all that a chunk needs, it starts with the last contribution of the last micro-batch, and
    // the rest of the backward goes on above it. Where chunks come and go and none is needed, the square is taken while
    // the gradients are there.
    void reduce_chunks() {
        if (!options_.trains) return;
        for (const auto& [chunk, node] : last_contribution_) {
            if (placement_.order[static_cast<std::size_t>(position_)] != node) continue;
            const auto c = static_cast<std::size_t>(chunk);
            const DType dtype = options_.precision.gradients;
            if (reduces_early(ownership_.kind_of(c), options_.zero)) {
                reductions_.emplace_back(chunk, next());
                segment().instructions.push_back(reduction_of(ownership_, c, dtype, options_.zero));
                segment().instructions.back().awaited = ready_.contains(chunk);
            } else if (options_.squares && !ready_.contains(chunk) && squares_early(ownership_, c))
                segment().instructions.push_back(square_of(ownership_, c, *options_.squares, dtype, options_.zero));
            else
                continue;
            segment().instructions.back().only_last = true;
        }
    }

    // ---- updates within the backward

    // Per chunk the position from which on it may be updated: all have contributed, and read its weights.
    void find_early_updates() {
        for (const auto& [chunk, node] : last_contribution_)
            if (is_final_early(ownership_, static_cast<std::size_t>(chunk))) ready_[chunk] = position_of(node);
        auto not_before = [&](std::int32_t chunk, std::int32_t position) {
            if (const auto at = ready_.find(chunk); at != ready_.end()) at->second = std::max(at->second, position);
        };
        for (std::size_t p = 0; p < placement_.order.size(); ++p) {
            const Node& node = graph_.nodes()[placement_.order[p]];
            if (node.op->view) continue;
            for (ValueId input : node.inputs)
                if (const Parameter* parameter = graph_.parameter_of(graph_.value(input).storage))
                    not_before(place_of(parameter->stored).chunk, narrow<std::int32_t>(p));
        }
        for (const std::vector<Window>& windows : placement_.gradients)
            for (const Window& window : windows) not_before(window.chunk, window.last);
        // A reduction is waited for in the segment that starts it.
        std::erase_if(ready_, [&](const auto& one) {
            const auto& [chunk, position] = one;
            return reduces_early(ownership_.kind_of(static_cast<std::size_t>(chunk)), options_.zero) &&
                   part_at(position) != placement_.parts[last_contribution_.at(chunk)];
        });
    }

    Part part_at(std::int32_t position) const {
        return placement_.parts[placement_.order[static_cast<std::size_t>(position)]];
    }
    std::int32_t position_of(std::size_t node) const {
        return narrow<std::int32_t>(std::ranges::find(placement_.order, node) - placement_.order.begin());
    }

    // A chunk that is reduced is updated when the next reduction has begun, so that one is always under way.
    void update_chunks(bool part_ends) {
        for (const auto& [chunk, position] : ready_)
            if (position == position_) waiting_.push_back(chunk);
        std::vector<std::int32_t> still;
        for (std::int32_t chunk : waiting_)
            if (!part_ends && !reductions_.empty() && reductions_.back().first == chunk)
                still.push_back(chunk);
            else
                update_early(chunk);
        waiting_ = std::move(still);
        if (part_ends) reductions_.clear();
    }

    void update_early(std::int32_t chunk) {
        const bool has_loss = options_.early->alone && graph_.output("loss") != nullptr;
        std::vector<Instruction> update =
            early_update(ownership_, static_cast<std::size_t>(chunk), options_.early->results, options_.precision,
                         options_.zero, has_loss);
        for (const auto& [reduced, number] : reductions_)
            if (reduced == chunk && !update.empty()) update.front().waits.push_back(number);
        for (Instruction& one : update) {
            one.only_last = true;
            segment().instructions.push_back(std::move(one));
        }
        code_.updated.insert(chunk);
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
            part_ = forward ? Part::forward : Part::backward;
            const TensorType& type = graph_.type(output.value);
            const Argument dense{sent.address, type, dense_strides(type.shape), Access::read};
            if (sent.copied) {
                Instruction copy{.op = "contiguous", .source = output.name};
                copy.inputs.push_back(argument(output.value, Access::read));
                copy.outputs.push_back(dense);
                copy.outputs.back().access = Access::write;
                const NodeId made = graph_.value(graph_.value(output.value).storage).producer;
                if (made != NodeId::none)
                    if (const auto at = started_.find(index(made)); at != started_.end()) {
                        copy.waits.push_back(at->second);
                        started_.erase(at);
                    }
                segment().instructions.push_back(std::move(copy));
            }
            (forward ? code_.activations_out : code_.gradients_out).push_back(dense);
        }
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
    const Ownership& ownership_;
    const StageCodeOptions& options_;
    std::vector<std::int32_t> tensors_; // stored tensor of the graph -> of the rank
    Placement placement_;
    StageCode code_;
    Part part_ = Part::setup;
    std::int32_t position_ = 0;
    std::map<std::size_t, std::vector<std::size_t>> by_producer_; // node -> its contributions, as outputs of the graph
    std::vector<bool> first_;                                     // per output of the graph
    std::map<std::size_t, std::int32_t> started_; // collectives that nobody has waited for: instructions
    std::map<std::pair<Part, std::int32_t>, std::int32_t> gathered_; // chunks that nobody has waited for: instructions
    std::map<std::pair<Part, std::int32_t>, std::int32_t> reducing_; // chunks whose window is being reduced
    std::map<std::int32_t, std::size_t> last_contribution_;          // per chunk, a node
    std::map<std::int32_t, std::int32_t> ready_;                     // per chunk that is updated early, a position
    std::vector<std::int32_t> waiting_;                              // chunks that are ready
    std::vector<std::pair<std::int32_t, std::int32_t>> reductions_;  // begun in this part: chunk, instruction
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
