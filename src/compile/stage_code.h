// StageCode: the instructions of one stage, from its placed graph: a segment per part, and the buffers of its messages.
#pragma once

#include "compile/ownership.h"
#include "compile/placement.h"
#include "compile/step_code.h"
#include "plan/plan_settings.h"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti::compile {

struct StageCode {
    std::array<Segment, part_count> segments;
    std::array<Bytes, slotted_count> slots{};
    std::vector<Bytes> pieces{}; // of a stash slot, what is offloaded
    Bytes constants;
    // Messages: what arrives is written by the runtime, what leaves is read by it.
    std::vector<Argument> activations_in, activations_out, gradients_in, gradients_out;
    std::vector<NamedBuffer> inputs, outputs; // tokens; logits and loss
    std::set<std::int32_t> updated{};         // chunks that the last backward updates
};

// Early updates: chunks are updated as soon as their gradients are final and no later instruction reads their weights.
struct EarlyUpdates {
    ResultLayout results;
    bool alone = false; // one rank, which knows the whole loss
};

struct StageCodeOptions {
    bool trains = true;
    bool split_backward = false;
    Zero zero{};
    Precision precision;
    std::map<std::string, std::int64_t> batch;  // offset of each token input
    std::int64_t constants = 0;                 // where the stage's constants begin
    Argument loss;                              // where losses are added up
    std::optional<std::int64_t> squares{};      // where squares of gradients go that are taken in the backward
    std::optional<EarlyUpdates> early{};        // none: all updates come at the end of the step
    std::map<std::string, std::int32_t> groups; // of the axes that collectives name
    std::vector<int> offloaded{};               // blocks of this stage
};

Instruction zeros(Argument what);

StageCode compile_stage(const Graph& graph, const Ownership& ownership, const StageCodeOptions& options);

} // namespace tutti::compile
