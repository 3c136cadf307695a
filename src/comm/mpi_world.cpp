#include "comm/mpi_world.h"

#include "base/plugin.h"
#include "comm/engine_world.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace tutti::comm {
namespace {

std::optional<int> number_in(const char* text) {
    int value = 0;
    if (!text || std::from_chars(text, text + std::strlen(text), value).ec != std::errc()) return std::nullopt;
    return value;
}
std::optional<int> variable(const char* name) { return number_in(std::getenv(name)); }

// Slurm's list of tasks per node, as "4(x2),3": the entry of one node.
std::optional<int> tasks_of_node(const char* list, int node) {
    while (list) {
        const auto tasks = number_in(list);
        const char* comma = std::strchr(list, ',');
        const char* repeat = std::strstr(list, "(x");
        if (repeat && comma && repeat > comma) repeat = nullptr;
        node -= repeat ? number_in(repeat + 2).value_or(1) : 1;
        if (node < 0) return tasks;
        list = comma ? comma + 1 : nullptr;
    }
    return std::nullopt;
}

ProcessLaunch launch(int ranks, std::optional<int> local_rank, std::optional<int> local_ranks,
                     std::optional<int> rank) {
    return {ranks, local_rank.value_or(0), local_ranks.value_or(local_rank.value_or(0) + 1), rank.value_or(0)};
}

} // namespace

std::optional<ProcessLaunch> find_launch() {
    if (const auto ranks = variable("OMPI_COMM_WORLD_SIZE")) // Open MPI
        return launch(*ranks, variable("OMPI_COMM_WORLD_LOCAL_RANK"), variable("OMPI_COMM_WORLD_LOCAL_SIZE"),
                      variable("OMPI_COMM_WORLD_RANK"));
    // srun sets these for a step, and not for the script that calls it; PMI and PMIx are how MPI talks to it.
    const bool has_interface = std::getenv("PMIX_RANK") || std::getenv("PMI_RANK") || std::getenv("PMI_FD");
    if (const auto ranks = variable("SLURM_STEP_NUM_TASKS"); ranks && has_interface)
        return launch(*ranks, variable("SLURM_LOCALID"),
                      tasks_of_node(std::getenv("SLURM_STEP_TASKS_PER_NODE"), variable("SLURM_NODEID").value_or(0)),
                      variable("SLURM_PROCID"));
    if (const auto ranks = variable("PMI_SIZE")) // MPICH and its kin
        return launch(*ranks, variable("MPI_LOCALRANKID"), variable("MPI_LOCALNRANKS"), variable("PMI_RANK"));
    return std::nullopt;
}

std::unique_ptr<World> open_mpi_world(Seconds timeout, std::span<const int> places) {
    using Open = Transport*(std::span<const int>);
    auto* open =
        reinterpret_cast<Open*>(open_plugin({"mpi", "MPI", "MPI", "MPI is installed"}, "tutti_open_transport"));
    return make_world([&] { return std::unique_ptr<Transport>(open(places)); }, timeout);
}

} // namespace tutti::comm
