// A run without a layout: the ranks are described as a cluster, with costs that are measured on them; the planner's
// joint search names the best plans; the first of these are run for a few steps, and the fastest is taken.
#pragma once

#include "run/layout.h"
#include "train/trainer.h"

#include <optional>
#include <string>
#include <vector>

namespace tutti::choose {

struct AutomaticOptions {
    run::LayoutFreedom freedom{};
    int measure_top = 3; // 0: the prediction's first is taken
    std::string version; // of this program, for the profile that is kept
};

// Thrown on all ranks where one of them was asked to stop before a plan was chosen.
struct ChoosingStopped {};

// On every rank of the world, with the same config; all get the same. Nothing of the run that follows is touched: plans
// are measured on throwaway weights. Error saying what is missing where no plan fits. `stop` is looked at between parts
// of it: profile, kernels that the search asks for, and every plan that is measured.
run::PlanChoice choose_plan(const run::RunConfig& config, const AutomaticOptions& options, run::TrainListener& listener,
                            const std::atomic<bool>& stop, comm::World& world);

} // namespace tutti::choose
