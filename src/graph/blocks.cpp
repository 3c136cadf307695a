#include "graph/blocks.h"

#include "base/checked.h"
#include "base/error.h"

#include <algorithm>
#include <set>

namespace tutti {
namespace {

// More readers than a residual stream has: Merak's threshold for values that ride along, too.
constexpr int many_readers = 5;
// Blocks that have to read a value for it to ride along instead of keeping them together.
constexpr int many_blocks = 3;
// Flops per byte up to which making a value again is as cheap as any pass over it.
constexpr double cheap_intensity = 16;

class Finder {
  public:
    explicit Finder(const Graph& graph)
        : graph_(graph), kinds_(graph.values().size(), Kind::free), last_read_(graph.values().size(), -1),
          readers_(graph.values().size(), 0), rides_(graph.values().size(), false) {
        for (const Parameter& parameter : graph.parameters()) kinds_[index(parameter.value)] = Kind::weight;
        for (std::size_t i = 0; i < graph.nodes().size(); ++i) classify(static_cast<NodeId>(i));
        for (const Output& output : graph.outputs()) read(output.value, narrow<std::int32_t>(work_.size()));
    }

    std::vector<Block> run() {
        for (std::size_t v = 0; v < rides_.size(); ++v)
            rides_[v] = readers_[v] > many_readers || !is_floating(graph_.values()[v].type.dtype);
        keep_those_that_ride(find_starts());
        return blocks_from(find_starts());
    }

  private:
    enum class Kind : std::uint8_t {
        free,       // tokens, and what any stage makes of them
        weight,     // parameters and views of them
        activation, // the rest
    };

    Kind& kind(ValueId value) { return kinds_[index(value)]; }
    const Node& node(NodeId id) const { return graph_.node(id); }
    // What crosses a cut where a view is read behind it.
    ValueId root(ValueId value) const { return graph_.value(value).storage; }

    void read(ValueId value, std::int32_t position) {
        if (kind(value) != Kind::activation) return;
        last_read_[index(root(value))] = position;
        ++readers_[index(root(value))];
    }

    void classify(NodeId id) {
        const Node& n = node(id);
        TUTTI_CHECK(n.phase == Phase::forward, "{} at {} is not of the forward pass", n.op->name, n.source);
        Kind made = Kind::activation;
        if (n.op->view)
            made = kind(n.inputs[0]);
        else if (std::ranges::all_of(n.inputs, [&](ValueId v) { return kind(v) == Kind::free; }) && is_cheap(n))
            made = Kind::free;
        for (ValueId output : n.outputs) kind(output) = made;
        if (n.op->view || made != Kind::activation) return;
        for (ValueId input : n.inputs) read(input, narrow<std::int32_t>(work_.size()));
        work_.push_back(id);
        costs_.push_back(cost_of_node(n));
        matmuls_.push_back(is_matmul(n, costs_.back()));
    }

    Cost cost_of_node(const Node& n) const {
        return n.op->cost(graph_.input_types(n), graph_.output_types(n), n.attributes);
    }

    bool is_cheap(const Node& n) const {
        const Cost cost = cost_of_node(n);
        return cost.flops.count <= cheap_intensity * static_cast<double>(cost.bytes.count);
    }

    // A product by a matrix of weights, whatever the sizes: each element of the result is a sum along one of its
    // dimensions. Neither looking rows up nor adding a matrix is one.
    bool is_matmul(const Node& n, const Cost& cost) {
        return std::ranges::any_of(n.inputs, [&](ValueId v) {
            if (kind(v) != Kind::weight || graph_.shape(v).rank() < 2) return false;
            const std::int64_t shortest = *std::ranges::min_element(graph_.shape(v));
            const auto sums = static_cast<double>(graph_.type(n.outputs[0]).elements() * shortest);
            return cost.flops.count >= 2 * sums;
        });
    }

    // Positions in work_ where blocks begin, the first of them 0.
    std::vector<std::size_t> find_starts() {
        std::vector<int> crossing(work_.size() + 2, 0); // first as differences: before position p of work_
        for (std::size_t p = 0; p < work_.size(); ++p)
            for (ValueId output : node(work_[p]).outputs) {
                const std::int32_t last = last_read_[index(output)];
                if (last < 0 || rides_[index(output)]) continue;
                ++crossing[p + 1];
                --crossing[static_cast<std::size_t>(last) + 1];
            }
        for (std::size_t p = 1; p < crossing.size(); ++p) crossing[p] += crossing[p - 1];

        std::vector<std::size_t> starts = {0};
        std::size_t open = 0; // where the nodes behind the last cut begin
        for (std::size_t p = 0; p < work_.size(); ++p) {
            if (crossing[p] <= 1) open = p;
            if (matmuls_[p] && open > starts.back()) starts.push_back(open);
        }
        return starts;
    }

    // A value that only a few blocks read keeps them together: it is no more than a long residual.
    void keep_those_that_ride(const std::vector<std::size_t>& starts) {
        std::vector<int> seen(graph_.values().size(), -1), blocks(graph_.values().size(), 0);
        int block = -1;
        auto next = starts.begin();
        for (std::size_t p = 0; p < work_.size(); ++p) {
            if (next != starts.end() && *next == p) ++block, ++next;
            for (ValueId input : node(work_[p]).inputs) {
                const std::size_t read = index(root(input));
                if (seen[read] != block) ++blocks[read];
                seen[read] = block;
            }
        }
        for (std::size_t v = 0; v < rides_.size(); ++v)
            if (is_floating(graph_.values()[v].type.dtype)) rides_[v] = rides_[v] && blocks[v] >= many_blocks;
    }

    std::vector<Block> blocks_from(const std::vector<std::size_t>& starts) {
        std::vector<Block> blocks(starts.size());
        read_.assign(graph_.stored().size(), false);
        std::set<ValueId> live;
        std::vector<std::vector<ValueId>> ends(work_.size() + 1); // per position, what is read there for the last time
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            Block& block = blocks[b];
            const std::size_t end = b + 1 < starts.size() ? starts[b + 1] : work_.size();
            block.inputs.assign(live.begin(), live.end());
            for (ValueId input : block.inputs) block.boundary += graph_.type(input).bytes();
            for (std::size_t p = starts[b]; p < end; ++p) {
                add(block, p);
                for (ValueId output : node(work_[p]).outputs) {
                    const std::int32_t last = last_read_[index(output)];
                    if (last < 0) continue;
                    live.insert(output);
                    ends[static_cast<std::size_t>(last)].push_back(output);
                }
                for (ValueId dead : ends[p]) live.erase(dead);
            }
        }
        for (std::size_t stored = 0; stored < read_.size(); ++stored)
            if (!read_[stored]) blocks.back().stored.push_back(narrow<std::int32_t>(stored));
        for (Block& block : blocks)
            for (std::int32_t stored : block.stored)
                block.parameters += graph_.stored()[static_cast<std::size_t>(stored)].type.elements();
        return blocks;
    }

    void add(Block& block, std::size_t p) {
        const Node& n = node(work_[p]);
        block.nodes.push_back(work_[p]);
        block.forward.flops += costs_[p].flops;
        block.forward.bytes += costs_[p].bytes;
        for (ValueId output : n.outputs) block.activations += graph_.type(output).bytes();
        for (ValueId input : n.inputs) {
            if (kind(input) != Kind::weight) continue;
            for (std::int32_t stored : graph_.parameter_of(root(input))->run()) {
                read_[static_cast<std::size_t>(stored)] = true;
                if (std::ranges::find(block.stored, stored) == block.stored.end()) block.stored.push_back(stored);
            }
        }
    }

    const Graph& graph_;
    std::vector<NodeId> work_; // the nodes that belong to blocks, and of each:
    std::vector<Cost> costs_;
    std::vector<bool> matmuls_;
    std::vector<Kind> kinds_;
    // Per value that is no view; positions in work_, its size for what the graph returns:
    std::vector<std::int32_t> last_read_; // -1: never
    std::vector<int> readers_;
    std::vector<bool> rides_;
    std::vector<bool> read_; // per stored tensor
};

} // namespace

std::vector<Block> find_blocks(const Graph& forward) { return Finder(forward).run(); }

} // namespace tutti
