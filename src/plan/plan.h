// Plan: every decision that turns a model into Programs, as a value and a file. Flags only build one by hand; compile/
// has no other input than a model and a plan.
//
// A plan may leave open what depends on the machine that runs it. resolve/open_decisions.h decides that when a run
// starts, and records it in the plan, so that it can be followed again.
#pragma once

#include "base/units.h"
#include "graph/fuse.h"
#include "offload/planned_residency.h"
#include "plan/plan_settings.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "sharding/mesh.h"
#include "sharding/operator_strategies.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// The schedule of a pipeline: its resolved parameters, the order of every rank, and the costs that were used. A
// simulator needs nothing else.
struct PlannedSchedule {
    schedule::Schedule schedule; // with its resolved parameters
    schedule::Costs costs;

    bool operator==(const PlannedSchedule&) const = default;
};

// Nodes of the planned cluster that follow each other and are alike.
struct PlannedNodes {
    std::string kind; // of their devices, for people: "h100"
    int nodes = 1;
    int devices = 1; // of each

    bool operator==(const PlannedNodes&) const = default;
};

// The device of every rank. Devices are numbered node by node.
struct PlannedDevices {
    std::vector<PlannedNodes> nodes{};
    std::vector<int> ranks{}; // the device of each rank of the mesh

    int count() const; // of all nodes
    bool operator==(const PlannedDevices&) const = default;
};

// A planner's prediction of a plan, on the machines that it was made for.
struct Prediction {
    Seconds step{};
    std::vector<Bytes> memory{}; // of a rank's arena, by its place in the pipeline, without libraries

    bool operator==(const Prediction&) const = default;
};

// The settings that it shares with a run's config, and what a run cannot ask for in the words of a plan.
struct Plan : PlanSettings {
    // 1 had one type for gradients, master weights and moments; up to 2 there were no schedules, up to 3 no mesh and
    // what goes with it, up to 4 no strategies, up to 5 no devices, up to 6 nothing that is decided when a run starts.
    // All are still read.
    static constexpr int version = 7;

    static constexpr const char* no_model = "none"; // of a schedule by itself (tutti schedule)

    std::string model;           // architecture, for people
    std::int64_t parameters = 0; // of the model that it was made for; 0: not known, as of plans of earlier programs
    sharding::Mesh mesh;
    std::optional<PlannedSchedule> schedule{}; // of the pipeline; none: one stage
    // The first block of each stage but stage 0. Without a model there is nothing to cut.
    std::vector<int> cuts{};
    // Per stage: its blocks, numbered as in the whole model, whose activations are recomputed in the backward.
    std::vector<std::vector<int>> recompute{};
    // Likewise: the blocks whose activations may be offloaded to host memory between forward and backward. Needs a
    // device_memory.
    std::vector<std::vector<int>> offload{};
    std::optional<sharding::OperatorStrategies> strategies{}; // on the tensor axis; none: Megatron's
    std::optional<PlannedDevices> devices{};                  // none: each rank has the device of its own number
    std::optional<Prediction> predicted{};

    // Decided when a run starts, if they are open (none).
    std::optional<FusionOptions> fusion{};
    // Of each rank; none: all its model data stays on its device. Open only with a device_memory.
    using Residencies = std::vector<std::optional<offload::PlannedResidency>>;
    std::optional<Residencies> residency{};
    // Of a kind of device: for work that is described in words, the algorithm that was the fastest.
    using TimedKernels = std::map<std::string, std::map<std::string, std::string>>;
    TimedKernels timed_kernels{};

    int stages() const { return static_cast<int>(cuts.size()) + 1; }
    // Of one replica.
    std::int64_t micro_batches() const { return workload.global_batch / (workload.micro_batch * mesh.data); }

    bool operator==(const Plan&) const = default;
};

// The schedule that a plan without one stands for: one rank, one stage.
schedule::Schedule schedule_of(const Plan& plan);
// Of the tensor axis: the plan's strategies, or one axis and nothing chosen.
sharding::OperatorStrategies operator_strategies_of(const Plan& plan);

// The plan's fusion options; if they are open, options that suit any machine.
FusionOptions fusion_of(const Plan& plan);
// The residency of a rank; null: all its model data stays on its device, or the residency is open.
const offload::PlannedResidency* residency_of(const Plan& plan, int rank);

// Per rank of the mesh: which of the processes that are started takes it. They stand for the devices that the plan
// uses, in the cluster's order. Empty where each takes the rank of its own number.
std::vector<int> places_of(const Plan& plan);

// Error where the numbers do not fit together, saying which would.
void check(const Plan& plan);
// Whether it cuts a model into the stages of its schedule. Files of versions up to 3 do not say where.
void check_stages(const Plan& plan);
// Whether it does, and names only blocks that are there, with a model of so many.
void check_blocks(const Plan& plan, int blocks);
void check_cuts(std::span<const int> cuts, int blocks);
// The part of it that is about batches: whether each replica gets whole micro-batches, and with sub_pipeline even ones.
void check_division(const Workload& workload, const sharding::Mesh& mesh, bool sub_pipeline);

std::string to_json(const Plan& plan);
Plan parse_plan(const std::string& text, const std::string& file); // Error naming the file and the key

} // namespace tutti
