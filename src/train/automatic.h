// A run without a layout: the ranks are described as a cluster, with costs that are measured on them; the planner's
// joint search names the best plans; the first of these are run for a few steps, and the fastest is taken.
#pragma once

#include "train/trainer.h"

#include <optional>
#include <string>
#include <vector>

namespace tutti {

// What the planner decides, beside mesh, cuts and schedule; where it does not, the config's own setting holds.
struct LayoutFreedom {
    bool micro_batch = true, zero = true, recompute = true;
    bool operator==(const LayoutFreedom&) const = default;
};

struct AutomaticOptions {
    LayoutFreedom freedom{};
    int measure_top = 3; // 0: the prediction's first is taken
    std::string version; // of this program, for the profile that is kept
};

// Thrown on all ranks where one of them was asked to stop before a plan was chosen.
struct ChoosingStopped {};

// On every rank of the world, with the same config; all get the same. Nothing of the run that follows is touched: plans
// are measured on throwaway weights. Error saying what is missing where no plan fits. `stop` is looked at between parts
// of it: profile, kernels that the search asks for, and every plan that is measured.
PlanChoice choose_plan(const RunConfig& config, const AutomaticOptions& options, TrainListener& listener,
                       const std::atomic<bool>& stop, World& world);

} // namespace tutti
