#include "compile/placement.h"

#include "base/checked.h"
#include "base/error.h"
#include "compile/joins.h"
#include "memory/liveness.h"

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
        place();
        return std::move(result_);
    }

  private:
    struct Buffer {
        Bytes size;
        Part first_part = Part::forward, last_part = Part::forward;
        std::int32_t first = 0, last = 0; // positions in the order
        bool kept = false;                // an output: alive until its part ends
        std::int64_t offset = -1;
        Region region = Region::transient;
    };

    std::size_t storage(ValueId value) const { return index(graph_.value(value).storage); }
    const Node& node(std::size_t i) const { return graph_.nodes()[i]; }

    // A node is a weight gradient if all it does is to feed contributions.
    bool only_contributes(std::size_t i) const {
        return std::ranges::all_of(node(i).outputs, [&](ValueId output) {
            return contributions_[index(output)] > 0 && uses_[index(output)] == 0;
        });
    }

    void assign_parts() {
        uses_.assign(graph_.values().size(), 0);
        contributions_.assign(graph_.values().size(), 0);
        for (const Node& n : graph_.nodes())
            for (ValueId input : n.inputs) ++uses_[index(input)];
        for (const Output& output : graph_.outputs())
            if (output.parameter != ValueId::none) ++contributions_[index(output.value)];

        std::vector<bool> constant(graph_.values().size(), false);
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            const Node& n = node(i);
            const bool hoisted =
                !n.op->changes && !is_random(*n.op, n.attributes) &&
                std::ranges::all_of(n.inputs, [&](ValueId v) { return constant[index(v)]; }) &&
                (n.op->name != "fill" || graph_.type(n.outputs[0]).bytes().count <= constant_limit) &&
                std::ranges::none_of(n.outputs, [&](ValueId v) { return contributions_[index(v)] > 0; });
            for (ValueId output : n.outputs) constant[index(output)] = hoisted;
            if (hoisted)
                result_.parts.push_back(Part::setup);
            else if (n.phase == Phase::forward)
                result_.parts.push_back(Part::forward);
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
                       (added == 1 || (first && tensors.insert(stored_of(*output)).second));
            });
            if (!fit || outputs.size() != added) continue;
            for (const Output* output : outputs) result_.direct[index(output->value)] = true;
        }
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

    void place() {
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
            } else if (buffer.first_part != buffer.last_part) {
                buffer.region = Region::stash;
                append(result_.stash, buffer);
            } else {
                transient[part].push_back({buffer.size, buffer.first, buffer.kept ? end[part] : buffer.last});
                owners[part].push_back(&buffer);
            }
        }
        for (std::size_t part = 0; part < part_count; ++part) {
            result_.transient[part] = place_buffers(transient[part]);
            for (std::size_t i = 0; i < owners[part].size(); ++i) owners[part][i]->offset = transient[part][i].offset;
        }
        assign_addresses();
    }

    void assign_addresses() {
        std::vector<std::int64_t> input_offset(graph_.values().size(), -1);
        for (ValueId input : graph_.inputs()) {
            input_offset[index(input)] = result_.batch.count;
            result_.batch.count = round_up(result_.batch.count + graph_.type(input).bytes().count, buffer_alignment);
        }
        result_.addresses.resize(graph_.values().size());
        for (const Value& value : graph_.values()) result_.strides.push_back(value.layout.strides);
        for (std::size_t v = 0; v < graph_.values().size(); ++v) {
            const Value& value = graph_.values()[v];
            const std::size_t root = index(value.storage);
            const std::int64_t element = size_of(value.type.dtype), within = value.layout.offset * element;
            Address& address = result_.addresses[v];
            if (const Parameter* parameter = graph_.parameter_of(value.storage)) {
                const ChunkPlace& place = chunks_.places[static_cast<std::size_t>(parameter->stored)];
                address = {Region::weights, place.chunk, place.offset * element + within};
            } else if (input_offset[root] >= 0) {
                address = {Region::batch, 0, input_offset[root] + within};
            } else if (buffer_of_[root] >= 0) {
                const Buffer& buffer = buffers_[static_cast<std::size_t>(buffer_of_[root])];
                address = {buffer.region, 0, buffer.offset + within};
            }
        }
        for (const auto& [value, inside] : joins_.inside) {
            result_.addresses[index(value)].offset += inside.layout.offset * size_of(graph_.type(value).dtype);
            result_.strides[index(value)] = inside.layout.strides;
        }
        result_.joined = joins_.joined;
    }

    const Graph& graph_;
    const ChunkLayout& chunks_;
    const PlacementOptions& options_;
    Placement result_;
    std::vector<int> uses_, contributions_;
    std::vector<std::int32_t> position_, last_reader_, buffer_of_;
    std::vector<Buffer> buffers_;
    Joins joins_;
};

} // namespace

Placement place_values(const Graph& graph, const ChunkLayout& chunks, const PlacementOptions& options) {
    return Placer(graph, chunks, options).run();
}

} // namespace tutti
