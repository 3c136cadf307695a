// How a run is laid out over ranks: what follows from the settings of RunConfig for that, and whether they fit each
// other. All of it is known before any file is read.
#pragma once

#include "comm/group.h"
#include "run/run_config.h"
#include "schedule/parameters.h"

#include <cstdint>

namespace tutti::run {

// The config with ranks, mesh, connection and schedule filled in where they were left open. `started`: processes that
// mpirun or srun started with this one, itself among them; 0: nobody did. Error where the mesh does not fit the ranks,
// saying which would.
RunConfig with_layout(RunConfig config, int started);

// Part of check(RunConfig): settings that do not fit together, as far as they are known.
void check_layout(const RunConfig& config);

inline sharding::Mesh mesh_of(const RunConfig& config) { return config.mesh.value_or(sharding::Mesh{}); }

// Whether stages take turns: there is a pipeline, or something was asked of its schedule.
bool has_schedule(const RunConfig& config);
// What was asked of it, for a replica's micro-batches; not resolved.
schedule::ScheduleParameters schedule_parameters(const RunConfig& config, std::int64_t micro_batches);

// Sequences per forward, where the global batch is known.
std::int64_t micro_batch_of(const RunConfig& config, std::int64_t global_batch);

// Which process takes a rank, of those that are started.
inline int place_of(const RunConfig& config, int rank) {
    return config.places.empty() ? rank : config.places[static_cast<std::size_t>(rank)];
}

// Among the processes of this machine.
int local_rank_of(const RunConfig& config, const comm::World& world);

// Compute threads of a rank on the CPU: what was asked for, or its share of the cores that these ranks have together.
int threads_of(const RunConfig& config, int rank, int cores, int ranks);

// What the planner decides of a run without a layout, beside mesh, cuts and schedule; where it does not, the config's
// own setting holds.
struct LayoutFreedom {
    bool micro_batch = true, zero = true, recompute = true;
    bool operator==(const LayoutFreedom&) const = default;
};

} // namespace tutti::run
