// PlanReport: what a planner tells of the plan it chose, as values to draw; and the page that draws it: the plan beside
// others, its timeline, the memory of its ranks, everything that was searched as time against memory, who works where
// in the cluster, and how throughput moves with the number of devices.
#pragma once

#include "costs/cluster.h"
#include "report/timeline.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::report {

// A plan beside others: the chosen one, those that people would set by hand, the best without one of the choices.
struct ComparedPlan {
    std::string name{}; // "joint", "Megatron, 1F1B"
    std::string what{}; // "data=8 pipe=4 tensor=4, interleaved x2, micro-batch 1"
    bool fits = true;
    double step_seconds = 0, tokens_per_second = 0;
    double utilisation = 0;      // of the peak flops: MFU, 0 to 1
    double bubble = 0;           // share of the step, without waiting for messages and gradients
    Bytes memory{};              // of the rank that has least left
    Bytes margin{};              // that it has left; below 0 where it does not fit
    std::vector<double> terms{}; // seconds, as PlanReport::terms; they add up to the step
};

struct RankMemory {
    std::string name{};         // "pipe 0", "pipe 1, replica 0"
    std::vector<Bytes> parts{}; // as PlanReport::categories
    Bytes capacity{};
};

// One of the plans that were evaluated and fit.
struct SearchedPlan {
    double step_seconds = 0;
    Bytes memory{};
    std::string family{}; // by which points are coloured: the schedule's name
    std::string what{};   // for the tooltip
};

// The logical rank that a device takes; pipe -1: none.
struct AssignedRank {
    int pipe = -1, data = 0, tensor = 0;
    bool operator==(const AssignedRank&) const = default;
};

struct ScalingPoint {
    int devices = 0;
    double tokens_per_second = 0; // 0: nothing fits
    std::string what{};
};

struct PlanReport {
    std::string title;                                        // "llama3-70b on 512 H100"
    std::vector<std::pair<std::string, std::string>> facts{}; // of the chosen plan, for people
    std::vector<std::string> notes{};                         // sentences: why it wins, what binds
    std::vector<std::string> terms{};  // of a step: "computing", "bubble", "exposed communication", "optimizer"
    std::vector<ComparedPlan> plans{}; // the chosen one first
    Timeline timeline{}; // of the chosen one, with the bubble and the activations of plans and memory; no rows: none
    std::vector<std::string> categories{}; // of memory: "weights", "gradients", ..
    std::vector<RankMemory> memory{};
    std::size_t evaluated = 0; // plans, whether they fit or not
    std::vector<SearchedPlan> searched{};
    costs::Cluster cluster{};
    std::vector<AssignedRank> assignment{}; // per device, as Cluster::devices()
    std::vector<ScalingPoint> scaling{};    // by devices, rising
};

// Those of `searched` that no other beats in both time and memory, by rising time: indices. Of equals the first.
std::vector<std::size_t> frontier_of(std::span<const SearchedPlan> searched);

// Needs nothing else, and loads nothing. Of very many searched plans, those far from the frontier are thinned out.
std::string plan_page(const PlanReport& report);

} // namespace tutti::report
