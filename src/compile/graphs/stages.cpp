#include "compile/graphs/stages.h"

#include "base/checked.h"
#include "base/error.h"
#include "plan/plan.h"

#include <algorithm>
#include <limits>
#include <map>

namespace tutti::compile {
namespace {

class Cutter {
  public:
    Cutter(const Graph& whole, std::span<const Block> blocks, std::span<const int> cuts, int stage)
        : whole_(whole), stage_(whole.operators()), block_of_(whole.nodes().size(), outside),
          copied_(whole.nodes().size(), false), needed_(whole.values().size(), false),
          renamed_(whole.values().size(), ValueId::none) {

        check_cuts(cuts, narrow<int>(blocks.size()));
        const std::size_t first = stage == 0 ? 0 : begin_of(cuts, stage),
                          end = is_last(cuts, stage) ? blocks.size() : begin_of(cuts, stage + 1);
        for (std::size_t b = 0; b < blocks.size(); ++b)
            for (NodeId node : blocks[b].nodes) {
                block_of_[index(node)] = narrow<std::int32_t>(b);
                copied_[index(node)] = b >= first && b < end;
            }
        inputs_ = blocks[first].inputs;
        if (!is_last(cuts, stage)) outputs_ = blocks[end].inputs;
        returns_ = is_last(cuts, stage);
    }

    Graph run() {
        find_needed();
        add_stored();
        for (ValueId input : whole_.inputs())
            if (needed_[index(input)]) rename(input, stage_.add_input(whole_.value(input).name, whole_.type(input)));
        for (std::size_t i = 0; i < inputs_.size(); ++i)
            rename(inputs_[i],
                   stage_.add_input(fmt::format("{}{}", sharding::stage_input, i), whole_.type(inputs_[i])));
        add_parameters();
        for (std::size_t i = 0; i < whole_.nodes().size(); ++i)
            if (copied_[i]) copy(whole_.nodes()[i], block_of_[i]);
        for (std::size_t i = 0; i < outputs_.size(); ++i)
            stage_.add_output({fmt::format("{}{}", sharding::stage_output, i), renamed(outputs_[i]), ValueId::none});
        if (returns_)
            for (const Output& output : whole_.outputs())
                stage_.add_output({output.name, renamed(output.value), ValueId::none});
        return std::move(stage_);
    }

  private:
    static constexpr std::int32_t outside = std::numeric_limits<std::int32_t>::max(); // of all blocks

    static std::size_t begin_of(std::span<const int> cuts, int stage) {
        return static_cast<std::size_t>(cuts[static_cast<std::size_t>(stage - 1)]);
    }
    static bool is_last(std::span<const int> cuts, int stage) { return static_cast<std::size_t>(stage) == cuts.size(); }

    void rename(ValueId old, ValueId now) { renamed_[index(old)] = now; }
    ValueId renamed(ValueId old) const {
        TUTTI_CHECK(renamed_[index(old)] != ValueId::none, "value %{} is in no stage", index(old));
        return renamed_[index(old)];
    }

    // Nodes that belong to no block are copied where they are needed, into the block that needs them first. The last
    // stage has what the model returns, and parameters that nothing reads.
    void find_needed() {

        if (returns_) {
            for (const Output& output : whole_.outputs()) needed_[index(output.value)] = true;
            for (const Parameter& parameter : whole_.parameters()) needed_[index(parameter.value)] = true;
            for (const Node& node : whole_.nodes())
                for (ValueId input : node.inputs)
                    if (whole_.parameter_of(input) != nullptr) needed_[index(input)] = false;
        }
        std::vector<std::int32_t> reader(whole_.values().size(), outside); // the first block that reads a value
        for (std::size_t i = whole_.nodes().size(); i-- > 0;) {
            const Node& node = whole_.nodes()[i];
            if (block_of_[i] == outside) {
                copied_[i] = std::ranges::any_of(node.outputs, [&](ValueId v) { return needed_[index(v)]; });
                for (ValueId output : node.outputs) block_of_[i] = std::min(block_of_[i], reader[index(output)]);
            }
            if (!copied_[i]) continue;
            for (ValueId input : node.inputs) {
                needed_[index(input)] = true;
                reader[index(input)] = std::min(reader[index(input)], block_of_[i]);
            }
        }
    }

    void add_stored() {
        for (const Parameter& parameter : whole_.parameters())
            if (needed_[index(parameter.value)])
                for (std::int32_t stored : parameter.run()) stored_[stored] = -1;
        for (auto& [old, now] : stored_) {
            const StoredTensor& tensor = whole_.stored()[static_cast<std::size_t>(old)];
            now = stage_.add_stored(tensor.name, tensor.type);
        }
    }

    void add_parameters() {
        for (const Parameter& parameter : whole_.parameters()) {
            if (!needed_[index(parameter.value)]) continue;
            std::vector<std::int32_t> further;
            for (std::int32_t stored : parameter.further) further.push_back(stored_.at(stored));
            rename(parameter.value, stage_.add_parameter(stored_.at(parameter.stored), whole_.shape(parameter.value),
                                                         whole_.value(parameter.value).layout, std::move(further)));
        }
    }

    void copy(const Node& node, std::int32_t block) {
        std::vector<ValueId> inputs;
        for (ValueId input : node.inputs) inputs.push_back(renamed(input));
        stage_.set_block(block == outside ? -1 : block);
        const NodeId id = stage_.add_node(node.op->name, std::move(inputs), node.attributes, node.source);
        for (std::size_t i = 0; i < node.outputs.size(); ++i) rename(node.outputs[i], stage_.node(id).outputs[i]);
    }

    const Graph& whole_;
    Graph stage_;
    std::vector<std::int32_t> block_of_; // per node
    std::vector<bool> copied_;           // per node
    std::vector<bool> needed_;           // per value
    std::vector<ValueId> renamed_;
    std::vector<ValueId> inputs_, outputs_; // what crosses the cuts
    std::map<std::int32_t, std::int32_t> stored_;
    bool returns_ = false;
};

} // namespace

Graph stage_graph(const Graph& forward, std::span<const Block> blocks, std::span<const int> cuts, int stage) {
    return Cutter(forward, blocks, cuts, stage).run();
}

} // namespace tutti::compile
