// Describes the strategy of each operator and the sharding of each value between operators, for tables and pictures.
#pragma once

#include "planner/strategies/model.h"

#include <string>
#include <vector>

namespace tutti::planner::strategies {

struct OperatorText {
    int group = 0;
    std::string name, op;   // "transformer.h.*.attn.c_attn", "linear"
    std::int64_t times = 1; // in the model
    std::string split;      // loops by axis: "n", "r0 k"
    std::string gives;      // its result: "1 x 2048/8 x 12288"
    std::string weight;     // its largest; empty where it has none
    bool held = false;      // sharded beyond what the operator splits, and gathered for use
    std::string gathered;   // "kept", "gathered again", or empty where nothing is gathered that the backward reads
    Bytes saved{};          // of one layer and micro-batch, its own results
};

// A value on its way: in which state it is given and taken, and what that takes.
struct FlowText {
    int from = 0, to = 0; // groups
    bool next_layer = false;
    std::string given, taken;
    std::string resharding;      // "all_gather", empty: as it is
    AxisState kind = replicated; // of the state that is taken, along the last axis that is not whole

    bool operator==(const FlowText&) const = default;
};

std::vector<OperatorText> describe_operators(const StrategyModel& model, const Solution& solution);
std::vector<FlowText> describe_flows(const StrategyModel& model, const Solution& solution);

// "1 x 2048/8 x 12288"; a partial sum has "sum of 8: " before it.
std::string shape_text(const Shape& shape, const States& states, std::span<const int> axes);

// One layer as a page that needs nothing else: operators from top to bottom, every value with its sharding.
std::string layer_page(const StrategyModel& model, const Solution& solution, const std::string& title);

} // namespace tutti::planner::strategies
