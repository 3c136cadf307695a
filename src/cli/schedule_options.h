// The words of tutti schedule: from flags to parameters and costs.
#pragma once

#include "cli/arguments.h"
#include "schedule/costs.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::cli {

struct ScheduleFlags {
    CLI::Option *pipe, *micro_batches, *stages_per_rank, *in_flight, *placement, *group, *split, *deferred;
    OptionNames model_replicas;
    CLI::Option *costs, *stage_costs, *recompute, *blocking, *memory;
};

ScheduleFlags add_schedule_flags(CLI::App& app);
extern const char* const cost_notes; // for the help

// What was asked for, before a family has had its say.
struct ScheduleRequest {
    schedule::ScheduleParameters parameters;
    bool chooses_placement = false, chooses_split = false;
    std::vector<schedule::Recompute> recompute{};     // one for all stages, or one each
    std::map<std::string, std::vector<double>> costs; // by key, of a rank's whole share; one, or one per stage
    std::map<int, double> factors{};                  // of single stages; -1 is the last
    std::vector<double> all_factors{};                // or of all
    bool blocking = false;

    bool gives(const std::string& key) const { return costs.contains(key); }
};

ScheduleRequest read_schedule_flags(const ScheduleFlags& flags);

// The parameters of the request for a family, resolved. Error where it does not exist for them.
schedule::ScheduleParameters parameters_for(const ScheduleRequest& request, const std::string& family);

// `splits`: one of the families shown has weight gradients apart. Then b and w are the two parts of every backward, so
// that all do the same work; else b is the whole backward.
schedule::Costs costs_for(const ScheduleRequest& request, const schedule::ScheduleParameters& resolved, bool splits);

} // namespace tutti::cli
