// Ranks that are processes, under mpirun: the same exercises as ranks that are threads; and ranks that die, stop, fail
// or stay away in the middle of an operation.
#include "support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

namespace {

namespace fs = std::filesystem;

struct End {
    int status = 0;
    std::string sentence;
    bool operator==(const End&) const = default;
};
std::ostream& operator<<(std::ostream& out, const End& end) { return out << end.status << ": " << end.sentence; }

struct Outcome {
    std::map<int, End> ends; // by rank; a rank that was killed has none
    std::string output;
    bool is_complete = false; // it ended by itself
};

// Reads what a command writes, line by line; a rank that has stopped is killed when all others have ended.
Outcome run(const std::string& command, int ranks) {
    Outcome outcome;
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    char line[4096], text[4096];
    int rank = 0, status = 0, stopped = 0;
    while (std::fgets(line, sizeof line, pipe)) {
        outcome.output += line;
        std::sscanf(line, "process %d stops", &stopped);
        if (std::sscanf(line, "rank %d: status %d after %*f s: %4095[^\n]", &rank, &status, text) == 3)
            outcome.ends[rank] = {status, text};
        if (stopped > 0 && static_cast<int>(outcome.ends.size()) == ranks - 1) {
            ::kill(stopped, SIGKILL);
            stopped = 0;
        }
    }
    const int result = ::pclose(pipe);
    outcome.is_complete = WIFEXITED(result) && WEXITSTATUS(result) != 124; // of timeout
    return outcome;
}

// --enable-recovery: mpirun leaves the others alone when one dies.
Outcome run_ranks(int ranks, const std::string& task) {
    return run(fmt::format("timeout -k 1 60 mpirun --allow-run-as-root --oversubscribe --enable-recovery "
                           "-x ASAN_OPTIONS=detect_leaks=0 -n {} {} {}",
                           ranks, TUTTI_MPI_RANKS, task),
               ranks);
}

class MpiWorld : public testing::Test {
    void SetUp() override {
        if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
    }
};

TEST_F(MpiWorld, GivesWhatPlainLoopsGive) {
    for (const int ranks : {1, 2, 4}) {
        const Outcome outcome = run_ranks(ranks, "exercise");
        EXPECT_EQ(outcome.ends.size(), ranks) << outcome.output;
        for (const auto& [rank, end] : outcome.ends) EXPECT_EQ(end, (End{0, "done"})) << outcome.output;
    }
}

void expect_end(const std::string& task, int victim, const std::string& sentence) {
    const Outcome outcome = run_ranks(3, fmt::format("{} 2 {}", task, victim));
    EXPECT_TRUE(outcome.is_complete) << outcome.output;
    for (int rank = 0; rank < 3; ++rank) {
        if (rank == victim) continue;
        ASSERT_TRUE(outcome.ends.contains(rank)) << outcome.output;
        EXPECT_EQ(outcome.ends.at(rank), (End{75, sentence})) << outcome.output;
    }
}

TEST_F(MpiWorld, NamesARankThatWasKilled) {
    expect_end("kill", 0,
               "all_reduce 4 of group world (4.00 MiB) did not finish within 2 s: rank 0 does not answer (it was "
               "killed or stopped)");
}

TEST_F(MpiWorld, NamesARankThatWasStopped) {
    expect_end("stop", 2,
               "all_reduce 4 of group world (4.00 MiB) did not finish within 2 s: rank 2 does not answer (it was "
               "killed or stopped)");
}

TEST_F(MpiWorld, NamesARankThatDidNotArrive) {
    expect_end("late", 1, "all_reduce 5 of group world (4.00 MiB) did not finish within 2 s: rank 1 did not arrive");
}

TEST_F(MpiWorld, EndsWithTheFailureOfOne) { expect_end("fail", 1, "rank 1 does not like it"); }

TEST_F(MpiWorld, EndsWithoutARankThatDiedAtTheVeryEnd) {
    const Outcome outcome = run_ranks(3, "vanish 600 1");
    EXPECT_TRUE(outcome.is_complete) << outcome.output;
    EXPECT_EQ(outcome.ends, (std::map<int, End>{{0, {0, "done"}}, {2, {0, "done"}}})) << outcome.output;
}

TEST(MpiPlugin, IsMissedInOneSentence) {
    const tutti::test::TemporaryFolder folder;
    const fs::path program = folder.path() / "bin" / "mpi_ranks";
    fs::create_directories(program.parent_path());
    fs::copy_file(TUTTI_MPI_RANKS, program);
    const Outcome outcome = run(program.string(), 1);
    EXPECT_NE(outcome.output.find("this build has no MPI"), std::string::npos) << outcome.output;
}

} // namespace
