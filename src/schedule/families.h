// The schedule families that there are, and the one way to make a schedule of any of them.
#pragma once

#include "schedule/costs.h"
#include "schedule/family.h"
#include "schedule/schedule.h"

#include <span>
#include <string_view>

namespace tutti::schedule {

std::span<const Family> families();
const Family& find_family(std::string_view name); // Error with all names

// Puts the family's choice where the parameters leave one, and checks them. Error saying what would work.
ScheduleParameters resolve(const ScheduleParameters& parameters);

// What a plan search tries of all families that follow the costs of the stages, or of all others: those of a lower
// search turn first. One rank has no pipeline: there every order is that of the default family.
std::vector<ScheduleParameters> schedules_to_try(int ranks, int micro_batches, bool following_costs);

// Micro-batches that show how a longer step goes, since it repeats itself after them; all, where there are few more.
int telling_micro_batches(const ScheduleParameters& resolved);

// Costs decide the order only of families that follow them, but every schedule is held against the memory cap with
// them. `parameters` need not be resolved. The result is complete, free of deadlocks and within the cap.
Schedule make_schedule(const ScheduleParameters& parameters, const Costs& costs);

// The same with equal stages: costs of a rank's whole share.
Schedule make_schedule(const ScheduleParameters& parameters, const StageCosts& share = {}, double communication = 0);

} // namespace tutti::schedule
