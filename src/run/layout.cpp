#include "run/layout.h"

#include "base/counted.h"
#include "base/error.h"
#include "comm/mpi_world.h"
#include "plan/plan.h"
#include "schedule/families.h"

#include <algorithm>
#include <cmath>

namespace tutti::run {
namespace {

// A mesh for so many ranks, as much like the one given as can be: more or fewer replicas, or nothing but replicas.
sharding::Mesh fitting(sharding::Mesh mesh, int ranks) {
    const int replica = mesh.pipe * mesh.tensor;
    if (ranks % replica != 0) return {.data = ranks};
    mesh.data = ranks / replica;
    return mesh;
}

void is_from(const char* key, int value, int least, int most) {
    if (value < least || value > most) fail("{} is {}; it has to be from {} to {}", key, value, least, most);
}

int count_ranks(const RunConfig& config, int started) {
    is_from("ranks", config.ranks, 0, sharding::most_ranks);
    if (started > 1 && config.comm == Connection::threads)
        fail("comm is threads, but this is one of {} processes that were started together: give --ranks {} --comm "
             "threads to a single one, or leave --comm out",
             started, started);
    const bool joins = started > 0 && config.comm != Connection::threads;
    if (joins && config.ranks > 0 && config.ranks != started)
        fail("ranks is {}, but {} started: they have to be the same number, or leave --ranks out", config.ranks,
             started == 1 ? "1 process was" : fmt::format("{} processes were", started));
    if (joins) return started;
    if (config.ranks > 0) return config.ranks;
    return mesh_of(config).ranks();
}

} // namespace

RunConfig with_layout(RunConfig config, int started) {
    sharding::check(mesh_of(config));
    config.ranks = count_ranks(config, started);
    if (!config.mesh) config.mesh = sharding::Mesh{.data = config.ranks};
    if (config.mesh->ranks() != config.ranks)
        fail("the mesh {} has {}, but there {}: --mesh {} would fit, or {}", sharding::to_string(*config.mesh),
             counted(config.mesh->ranks(), "rank"), config.ranks == 1 ? "is 1" : fmt::format("are {}", config.ranks),
             sharding::to_string(fitting(*config.mesh, config.ranks)), counted(config.mesh->ranks(), "rank"));
    if (!config.rank_threads.empty() && config.rank_threads.size() != static_cast<std::size_t>(config.ranks))
        fail("threads names {} for {}: give one for each, or one for all",
             counted(config.rank_threads.size(), "number"), counted(config.ranks, "rank"));
    if (has_schedule(config) && config.schedule.empty()) config.schedule = "1f1b";
    return config;
}

void check_layout(const RunConfig& config) {
    is_from("ranks", config.ranks, 0, sharding::most_ranks);
    is_from("zero", config.zero.stage(), 0, 3);
    is_from("measure_top", config.measure_top, 0, 100);
    is_from("stages_per_rank", config.stages_per_rank, 0, 1 << 12);
    is_from("model_replicas", config.model_replicas, 0, 1 << 12);
    is_from("in_flight", config.in_flight, 0, 1 << 20);
    if (!(config.timeout >= 1 && config.timeout <= 1e6))
        fail("timeout is {}; it has to be from 1 second to 1000000", config.timeout);
    if (!config.schedule.empty()) schedule::find_family(config.schedule);
    const sharding::Mesh mesh = mesh_of(config);
    sharding::check(mesh);
    const Workload& workload = config.workload;
    if (workload.micro_batch > 0 || workload.global_batch > 0) {
        // What is not known yet is taken to be what fits.
        const std::int64_t global =
            workload.global_batch > 0 ? workload.global_batch : workload.micro_batch * std::int64_t{mesh.data};
        check_division({.sequence = 1, .global_batch = global, .micro_batch = micro_batch_of(config, global)}, mesh,
                       config.sub_pipeline);
    }
    if (has_schedule(config) && workload.global_batch > 0 && config.plan.empty()) { // a plan has a schedule that runs
        const std::int64_t size = micro_batch_of(config, workload.global_batch) * mesh.data;
        schedule::resolve(schedule_parameters(config, workload.global_batch / size));
    }
}

bool has_schedule(const RunConfig& config) {
    return mesh_of(config).pipe > 1 || !config.schedule.empty() || config.stages_per_rank > 0 ||
           config.model_replicas > 0 || config.in_flight > 0;
}

schedule::ScheduleParameters schedule_parameters(const RunConfig& config, std::int64_t micro_batches) {
    schedule::ScheduleParameters parameters;
    if (!config.schedule.empty()) parameters.family = config.schedule;
    parameters.ranks = mesh_of(config).pipe;
    parameters.micro_batches = static_cast<int>(std::min<std::int64_t>(micro_batches, 1 << 30));
    parameters.stages_per_rank = config.stages_per_rank;
    parameters.model_replicas = config.model_replicas;
    parameters.in_flight = config.in_flight;
    return parameters;
}

std::int64_t micro_batch_of(const RunConfig& config, std::int64_t global_batch) {
    if (config.workload.micro_batch > 0) return config.workload.micro_batch;
    return std::max<std::int64_t>(1, global_batch / mesh_of(config).data);
}

int threads_of(const RunConfig& config, int rank, int cores, int ranks) {
    if (!config.rank_threads.empty()) return config.rank_threads[static_cast<std::size_t>(place_of(config, rank))];
    return config.threads > 0 ? config.threads : std::max(1, cores / std::max(1, ranks));
}

int local_rank_of(const RunConfig& config, const comm::World& world) {
    const auto launch = comm::find_launch();
    return launch && launch->ranks == world.size() ? launch->local_rank : place_of(config, world.rank());
}

} // namespace tutti::run
