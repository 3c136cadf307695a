// The structure of a model's step, as far as strategies are chosen in it: operators of all layers that are alike are
// one, views and what else has no choice go with the operator whose result they look at.
//
// What the backward keeps of the forward is read off the step graph: the forward values that its backward nodes read.
#pragma once

#include "graph/graph.h"
#include "sharding/operator_strategies.h"

#include <string>
#include <vector>

namespace tutti::planner::strategies {

// An operator that chooses, and those that follow it.
struct Group {
    struct Member {
        NodeId node = NodeId::none; // of one of the instances
        int follows = -1;           // the member whose result it takes; -1: it is the one that chooses
        int output = 0;             // which of that member's results,
        std::size_t input = 0;      // and as which of its own inputs
        std::vector<NodeId> backward;
        std::vector<bool> saved; // per result: the backward of a member of the group reads it
    };
    std::string name;                           // "transformer.h.*.attn.c_attn"
    std::vector<Member> members;                // the one that chooses first
    std::vector<std::vector<NodeId>> instances; // per layer, the nodes of all members
    std::int64_t times() const { return static_cast<std::int64_t>(instances.size()); }
};

// A result of a group, and who reads it in other groups.
struct Flow {
    struct Use {
        int group = 0;
        std::size_t input = 0; // of the operator that chooses there
        bool saved = false;    // its backward reads it
        bool operator==(const Use&) const = default;
        auto operator<=>(const Use&) const = default;
    };
    int group = 0, member = 0, output = 0;
    ValueId value = ValueId::none; // of one of the instances
    ValueId storage = ValueId::none;
    int storage_member = 0, storage_output = 0; // which result of the group has the storage; its own where none
    std::vector<Use> uses;
    std::int64_t times = 0;
    bool kept = false;       // some backward reads it, and it is this flow that counts what is kept of its storage
    bool reads_kept = false; // some use's backward reads it
};

// A stored tensor that operators of several groups read.
struct Tie {
    std::int32_t stored = -1;
    std::vector<std::pair<int, std::size_t>> uses; // group, and input of its first member
};

struct Structure {
    std::vector<Group> groups; // in the order of the model
    std::vector<Flow> flows;
    std::vector<Tie> ties;
    std::vector<std::string> warnings;
};

// `step`: a differentiated graph (compile/graphs/step_graph.h), not yet fused, of a model or a stage of one.
Structure structure_of(const Graph& step);

} // namespace tutti::planner::strategies
