// Family: a pipeline schedule of the literature as one value. It says what the schedule fixes of the parameters and
// what it leaves to choose, what it asks for, how its orders are made, and what a plan search has to know of it. Each
// is defined in a file of families/, beside what makes its orders, and listed in families.cpp.
#pragma once

#include "schedule/costs.h"
#include "schedule/schedule.h"

#include <limits>
#include <string_view>
#include <vector>

namespace tutti::schedule {

using Order = std::vector<ScheduledTask>;
using Orders = std::vector<Order>; // per rank

// What a family has, or takes where nothing else is asked for.
struct FamilyShape {
    int stages_per_rank = 1;
    int model_replicas = 1;
    StagePlacement placement = StagePlacement::loop;
    bool split_backward = false;
};

// What else may be asked for.
struct FamilyFreedom {
    bool stages = false, model_replicas = false, in_flight = false;
    bool groups = false;    // of micro-batches; of P where none are asked for
    bool placement = false; // and splitting, and deferred weight gradients
};

struct Family {
    std::string_view name;
    std::string_view description; // one line
    std::string_view needs{};     // "M a multiple of P"; empty where anything goes
    FamilyShape shape{};
    FamilyFreedom free{};

    // Orders for resolved parameters. They say nothing of recomputation unless they place it themselves: assembling
    // adds it as the parameters say. What it decides of recomputation or micro-batches in flight it writes into these.
    Orders (*make)(ScheduleParameters& parameters, const Costs& costs) = nullptr;

    // Micro-batches of a replica in flight where none are asked for; without, no one number: the order decides.
    int (*in_flight)(const ScheduleParameters& parameters) = nullptr;
    // Error where it does not take these numbers. What holds for all families is checked besides.
    void (*check)(const ScheduleParameters& parameters) = nullptr;

    bool follows_costs = false;    // its order comes from the costs of the stages
    bool recomputes_early = false; // in tasks of their own, before the gradient is there; for stages that recompute
    bool fits_any_cap = false;     // it finds an order for any memory cap that one micro-batch in flight fits in

    // What a plan search tries: variations of `plain`, which says the family, P and M alone; without, plain itself.
    std::vector<ScheduleParameters> (*variants)(const ScheduleParameters& plain) = nullptr;
    // Of families that promise the same time, a plan search tries those with lower numbers first.
    int search_turn = std::numeric_limits<int>::max();
};

// For `variants`: plain with so many stages per rank.
std::vector<ScheduleParameters> with_stages(const ScheduleParameters& plain, std::initializer_list<int> counts);

// For `in_flight`: one micro-batch for every rank of the pipeline, as in 1F1B.
inline int one_per_rank(const ScheduleParameters& parameters) { return parameters.ranks; }

// For `check`: error where the model replicas do not get the same number of micro-batches. Checked for all families.
void check_equal_shares(const ScheduleParameters& parameters);

// In words: "1 model replica", "2 model replicas".
std::string counted_replicas(int model_replicas);

} // namespace tutti::schedule
