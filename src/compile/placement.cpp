#include "compile/placement.h"

#include "base/checked.h"
#include "base/error.h"
#include "compile/joins.h"
#include "compile/stages.h"
#include "compile/step_graph.h"
#include "memory/liveness.h"
#include "program/packing.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace tutti {
namespace {

// Small enough to keep for the whole run rather than to make again in every micro-batch.
constexpr std::int64_t constant_limit = std::int64_t{1} << 16;

class Placer {
  public:
    Placer(const Graph& graph, const ChunkLayout& chunks, const PlacementOptions& options)
        : graph_(graph), chunks_(chunks), options_(options) {}

    Placement run() {
        assign_parts();
        order_nodes();
        find_readers();
        find_direct_gradients();
        joins_ = find_joins(graph_, result_.parts);
        assign_buffers();
        complete_collectives();
        find_windows();
        find_pieces();
        place();
        return std::move(result_);
    }

  private:
    struct Buffer {
        Bytes size;
        Part first_part = Part::forward, last_part = Part::forward;
        std::int32_t first = 0, last = 0; // positions in the order
        bool kept = false;                // an output: alive until its part ends
        bool sent = false;                // for another stage
        std::int64_t offset = -1;
        Region region = Region::transient;
        std::int32_t piece = -1; // that it is part of
    };

    std::size_t storage(ValueId value) const { return index(graph_.value(value).storage); }
    const Node& node(std::size_t i) const { return graph_.nodes()[i]; }

    // A node is a weight gradient if all it does is to feed contributions, be it through a collective.
    bool only_contributes(std::size_t i) const {
        return std::ranges::all_of(node(i).outputs, [&](ValueId output) {
            return (contributions_[index(output)] > 0 && uses_[index(output)] == 0) || is_only_reduced(output);
        });
    }
    bool is_only_reduced(ValueId value) const {
        if (uses_[index(value)] != 1 || contributions_[index(value)] > 0) return false;
        const std::size_t reader = reader_[index(value)];
        return node(reader).op->collective && contributions_[index(node(reader).outputs[0])] > 0 &&
               uses_[index(node(reader).outputs[0])] == 0;
    }

    void assign_parts() {
        uses_.assign(graph_.values().size(), 0);
        contributions_.assign(graph_.values().size(), 0);
        reader_.assign(graph_.values().size(), 0);
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            for (ValueId input : node(i).inputs) {
                ++uses_[index(input)];
                reader_[index(input)] = i;
            }
        for (const Output& output : graph_.outputs())
            if (output.parameter != ValueId::none) ++contributions_[index(output.value)];

        std::vector<bool> constant(graph_.values().size(), false);
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            const Node& n = node(i);
            const bool hoisted =
                !n.op->changes && !is_random(*n.op, n.attributes) && !n.op->collective &&
                std::ranges::all_of(n.inputs, [&](ValueId v) { return constant[index(v)]; }) &&
                (n.op->name != "fill" || graph_.type(n.outputs[0]).bytes().count <= constant_limit) &&
                std::ranges::none_of(n.outputs, [&](ValueId v) { return contributions_[index(v)] > 0; });
            for (ValueId output : n.outputs) constant[index(output)] = hoisted;
            if (hoisted)
                result_.parts.push_back(Part::setup);
            else if (n.phase != Phase::backward)
                result_.parts.push_back(n.phase == Phase::forward ? Part::forward : Part::recompute);
            else
                result_.parts.push_back(options_.split_backward && only_contributes(i) ? Part::weight_gradient
                                                                                       : Part::backward);
        }
    }

    void order_nodes() {
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) result_.order.push_back(i);
        std::ranges::stable_sort(result_.order, {}, [&](std::size_t i) { return result_.parts[i]; });
        position_.resize(graph_.nodes().size());
        for (std::size_t p = 0; p < result_.order.size(); ++p) position_[result_.order[p]] = narrow<std::int32_t>(p);
    }

    // Per storage, the last node in order that reads it. Views read nothing; a contribution is read where it is made.
    void find_readers() {
        last_reader_.assign(graph_.values().size(), -1);
        auto reads = [&](std::size_t i, ValueId value) {
            std::int32_t& last = last_reader_[storage(value)];
            if (last < 0 || position_[i] > position_[static_cast<std::size_t>(last)]) last = narrow<std::int32_t>(i);
        };
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (!node(i).op->view)
                for (ValueId input : node(i).inputs) reads(i, input);
        for (const Output& output : graph_.outputs())
            if (output.parameter != ValueId::none) reads(index(graph_.value(output.value).producer), output.value);
    }

    // Straight into the gradient chunk: the operator can add into the value, which has no other use, and the kernel can
    // write the parameter's layout.
    bool may_be_direct(std::size_t i, const Output& output) const {
        const Value& parameter = graph_.value(output.parameter);
        return accepted(node(i).op->accumulates_into, parameter.type.shape, parameter.layout.strides) &&
               uses_[index(output.value)] == 0 && contributions_[index(output.value)] == 1 &&
               graph_.type(output.value).dtype == options_.gradients;
    }

    // All outputs of a node that it can add into, or none: a kernel either adds or overwrites. Where there are several,
    // each has to be the first to write its stored tensor, or they would have to differ in that.
    void find_direct_gradients() {
        result_.direct.assign(graph_.values().size(), false);
        std::map<std::size_t, std::vector<const Output*>> contributions; // per node
        std::map<std::int32_t, std::int32_t> earliest;                   // per stored tensor, a position
        for (const Output& output : graph_.outputs()) {
            if (output.parameter == ValueId::none) continue;
            const std::size_t i = index(graph_.value(output.value).producer);
            contributions[i].push_back(&output);
            const auto at = earliest.try_emplace(stored_of(output), position_[i]).first;
            at->second = std::min(at->second, position_[i]);
        }
        for (const auto& [i, outputs] : contributions) {
            const Operator& op = *node(i).op;
            std::size_t added = 0;
            for (std::size_t o = 0; o < node(i).outputs.size(); ++o) added += op.accumulates(o);
            std::set<std::int32_t> tensors;
            const bool fit = std::ranges::all_of(outputs, [&](const Output* output) {
                const auto o = std::ranges::find(node(i).outputs, output->value) - node(i).outputs.begin();
                const bool first = earliest.at(stored_of(*output)) == position_[i];
                return op.accumulates(static_cast<std::size_t>(o)) && may_be_direct(i, *output) &&
                       (added == 1 || (first && tensors.insert(stored_of(*output)).second)) &&
                       is_cleared(*output) == is_cleared(*outputs.front());
            });
            if (!fit || outputs.size() != added) continue;
            for (const Output* output : outputs) result_.direct[index(output->value)] = true;
        }
    }

    bool is_cleared(const Output& output) const {
        const auto chunk =
            static_cast<std::size_t>(chunks_.places[tensor_of(*graph_.parameter_of(output.parameter))].chunk);
        return !options_.cleared.empty() && options_.cleared[chunk];
    }

    std::int32_t stored_of(const Output& output) const { return graph_.parameter_of(output.parameter)->stored; }

    // The operator may write over one of its inputs, and that input is needed no more.
    bool may_overwrite(std::size_t i) const {
        const Node& n = node(i);
        if (n.op->overwrites < 0 || n.op->overwrites >= static_cast<int>(n.inputs.size())) return false;
        const ValueId input = n.inputs[static_cast<std::size_t>(n.op->overwrites)];
        const Value& value = graph_.value(input);
        const std::size_t root = storage(input);
        if (buffer_of_[root] < 0) return false; // parameters and graph inputs
        const Buffer& buffer = buffers_[static_cast<std::size_t>(buffer_of_[root])];
        const auto sharing = std::ranges::count_if(n.inputs, [&](ValueId v) { return storage(v) == root; });
        return buffer.first_part != Part::setup && !(buffer.kept && result_.parts[i] == buffer.first_part) &&
               buffer.last == position_[i] && sharing == 1 && value.type == graph_.type(n.outputs[0]) &&
               value.layout == dense_layout(value.type.shape) && buffer.size == value.type.bytes() &&
               contributions_[root] == 0;
    }

    void assign_buffers() {
        buffer_of_.assign(graph_.values().size(), -1);
        std::vector<bool> kept(graph_.values().size(), false);
        for (const Output& output : graph_.outputs())
            if (output.parameter == ValueId::none) kept[storage(output.value)] = true;

        for (std::size_t i : result_.order) {
            const Node& n = node(i);
            if (n.op->view) continue;
            const bool overwrite = may_overwrite(i);
            for (std::size_t o = 0; o < n.outputs.size(); ++o) {
                const std::size_t value = index(n.outputs[o]);
                if (result_.direct[value] || buffer_of_[value] >= 0) continue; // or made for a part of it
                const std::int32_t reader = last_reader_[value];
                const Part last_part = reader < 0 ? result_.parts[i] : result_.parts[static_cast<std::size_t>(reader)];
                const std::int32_t last = reader < 0 ? position_[i] : position_[static_cast<std::size_t>(reader)];
                if (const auto part = joins_.inside.find(n.outputs[o]); part != joins_.inside.end()) {
                    buffer_of_[value] = buffer_for(part->second.whole, i, kept[index(part->second.whole)]);
                    keep_until(buffers_[static_cast<std::size_t>(buffer_of_[value])], last_part, last);
                    continue;
                }
                if (overwrite && o == 0) {
                    const ValueId input = n.inputs[static_cast<std::size_t>(n.op->overwrites)];
                    buffer_of_[value] = buffer_of_[storage(input)];
                    Buffer& buffer = buffers_[static_cast<std::size_t>(buffer_of_[value])];
                    buffer.last = std::max(last, position_[i]);
                    buffer.last_part = last_part;
                    buffer.kept |= kept[value];
                    continue;
                }
                buffer_of_[value] = narrow<std::int32_t>(buffers_.size());
                buffers_.push_back({graph_.value(n.outputs[o]).type.bytes(), result_.parts[i], last_part, position_[i],
                                    std::max(last, position_[i]), kept[value]});
            }
        }
    }

    static void keep_until(Buffer& buffer, Part part, std::int32_t position) {
        if (position <= buffer.last) return;
        buffer.last = position;
        buffer.last_part = part;
    }

    // The buffer that a part lies in. A concatenation's is alive from the first part on that node i writes.
    std::int32_t buffer_for(ValueId whole, std::size_t i, bool kept) {
        std::int32_t& number = buffer_of_[index(whole)];
        if (number >= 0) return number;
        number = narrow<std::int32_t>(buffers_.size());
        const std::size_t concat = index(graph_.value(whole).producer);
        const std::int32_t found = last_reader_[index(whole)];
        const std::size_t last = found < 0 ? concat : static_cast<std::size_t>(found);
        buffers_.push_back({graph_.type(whole).bytes(), result_.parts[i], result_.parts[last], position_[i],
                            std::max(position_[last], position_[concat]), kept});
        return number;
    }

    // The last position of a part.
    std::int32_t end_of(Part part) const {
        for (std::size_t p = result_.order.size(); p-- > 0;)
            if (result_.parts[result_.order[p]] == part) return narrow<std::int32_t>(p);
        return 0;
    }

    // A collective goes on while others compute: what it reads stays as it is until somebody waits for it.
    void complete_collectives() {
        result_.completed.assign(graph_.nodes().size(), -1);
        std::map<std::size_t, std::size_t> made; // storage -> the collective that makes it
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (node(i).op->collective) {
                result_.completed[i] = end_of(result_.parts[i]);
                for (ValueId output : node(i).outputs) made[storage(output)] = i;
            }
        if (made.empty()) return;
        // Contributions and losses are added up where they are made, be it as a view of what a collective gave.
        for (const Output& output : graph_.outputs())
            if (const auto from = made.find(storage(output.value));
                from != made.end() && (output.parameter != ValueId::none || output.name == "loss"))
                result_.completed[from->second] = position_[index(graph_.value(output.value).producer)];
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            if (node(i).op->view) continue;
            for (ValueId input : node(i).inputs)
                if (const auto from = made.find(storage(input));
                    from != made.end() && result_.parts[from->second] == result_.parts[i])
                    result_.completed[from->second] = std::min(result_.completed[from->second], position_[i]);
        }
        // So does what it writes, which nobody may read: a bias that another rank adds.
        for (const auto& [value, i] : made)
            for (const std::vector<ValueId>& operands : {node(i).inputs, node(i).outputs})
                for (ValueId operand : operands)
                    if (const std::int32_t buffer = buffer_of_[storage(operand)]; buffer >= 0)
                        keep_until(buffers_[static_cast<std::size_t>(buffer)], result_.parts[i], result_.completed[i]);
    }

    // When a spread chunk has to be whole. Weights are asked for when the chunk before is first read; the reduction of
    // gradients ends when that of the chunk after begins.
    void find_windows() {
        auto extend = [&](std::vector<Window>& windows, std::int32_t chunk, std::int32_t position) {
            auto at = std::ranges::find(windows, chunk, &Window::chunk);
            if (at == windows.end()) at = windows.insert(at, {chunk, position, position});
            at->first = std::min(at->first, position);
            at->last = std::max(at->last, position);
        };
        auto is_spread = [](const std::vector<bool>& spread, std::int32_t chunk) {
            return !spread.empty() && spread[static_cast<std::size_t>(chunk)];
        };
        for (std::size_t i : result_.order) {
            const auto part = static_cast<std::size_t>(result_.parts[i]);
            if (node(i).op->view) continue;
            for (ValueId input : node(i).inputs)
                if (const Parameter* parameter = graph_.parameter_of(graph_.value(input).storage))
                    if (const std::int32_t chunk = chunks_.places[tensor_of(*parameter)].chunk;
                        is_spread(options_.gathered, chunk)) {
                        extend(result_.weights[part], chunk, position_[i]);
                        if (node(i).op->collective) extend(result_.weights[part], chunk, result_.completed[i]);
                    }
        }
        for (const Output& output : graph_.outputs()) {
            if (output.parameter == ValueId::none) continue;
            const std::size_t i = index(graph_.value(output.value).producer);
            const std::int32_t chunk = chunks_.places[tensor_of(*graph_.parameter_of(output.parameter))].chunk;
            if (is_spread(options_.scattered, chunk))
                extend(result_.gradients[static_cast<std::size_t>(result_.parts[i])], chunk, position_[i]);
        }
        for (std::size_t part = 0; part < part_count; ++part) {
            std::vector<Window>& gradients = result_.gradients[part];
            std::ranges::sort(gradients, {}, &Window::last);
            for (std::size_t w = 0; w < gradients.size(); ++w) {
                gradients[w].used = gradients[w].last;
                if (w + 1 < gradients.size()) gradients[w].last = gradients[w + 1].last;
            }
            std::vector<Window>& weights = result_.weights[part];
            std::ranges::sort(weights, {}, &Window::first);
            for (std::size_t w = weights.size(); w-- > 1;) weights[w].first = weights[w - 1].first;
        }
    }

    // What the backward of an offloaded block is the first to read of the stash is one piece: it comes when that
    // begins. What is exchanged, or read from outside, stays where it is.
    void find_pieces() {
        if (options_.offloaded.empty()) return;
        std::vector<bool> stays(buffers_.size());
        std::vector<std::int32_t> reader(buffers_.size(), -1); // in the order the first, after the forward
        for (std::size_t p = 0; p < result_.order.size(); ++p) {
            const Node& n = node(result_.order[p]);
            if (n.op->view) continue;
            for (const std::vector<ValueId>& operands : {n.inputs, n.outputs})
                for (ValueId operand : operands) {
                    const std::int32_t buffer = buffer_of_[storage(operand)];
                    if (buffer < 0) continue;
                    const auto b = static_cast<std::size_t>(buffer);
                    if (n.op->collective) stays[b] = true;
                    if (result_.parts[result_.order[p]] > Part::forward && reader[b] < 0)
                        reader[b] = narrow<std::int32_t>(result_.order[p]);
                }
        }
        for (const Output& output : graph_.outputs())
            if (output.parameter == ValueId::none && buffer_of_[storage(output.value)] >= 0)
                stays[static_cast<std::size_t>(buffer_of_[storage(output.value)])] = true;
        std::map<int, std::int32_t> pieces; // per block
        for (std::size_t b = 0; b < buffers_.size(); ++b) {
            Buffer& buffer = buffers_[b];
            if (buffer.first_part != Part::forward || buffer.last_part == Part::forward || stays[b] || reader[b] < 0)
                continue;
            const int block = node(static_cast<std::size_t>(reader[b])).block;
            if (std::ranges::find(options_.offloaded, block) == options_.offloaded.end()) continue;
            buffer.piece = pieces.try_emplace(block, narrow<std::int32_t>(pieces.size())).first->second;
        }
        result_.pieces.resize(pieces.size());
    }

    static bool is_forward_message(const Output& output) { return output.name.starts_with(stage_output); }
    static bool is_message(const Output& output) {
        return output.parameter == ValueId::none &&
               (is_forward_message(output) || output.name.starts_with(stage_input_gradient));
    }

    // What only a neighbour reads is written where messages are sent from.
    void find_messages() {
        for (const Output& output : graph_.outputs())
            if (is_message(output) && buffer_of_[storage(output.value)] >= 0)
                buffers_[static_cast<std::size_t>(buffer_of_[storage(output.value)])].sent = true;
    }

    static Region region_of(Part first) {
        switch (first) {
        case Part::forward: return Region::stash;
        case Part::recompute: return Region::recomputed;
        default: return Region::deferred;
        }
    }

    void place() {
        find_messages();
        result_.staging.assign(graph_.nodes().size(), -1);
        std::array<std::vector<LiveBuffer>, part_count> transient;
        std::array<std::vector<Buffer*>, part_count> owners;
        std::array<std::int32_t, part_count> end{};
        for (std::size_t p = 0; p < result_.order.size(); ++p)
            end[static_cast<std::size_t>(result_.parts[result_.order[p]])] = narrow<std::int32_t>(p);
        auto append = [](Bytes& region, Buffer& buffer) {
            buffer.offset = region.count;
            region.count = round_up(region.count + buffer.size.count, buffer_alignment);
        };
        for (Buffer& buffer : buffers_) {
            const auto part = static_cast<std::size_t>(buffer.first_part);
            if (buffer.first_part == Part::setup) {
                buffer.region = Region::constants;
                append(result_.constants, buffer);
                buffer.offset += options_.constants;
            } else if (buffer.piece >= 0) {
                buffer.region = Region::offloaded;
                append(result_.pieces[static_cast<std::size_t>(buffer.piece)], buffer);
            } else if (buffer.first_part != buffer.last_part || buffer.sent) {
                buffer.region = buffer.first_part != buffer.last_part ? region_of(buffer.first_part) : Region::outbox;
                append(result_.slots[slotted(buffer.region)], buffer);
            } else {
                transient[part].push_back({buffer.size, buffer.first, buffer.kept ? end[part] : buffer.last});
                owners[part].push_back(&buffer);
            }
        }
        for (std::size_t part = 0; part < part_count; ++part) {
            const std::vector<Window*> windows = windows_of(part);
            const std::vector<std::size_t> staged = staged_in(static_cast<Part>(part));
            for (const Window* window : windows)
                transient[part].push_back({window_bytes(*window, part), window->first, window->last});
            for (std::size_t i : staged) transient[part].push_back({staging_of(i), position_[i], result_.completed[i]});
            result_.transient[part] = place_buffers(transient[part]);
            auto placed = transient[part].begin();
            for (Buffer* owner : owners[part]) owner->offset = (placed++)->offset;
            for (Window* window : windows) window->offset = (placed++)->offset;
            for (std::size_t i : staged) result_.staging[i] = (placed++)->offset;
        }
        assign_addresses();
    }

    std::vector<Window*> windows_of(std::size_t part) {
        std::vector<Window*> windows;
        for (Window& window : result_.weights[part]) windows.push_back(&window);
        for (Window& window : result_.gradients[part]) windows.push_back(&window);
        return windows;
    }

    Bytes window_bytes(const Window& window, std::size_t part) const {
        const std::vector<Window>& weights = result_.weights[part];
        const bool is_weights = &window >= weights.data() && &window < weights.data() + weights.size();
        return {chunks_.chunks[static_cast<std::size_t>(window.chunk)].elements *
                size_of(is_weights ? options_.weights : options_.gradients)};
    }

    Bytes staging_of(std::size_t i) const {
        return packing_bytes(node(i).op->name, node(i).attributes, graph_.type(node(i).inputs[0]),
                             graph_.type(node(i).outputs[0]));
    }
    std::vector<std::size_t> staged_in(Part part) const {
        std::vector<std::size_t> nodes;
        for (std::size_t i : result_.order)
            if (result_.parts[i] == part && node(i).op->collective && staging_of(i).count > 0) nodes.push_back(i);
        return nodes;
    }

    // Tokens lie in the batch, what comes from a neighbour in its slots.
    Address address_of_input(const Value& input) {
        auto take = [&](Region region) {
            Bytes& end = result_.slots[slotted(region)];
            const Address address{region, 0, end.count};
            end.count = round_up(end.count + input.type.bytes().count, buffer_alignment);
            return address;
        };
        if (input.name.starts_with(stage_input)) return take(Region::received);
        if (input.name.starts_with(stage_output_gradient)) return take(Region::returned);
        return {Region::batch, 0, options_.batch.at(input.name)};
    }

    std::size_t tensor_of(const Parameter& parameter) const {
        const auto stored = static_cast<std::size_t>(parameter.stored);
        return options_.tensors.empty() ? stored : static_cast<std::size_t>(options_.tensors[stored]);
    }

    void assign_addresses() {
        std::map<std::size_t, Address> inputs;
        for (ValueId input : graph_.inputs()) inputs[index(input)] = address_of_input(graph_.value(input));
        result_.addresses.resize(graph_.values().size());
        for (const Value& value : graph_.values()) result_.strides.push_back(value.layout.strides);
        for (std::size_t v = 0; v < graph_.values().size(); ++v) {
            const Value& value = graph_.values()[v];
            const std::size_t root = index(value.storage);
            const std::int64_t element = size_of(value.type.dtype), within = value.layout.offset * element;
            Address& address = result_.addresses[v];
            if (const Parameter* parameter = graph_.parameter_of(value.storage)) {
                const ChunkPlace& place = chunks_.places[tensor_of(*parameter)];
                address = {Region::weights, place.chunk, place.offset * element + within};
            } else if (const auto input = inputs.find(root); input != inputs.end()) {
                address = input->second;
                address.offset += within;
            } else if (buffer_of_[root] >= 0) {
                const Buffer& buffer = buffers_[static_cast<std::size_t>(buffer_of_[root])];
                address = {buffer.region, std::max(buffer.piece, 0), buffer.offset + within};
            }
        }
        for (const auto& [value, inside] : joins_.inside) {
            result_.addresses[index(value)].offset += inside.layout.offset * size_of(graph_.type(value).dtype);
            result_.strides[index(value)] = inside.layout.strides;
        }
        result_.joined = joins_.joined;
        address_messages();
    }

    // Slots of the forward outlive the message while training, since the gradient comes back only after it; all else
    // that is sent lies in the outbox, or is copied there.
    void address_messages() {
        for (std::size_t o = 0; o < graph_.outputs().size(); ++o) {
            const Output& output = graph_.outputs()[o];
            if (!is_message(output)) continue;
            const Address& at = result_.addresses[index(output.value)];
            const bool lasts =
                at.region == Region::outbox || (options_.trains && is_forward_message(output) &&
                                                (at.region == Region::stash || at.region == Region::received));
            const TensorType& type = graph_.type(output.value);
            SentValue sent{.output = o, .address = at};
            if (!lasts || !is_dense(type.shape, result_.strides[index(output.value)])) {
                Bytes& end = result_.slots[slotted(Region::outbox)];
                sent.address = {Region::outbox, 0, end.count};
                sent.copied = true;
                end.count = round_up(end.count + type.bytes().count, buffer_alignment);
            }
            result_.sent.push_back(sent);
        }
    }

    const Graph& graph_;
    const ChunkLayout& chunks_;
    const PlacementOptions& options_;
    Placement result_;
    std::vector<int> uses_, contributions_;
    std::vector<std::size_t> reader_; // per value: a node that reads it
    std::vector<std::int32_t> position_, last_reader_, buffer_of_;
    std::vector<Buffer> buffers_;
    Joins joins_;
};

} // namespace

Placement place_values(const Graph& graph, const ChunkLayout& chunks, const PlacementOptions& options) {
    return Placer(graph, chunks, options).run();
}

} // namespace tutti
