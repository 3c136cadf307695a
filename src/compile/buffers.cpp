#include "compile/buffers.h"

#include "base/checked.h"
#include "compile/graphs/stages.h"

#include <algorithm>
#include <map>

namespace tutti::compile {
namespace {

class Assignment {
  public:
    Assignment(const Graph& graph, const NodeOrder& order, const std::vector<bool>& direct, const Joins& joins,
               std::span<const int> offloaded)
        : graph_(graph), order_(order), direct_(direct), joins_(joins), offloaded_(offloaded) {}

    Buffers run() {
        assign_buffers();
        complete_collectives();
        find_pieces();
        find_messages();
        return std::move(result_);
    }

  private:
    std::size_t storage(ValueId value) const { return index(graph_.value(value).storage); }
    const Node& node(std::size_t i) const { return graph_.nodes()[i]; }

    // The operator may write over one of its inputs, and that input is needed no more.
    bool may_overwrite(std::size_t i) const {
        const Node& n = node(i);
        if (n.op->overwrites < 0 || n.op->overwrites >= static_cast<int>(n.inputs.size())) return false;
        const ValueId input = n.inputs[static_cast<std::size_t>(n.op->overwrites)];
        const Value& value = graph_.value(input);
        const std::size_t root = storage(input);
        if (result_.of[root] < 0) return false; // parameters and graph inputs
        const Buffer& buffer = result_.all[static_cast<std::size_t>(result_.of[root])];
        const auto sharing = std::ranges::count_if(n.inputs, [&](ValueId v) { return storage(v) == root; });
        return buffer.first_part != Part::setup && !(buffer.kept && order_.parts[i] == buffer.first_part) &&
               buffer.last == order_.position[i] && sharing == 1 && value.type == graph_.type(n.outputs[0]) &&
               value.layout == dense_layout(value.type.shape) && buffer.size == value.type.bytes() &&
               order_.contributions[root] == 0;
    }

    void assign_buffers() {
        result_.of.assign(graph_.values().size(), -1);
        std::vector<bool> kept(graph_.values().size(), false);
        for (const Output& output : graph_.outputs())
            if (output.parameter == ValueId::none) kept[storage(output.value)] = true;

        for (std::size_t i : order_.order) {
            const Node& n = node(i);
            if (n.op->view) continue;
            const bool overwrite = may_overwrite(i);
            for (std::size_t o = 0; o < n.outputs.size(); ++o) {
                const std::size_t value = index(n.outputs[o]);
                if (direct_[value] || result_.of[value] >= 0) continue; // or made for a part of it
                const std::int32_t reader = order_.last_reader[value];
                const Part last_part = reader < 0 ? order_.parts[i] : order_.parts[static_cast<std::size_t>(reader)];
                const std::int32_t last =
                    reader < 0 ? order_.position[i] : order_.position[static_cast<std::size_t>(reader)];
                if (const auto part = joins_.inside.find(n.outputs[o]); part != joins_.inside.end()) {
                    result_.of[value] = buffer_for(part->second.whole, i, kept[index(part->second.whole)]);
                    keep_until(result_.all[static_cast<std::size_t>(result_.of[value])], last_part, last);
                    continue;
                }
                if (overwrite && o == 0) {
                    const ValueId input = n.inputs[static_cast<std::size_t>(n.op->overwrites)];
                    result_.of[value] = result_.of[storage(input)];
                    Buffer& buffer = result_.all[static_cast<std::size_t>(result_.of[value])];
                    buffer.last = std::max(last, order_.position[i]);
                    buffer.last_part = last_part;
                    buffer.kept |= kept[value];
                    continue;
                }
                result_.of[value] = narrow<std::int32_t>(result_.all.size());
                result_.all.push_back({graph_.value(n.outputs[o]).type.bytes(), order_.parts[i], last_part,
                                       order_.position[i], std::max(last, order_.position[i]), kept[value]});
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
        std::int32_t& number = result_.of[index(whole)];
        if (number >= 0) return number;
        number = narrow<std::int32_t>(result_.all.size());
        const std::size_t concat = index(graph_.value(whole).producer);
        const std::int32_t found = order_.last_reader[index(whole)];
        const std::size_t last = found < 0 ? concat : static_cast<std::size_t>(found);
        result_.all.push_back({graph_.type(whole).bytes(), order_.parts[i], order_.parts[last], order_.position[i],
                               std::max(order_.position[last], order_.position[concat]), kept});
        return number;
    }

    // A collective goes on while others compute: what it reads stays as it is until somebody waits for it.
    void complete_collectives() {
        result_.completed.assign(graph_.nodes().size(), -1);
        std::map<std::size_t, std::size_t> made; // storage -> the collective that makes it
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (node(i).op->collective) {
                result_.completed[i] = order_.end_of(order_.parts[i]);
                for (ValueId output : node(i).outputs) made[storage(output)] = i;
            }
        if (made.empty()) return;
        // Contributions and losses are added up where they are made, be it as a view of what a collective gave.
        for (const Output& output : graph_.outputs())
            if (const auto from = made.find(storage(output.value));
                from != made.end() && (output.parameter != ValueId::none || output.name == "loss"))
                result_.completed[from->second] = order_.position[index(graph_.value(output.value).producer)];
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            if (node(i).op->view) continue;
            for (ValueId input : node(i).inputs)
                if (const auto from = made.find(storage(input));
                    from != made.end() && order_.parts[from->second] == order_.parts[i])
                    result_.completed[from->second] = std::min(result_.completed[from->second], order_.position[i]);
        }
        // So does what it writes, which nobody may read: a bias that another rank adds.
        for (const auto& [value, i] : made)
            for (const std::vector<ValueId>& operands : {node(i).inputs, node(i).outputs})
                for (ValueId operand : operands)
                    if (Buffer* buffer = result_.find(storage(operand)))
                        keep_until(*buffer, order_.parts[i], result_.completed[i]);
    }

    // What the backward of an offloaded block is the first to read of the stash is one piece: it comes when that
    // begins. Values under communication, or read from outside, stay where they are.
    void find_pieces() {
        if (offloaded_.empty()) return;
        std::vector<bool> stays(result_.all.size());
        std::vector<std::int32_t> reader(result_.all.size(), -1); // in the order the first, after the forward
        for (std::size_t p = 0; p < order_.order.size(); ++p) {
            const Node& n = node(order_.order[p]);
            if (n.op->view) continue;
            for (const std::vector<ValueId>& operands : {n.inputs, n.outputs})
                for (ValueId operand : operands) {
                    const std::int32_t buffer = result_.of[storage(operand)];
                    if (buffer < 0) continue;
                    const auto b = static_cast<std::size_t>(buffer);
                    if (n.op->collective) stays[b] = true;
                    if (order_.parts[order_.order[p]] > Part::forward && reader[b] < 0)
                        reader[b] = narrow<std::int32_t>(order_.order[p]);
                }
        }
        for (const Output& output : graph_.outputs())
            if (output.parameter == ValueId::none && result_.of[storage(output.value)] >= 0)
                stays[static_cast<std::size_t>(result_.of[storage(output.value)])] = true;
        std::map<int, std::int32_t> pieces; // per block
        for (std::size_t b = 0; b < result_.all.size(); ++b) {
            Buffer& buffer = result_.all[b];
            if (buffer.first_part != Part::forward || buffer.last_part == Part::forward || stays[b] || reader[b] < 0)
                continue;
            const int block = node(static_cast<std::size_t>(reader[b])).block;
            if (std::ranges::find(offloaded_, block) == offloaded_.end()) continue;
            buffer.piece = pieces.try_emplace(block, narrow<std::int32_t>(pieces.size())).first->second;
        }
        result_.pieces = pieces.size();
    }

    // What only a neighbour reads is written where messages are sent from.
    void find_messages() {
        for (const Output& output : graph_.outputs())
            if (Buffer* buffer = result_.find(storage(output.value)); buffer && is_message(output)) buffer->sent = true;
    }

    const Graph& graph_;
    const NodeOrder& order_;
    const std::vector<bool>& direct_;
    const Joins& joins_;
    std::span<const int> offloaded_;
    Buffers result_;
};

} // namespace

Buffers assign_buffers(const Graph& graph, const NodeOrder& order, const std::vector<bool>& direct, const Joins& joins,
                       std::span<const int> offloaded) {
    return Assignment(graph, order, direct, joins, offloaded).run();
}

bool is_forward_message(const Output& output) { return output.name.starts_with(sharding::stage_output); }
bool is_message(const Output& output) {
    return output.parameter == ValueId::none &&
           (is_forward_message(output) || output.name.starts_with(sharding::stage_input_gradient));
}

} // namespace tutti::compile
