#include "comm/mpi_world.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace tutti {

using namespace comm;
namespace {

// The launch as seen with just these variables set.
std::optional<ProcessLaunch> launch_with(const std::map<std::string, std::string>& variables) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMIX_RANK", "PMI_RANK", "PMI_FD", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
                             "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"})
        ::unsetenv(name);
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    return find_launch();
}

TEST(Launch, IsReadFromTheEnvironment) {
    EXPECT_EQ(launch_with({}), std::nullopt);
    EXPECT_EQ(
        launch_with(
            {{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
        (ProcessLaunch{8, 3, 4}));
    EXPECT_EQ(launch_with({{"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}),
              (ProcessLaunch{6, 1, 2}));
    EXPECT_EQ(launch_with({{"PMI_SIZE", "many"}}), std::nullopt);
}

TEST(Launch, OfSlurmCountsTheTasksOfItsNode) {
    const auto on_node = [](const std::string& node) {
        return launch_with({{"PMIX_RANK", "4"},
                            {"SLURM_STEP_NUM_TASKS", "11"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", node},
                            {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}});
    };
    EXPECT_EQ(on_node("0"), (ProcessLaunch{11, 1, 4}));
    EXPECT_EQ(on_node("1"), (ProcessLaunch{11, 1, 4}));
    EXPECT_EQ(on_node("2"), (ProcessLaunch{11, 1, 3}));
    EXPECT_EQ(launch_with({{"SLURM_STEP_NUM_TASKS", "11"}}), std::nullopt); // a program that does not speak MPI
}

} // namespace
} // namespace tutti
