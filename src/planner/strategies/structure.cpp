#include "planner/strategies/structure.h"

#include "base/error.h"
#include "planner/strategies/menu.h"
#include "sharding/forward_nodes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

namespace tutti::planner::strategies {
namespace {

struct Place { // of a forward node: which instance of a group, as which of its members
    int instance = -1, member = -1;
};

// One operator that chooses, with its followers, in one layer.
struct Instance {
    std::vector<Group::Member> members;
    std::string key; // the same for all that are alike
    int group = -1;
};

class Reader {
  public:
    explicit Reader(const Graph& step)
        : graph_(step), names_(sharding::operator_names(step)), forward_of_(sharding::forward_nodes(step)),
          real_(step.values().size()), places_(step.nodes().size()), consumers_(step.values().size()) {}

    Structure run() {
        find_instances();
        find_saved();
        find_groups();
        find_flows();
        find_ties();
        return std::move(result_);
    }

  private:
    bool is_forward(NodeId node) const { return graph_.node(node).phase == Phase::forward; }
    bool is_parameter(ValueId value) const { return graph_.parameter_of(value) != nullptr; }
    Instance& instance_of(NodeId node) { return instances_[static_cast<std::size_t>(places_[index(node)].instance)]; }

    // What no parameter has a part in, every rank makes for itself: tokens, masks, positions, rotary tables.
    bool has_a_part(const Node& node) const {
        return std::ranges::any_of(node.inputs, [&](ValueId v) { return is_parameter(v) || real_[index(v)]; });
    }

    // The input whose state it takes over; none where it chooses.
    std::optional<std::size_t> followed(const Node& node) const {
        std::optional<std::size_t> only;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            if (is_parameter(node.inputs[i])) return std::nullopt;
            if (!real_[index(node.inputs[i])]) continue;
            if (only) return std::nullopt;
            only = i;
        }
        const bool passes = only && ((*only == 0 && node.op->linear == Linear::first) ||
                                     (*only < 2 && node.op->linear == Linear::either));
        // Where elements fall at random, it is worth doing on as few of them as can be.
        const bool follows = passes && node.op->drops.empty();
        return follows && graph_.value(node.inputs[*only]).producer != NodeId::none ? only : std::nullopt;
    }

    std::string key_of(const Group::Member& member) const {
        const Node& node = graph_.node(member.node);
        const sharding::OperatorName& name = names_[index(member.node)];
        std::string key = fmt::format("{}|{}|{}|{}.{}.{}|", sharding::layer_pattern(name.source), name.op, name.ordinal,
                                      member.follows, member.output, member.input);
        for (const TensorType& type : graph_.input_types(node)) key += to_string(type) + ",";
        for (const auto& [attribute, value] : node.attributes.entries())
            key += attribute + "=" + tutti::to_string(value) + ",";
        return key;
    }

    void find_instances() {
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            const Node& node = graph_.nodes()[i];
            const auto id = static_cast<NodeId>(i);
            if (node.phase != Phase::forward) {
                if (forward_of_[i] != NodeId::none && places_[index(forward_of_[i])].instance >= 0)
                    member_of(forward_of_[i]).backward.push_back(id);
                continue;
            }
            for (ValueId input : node.inputs) consumers_[index(input)].push_back(id);
            if (!has_a_part(node)) continue;
            for (ValueId output : node.outputs) real_[index(output)] = true;
            Group::Member member{id, -1, 0, 0, {}, std::vector<bool>(node.outputs.size(), false)};
            Place place{static_cast<int>(instances_.size()), 0};
            if (const auto input = followed(node)) {
                const Node& producer = graph_.node(graph_.value(node.inputs[*input]).producer);
                place = places_[index(graph_.value(node.inputs[*input]).producer)];
                member.follows = place.member;
                member.output = static_cast<int>(std::ranges::find(producer.outputs, node.inputs[*input]) -
                                                 producer.outputs.begin());
                member.input = *input;
                place.member = static_cast<int>(instances_[static_cast<std::size_t>(place.instance)].members.size());
            } else {
                instances_.emplace_back();
            }
            places_[i] = place;
            instances_[static_cast<std::size_t>(place.instance)].members.push_back(std::move(member));
        }
    }

    Group::Member& member_of(NodeId node) {
        return instance_of(node).members[static_cast<std::size_t>(places_[index(node)].member)];
    }

    // multiply(act(gate), up) becomes one kernel (graph/fuse.h), and act(gate) is not kept.
    bool is_fused_away(ValueId value) const {
        const Node& node = graph_.node(graph_.value(value).producer);
        const auto& readers = consumers_[index(value)];
        return node.op->gate && readers.size() == 1 && graph_.node(readers[0]).op->arithmetic == Arithmetic::product;
    }

    void find_saved() {
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            const Node& node = graph_.nodes()[i];
            if (node.phase == Phase::forward) continue;
            for (ValueId value : node.inputs) {
                const NodeId producer = graph_.value(value).producer;
                if (producer == NodeId::none || !is_forward(producer) || !real_[index(value)] || is_fused_away(value))
                    continue;
                const NodeId of = forward_of_[i];
                const bool reads = of != NodeId::none &&
                                   places_[index(of)].instance != places_[index(producer)].instance &&
                                   std::ranges::find(graph_.node(of).inputs, value) != graph_.node(of).inputs.end();
                if (reads)
                    reads_.insert({of, value});
                else
                    save_inside(value);
            }
        }
    }

    void save_inside(ValueId value) {
        const ValueId storage = graph_.value(value).storage;
        const NodeId owner = graph_.value(storage).producer;
        if (owner == NodeId::none || is_parameter(storage)) return;
        const Node& node = graph_.node(owner);
        member_of(owner)
            .saved[static_cast<std::size_t>(std::ranges::find(node.outputs, storage) - node.outputs.begin())] = true;
        saved_inside_.insert(storage);
    }

    void find_groups() {
        std::map<std::string, int> known;
        std::map<int, std::vector<const Instance*>> alike;
        for (Instance& instance : instances_) {
            for (const Group::Member& member : instance.members) instance.key += key_of(member) + ";";
            const auto [found, added] = known.try_emplace(instance.key, static_cast<int>(known.size()));
            instance.group = found->second;
            if (added) {
                Group& group = result_.groups.emplace_back();
                group.name = sharding::layer_pattern(names_[index(instance.members[0].node)].source);
                warn(graph_.node(instance.members[0].node));
            }
            alike[instance.group].push_back(&instance);
        }
        for (auto& [group, all] : alike) {
            Group& into = result_.groups[static_cast<std::size_t>(group)];
            into.members = all[all.size() / 2]->members; // layers at either end may differ
            for (const Instance* one : all) {
                std::vector<NodeId>& nodes = into.instances.emplace_back();
                for (const Group::Member& member : one->members) nodes.push_back(member.node);
            }
        }
    }

    void warn(const Node& node) {
        if (has_loops(*node.op)) return;
        result_.warnings.push_back(fmt::format(
            "{} at {} does not say which loops it has: every rank computes all of it", node.op->name, node.source));
    }

    void find_flows() {
        using Key = std::tuple<int, int, int, std::vector<Flow::Use>, bool>;
        std::map<Key, std::size_t> known;
        std::set<ValueId> counted; // storages of which it is counted what is kept
        for (const Instance& instance : instances_)
            for (std::size_t m = 0; m < instance.members.size(); ++m) {
                const Node& node = graph_.node(instance.members[m].node);
                for (std::size_t o = 0; o < node.outputs.size(); ++o) {
                    Flow flow{instance.group,
                              static_cast<int>(m),
                              static_cast<int>(o),
                              node.outputs[o],
                              graph_.value(node.outputs[o]).storage,
                              static_cast<int>(m),
                              static_cast<int>(o),
                              {},
                              1,
                              false,
                              false};
                    find_storage(flow, instance);
                    for (NodeId reader : consumers_[index(node.outputs[o])])
                        if (&instance_of(reader) != &instance) add_use(flow, reader);
                    if (flow.uses.empty()) continue;
                    flow.kept =
                        flow.reads_kept && !saved_inside_.contains(flow.storage) && counted.insert(flow.storage).second;
                    const Key key{flow.group, flow.member, flow.output, flow.uses, flow.kept};
                    const auto [found, added] = known.try_emplace(key, result_.flows.size());
                    if (added)
                        result_.flows.push_back(flow);
                    else
                        ++result_.flows[found->second].times;
                }
            }
    }

    void find_storage(Flow& flow, const Instance& instance) const {
        for (std::size_t m = 0; m < instance.members.size(); ++m) {
            const std::vector<ValueId>& outputs = graph_.node(instance.members[m].node).outputs;
            const auto found = std::ranges::find(outputs, flow.storage);
            if (found == outputs.end()) continue;
            flow.storage_member = static_cast<int>(m);
            flow.storage_output = static_cast<int>(found - outputs.begin());
        }
    }

    void add_use(Flow& flow, NodeId reader) {
        const Node& node = graph_.node(reader);
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            if (node.inputs[i] != flow.value) continue;
            const bool saved = reads_.contains({reader, flow.value});
            const Flow::Use use{instance_of(reader).group, i, saved};
            if (std::ranges::find(flow.uses, use) == flow.uses.end()) flow.uses.push_back(use);
            flow.reads_kept = flow.reads_kept || saved;
        }
    }

    void find_ties() {
        std::map<std::int32_t, Tie> ties;
        for (std::size_t g = 0; g < result_.groups.size(); ++g) {
            const Node& node = graph_.node(result_.groups[g].members[0].node);
            for (std::size_t i = 0; i < node.inputs.size(); ++i)
                if (const Parameter* parameter = graph_.parameter_of(node.inputs[i]))
                    for (std::int32_t stored : parameter->run()) {
                        ties[stored].stored = stored;
                        ties[stored].uses.emplace_back(static_cast<int>(g), i);
                    }
        }
        for (auto& [stored, tie] : ties)
            if (tie.uses.size() > 1) result_.ties.push_back(std::move(tie));
    }

    const Graph& graph_;
    std::vector<sharding::OperatorName> names_;
    std::vector<NodeId> forward_of_;
    std::vector<bool> real_;                     // per value: a parameter has a part in it
    std::vector<Place> places_;                  // per node
    std::vector<std::vector<NodeId>> consumers_; // per value, in the forward
    std::vector<Instance> instances_;
    std::set<std::pair<NodeId, ValueId>> reads_; // the backward of a node reads a result of another group
    std::set<ValueId> saved_inside_;             // storages that the backward of their own group reads
    Structure result_;
};

} // namespace

Structure structure_of(const Graph& step) { return Reader(step).run(); }

} // namespace tutti::planner::strategies
