// How ranks start and end, as threads, under mpirun and with an mpirun of tutti's own: what goes wrong on one ends all,
// is told once, and gives one exit status.
#include "cli/program.h"
#include "support/paths.h"

#include <chrono>
#include <memory>
#include <thread>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

const int quiet = ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0); // MPI keeps some memory to the end

bool has_mpi() {
    static const bool found = std::system("command -v mpirun >/dev/null") == 0 &&
                              fs::exists(fs::path(TUTTI_RANK_PROGRAM).parent_path() / "libtutti_mpi.so");
    return found;
}

class Ranks : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        if (GetParam() == std::string("mpi") && !has_mpi()) GTEST_SKIP() << "there is no mpirun, or no plug-in for MPI";
    }
    // rank_program WHAT with three ranks, of which one behaves differently.
    static Outcome run(const std::string& what, const std::string& chosen = "0") {
        return tutti_with({what, "3", GetParam(), "60", chosen}, TUTTI_RANK_PROGRAM);
    }
};

void expect_told(const Outcome& outcome, int status, const std::string& errors) {
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.errors, errors);
}

TEST_P(Ranks, FindEachOther) {
    const Outcome outcome = run("count");
    expect_told(outcome, 0, "");
    EXPECT_EQ(outcome.output, "3 ranks, sum 3\n");
}

TEST_P(Ranks, AreTakenByTheProcessesThatAPlanNames) {
    const Outcome outcome = run("places");
    expect_told(outcome, 0, "");
    EXPECT_EQ(outcome.output, "0 wrong\n");
}

TEST_P(Ranks, TellAFailureOnceWhereverItHappens) {
    for (const char* rank : {"0", "2"})
        expect_told(run("error", rank), 2, fmt::format("tutti: rank {} does not like this\n", rank));
    expect_told(run("error-everywhere"), 2, "tutti: nobody likes this\n");
    expect_told(run("early-error"), 2, "tutti: nobody even starts\n");
    expect_told(run("bug", "1"), 70, "tutti: this is a defect in tutti: two is not three\n");
}

// Trying again does not help, so no rank may take it for a failure of the machine.
TEST_P(Ranks, TellAMessageThatDoesNotFitAsADefect) {
    const Outcome outcome = run("mismatch");
    EXPECT_EQ(outcome.status, 70);
    EXPECT_TRUE(outcome.errors.starts_with("tutti: this is a defect in tutti: /")) << outcome.errors;
    EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 1) << outcome.errors;
}

TEST_P(Ranks, AreNotDoneBeforeAllAre) { expect_told(run("late-error", "1"), 2, "tutti: rank 1 does not like this\n"); }

void wait_for_output(Process& process) {
    while (process.running() && process.output().empty()) std::this_thread::sleep_for(10ms);
    ASSERT_FALSE(process.output().empty()) << process.errors();
}

TEST_P(Ranks, StopWhenAsked) {
    for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGUSR1}) {
        Process process({"until-stopped", "3", GetParam(), "60"}, nullptr, TUTTI_RANK_PROGRAM);
        wait_for_output(process);
        process.signal(signal);
        EXPECT_EQ(process.wait(), 128 + signal);
        EXPECT_EQ(process.errors(), "");
        EXPECT_TRUE(process.output().ends_with("stopped\n")) << process.output();
    }
}

// Even where they hang: one does not come, and the other waits for it.
TEST_P(Ranks, EndAtOnceWhenAskedTwice) {
    for (int signal : {SIGTERM, SIGINT}) {
        Process process({"absent", "2", GetParam(), "60", "1"}, nullptr, TUTTI_RANK_PROGRAM);
        wait_for_output(process);
        process.signal(signal);
        process.signal(signal); // passed on by somebody: the same request
        std::this_thread::sleep_for(300ms);
        EXPECT_TRUE(process.running());
        process.signal(signal);
        EXPECT_EQ(process.wait(), -signal);
        EXPECT_EQ(process.errors(), fmt::format("tutti: ended at once by a second {}: what was not saved is lost\n",
                                                signal == SIGTERM ? "SIGTERM" : "interrupt"));
    }
}

// As shells that are no terminal's do with what they start in the background.
TEST_P(Ranks, HeedAnInterruptThatWasIgnoredWhenTheyStarted) {
    Process process(
        {"-c", "trap '' INT; exec \"$0\" \"$@\"", TUTTI_RANK_PROGRAM, "until-stopped", "2", GetParam(), "60"}, nullptr,
        "/bin/sh");
    wait_for_output(process);
    process.signal(SIGINT);
    EXPECT_EQ(process.wait(), 128 + SIGINT);
}

TEST_P(Ranks, DoNotHeedAHangupUnderNohup) {
    if (!fs::exists("/usr/bin/nohup")) GTEST_SKIP() << "there is no nohup";
    Process process({TUTTI_RANK_PROGRAM, "until-stopped", "2", GetParam(), "60"}, nullptr, "/usr/bin/nohup");
    wait_for_output(process);
    process.signal(SIGHUP);
    const std::size_t before = process.output().size();
    while (process.running() && process.output().size() < before + 20) std::this_thread::sleep_for(10ms);
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), 128 + SIGTERM);
}

// Those of one machine share memory.
TEST_P(Ranks, ListenToNoNetwork) { EXPECT_EQ(run("listen").output, "0 listen\n"); }

TEST_P(Ranks, GoOnWhenNobodyReadsWhatTheyPrint) {
    const TemporaryFolder folder;
    const Words words = {"-c",
                         "\"$0\" \"$@\" | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}",
                         the_program().string(),
                         "train",
                         reference("gpt2").string(),
                         "--sequence",
                         "16",
                         "--global-batch",
                         "4",
                         "--steps",
                         "30",
                         "--mesh",
                         "data=2",
                         "--comm",
                         GetParam(),
                         "--output",
                         (folder / "run").string()};
    const Outcome outcome = tutti_with(words, "/bin/bash");
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_TRUE(fs::exists(folder / "run/model")) << outcome.errors;
}

TEST_P(Ranks, KnowThatTheirOutputIsNoTerminal) { EXPECT_EQ(run("terminal").output, "false 100\n"); }

TEST_P(Ranks, OfTheProgramItselfSpeakOnce) {
    const TemporaryFolder folder;
    expect_refusal({"train", (folder / "absent").string(), "--ranks", "2", "--comm", GetParam()}, "");
}

std::vector<double> losses_of(const Words& more) {
    const TemporaryFolder folder;
    Words words = {"train",          reference("gpt2").string(),
                   "--sequence",     "16",
                   "--global-batch", "4",
                   "--steps",        "3",
                   "--lr-schedule",  "constant",
                   "--metrics",      (folder / "m.jsonl").string()};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = tutti_with(words);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_EQ(outcome.errors, "");
    std::size_t lines = 0; // one voice: each step has one
    for (std::size_t at = 0; (at = outcome.output.find("\nstep ", at)) != std::string::npos; ++at) ++lines;
    EXPECT_EQ(lines, 3u) << outcome.output;
    std::vector<double> losses;
    for (const auto& line : json_lines(read_text(folder / "m.jsonl"))) losses.push_back(line.at("loss"));
    return losses;
}

TEST_P(Ranks, TrainAsOneDoes) {
    const std::vector<double> one = losses_of({}), two = losses_of({"--mesh", "data=2", "--comm", GetParam()});
    ASSERT_EQ(one.size(), 3u);
    ASSERT_EQ(two.size(), 3u);
    for (std::size_t step = 0; step < one.size(); ++step) EXPECT_NEAR(two[step], one[step], 1e-5 * one[step]);
}

INSTANTIATE_TEST_SUITE_P(Threads, Ranks, testing::Values("threads"));
INSTANTIATE_TEST_SUITE_P(Mpi, Ranks, testing::Values("mpi"));

// Each waits for a timeout, so they run side by side.
TEST(LostRanks, AreNamedOnceAndEndTheRun) {
    struct Case {
        Words words;
        std::string culprit;
    };
    std::vector<Case> cases = {{{"absent", "3", "threads", "3", "1"}, "rank 1 did not arrive"}};
    if (has_mpi()) {
        cases.push_back({{"kill", "3", "mpi", "3", "1"}, "rank 1 does not answer"});
        cases.push_back({{"kill", "3", "mpi", "3", "0"}, "rank 0 does not answer"});
        cases.push_back({{"freeze", "2", "mpi", "3", "0"}, "rank 0 does not answer"});
        cases.push_back({{"absent", "2", "mpi", "3", "1"}, "rank 1 did not arrive"});
    }
    std::vector<std::unique_ptr<Process>> processes;
    for (const Case& one : cases)
        processes.push_back(std::make_unique<Process>(one.words, nullptr, TUTTI_RANK_PROGRAM));
    for (std::size_t i = 0; i < cases.size(); ++i) {
        EXPECT_EQ(processes[i]->wait(), 75) << cases[i].culprit;
        const std::string errors = processes[i]->errors();
        EXPECT_TRUE(errors.starts_with("tutti: all_reduce 1 of group world (4 B) did not finish within")) << errors;
        EXPECT_NE(errors.find(cases[i].culprit), std::string::npos) << errors;
        EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
    }
}

TEST(LostRanks, AreNoticedBeforeTheyHaveMet) {
    if (!has_mpi()) GTEST_SKIP() << "there is no mpirun, or no plug-in for MPI";
    std::vector<std::unique_ptr<Process>> processes;
    for (const char* rank : {"0", "2"}) // the timeout is longer than any test may take
        processes.push_back(
            std::make_unique<Process>(Words{"early-kill", "3", "mpi", "6000", rank}, nullptr, TUTTI_RANK_PROGRAM));
    for (const auto& process : processes) {
        EXPECT_EQ(process->wait(), 75);
        EXPECT_EQ(process->errors(), "tutti: the ranks did not find each other: one of those on this machine was "
                                     "killed, or could not start\n");
    }
}

TEST(LostRanks, DoNotKeepARunFromStopping) {
    if (!has_mpi()) GTEST_SKIP() << "there is no mpirun, or no plug-in for MPI";
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
        Process process({"early-absence", "3", "mpi", "6000", "1"}, nullptr, TUTTI_RANK_PROGRAM);
        wait_for_output(process);
        process.signal(signal);
        EXPECT_EQ(process.wait(), 128 + signal);
        EXPECT_EQ(process.errors(), "tutti: warning: stopped before the ranks had started: no step was run, so nothing "
                                    "was saved\n");
    }
}

TEST(Mpirun, OfTheUserGivesOneSentenceToo) {
    if (!has_mpi()) GTEST_SKIP() << "there is no mpirun, or no plug-in for MPI";
    auto run = [](const Words& words) {
        Words all = {"-q", "-n", "3", "--oversubscribe", "--bind-to", "none"};
        if (::geteuid() == 0) all.push_back("--allow-run-as-root");
        all.insert(all.end(), words.begin(), words.end());
        return tutti_with(all, "/usr/bin/mpirun");
    };
    if (!fs::exists("/usr/bin/mpirun")) GTEST_SKIP() << "mpirun is elsewhere";
    EXPECT_EQ(run({TUTTI_RANK_PROGRAM, "count", "0", "auto", "60"}).output, "3 ranks, sum 3\n");
    expect_told(run({TUTTI_RANK_PROGRAM, "error", "0", "auto", "60", "1"}), 2, "tutti: rank 1 does not like this\n");
    expect_told(run({the_program().string(), "train", "--stps", "3"}), 2,
                "tutti: tutti train has no option \"--stps\"; did you mean --steps?\n");
    expect_told(run({the_program().string(), "train", "--mesh", "data=2,pipe=2"}), 2,
                "tutti: the mesh data=2,pipe=2 has 4 ranks, but there are 3: --mesh data=3 would fit, or 4 ranks\n");
}

TEST(Mpirun, IsNotAskedForFarTooManyRanks) {
    if (!has_mpi()) GTEST_SKIP() << "there is no mpirun, or no plug-in for MPI";
    for (const char* comm : {"mpi", "threads"}) {
        const Words words = {"train", "--ranks", "65536", "--global-batch", "65536", "--comm", comm};
        expect_refusal(words, "65536 ranks are too many for one machine with ");
        EXPECT_EQ(tutti_with(words).output, ""); // not that they are started
    }
}

TEST(Mpirun, IsToldWhereItMayNotOpenItsFiles) {
    if (!has_mpi()) GTEST_SKIP() << "there is no mpirun, or no plug-in for MPI";
    const Words words = {"-c", "ulimit -n 32; exec \"$0\" count 4 mpi 60", TUTTI_RANK_PROGRAM};
    const Outcome outcome = tutti_with(words, "/bin/sh");
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(outcome.errors.starts_with("tutti: mpirun needs about 56 open files for 4 ranks, and 32 are allowed"))
        << outcome.errors;
}

TEST(Mpirun, IsNamedWhereItIsMissing) {
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", "/nowhere", 1);
    expect_refusal({"train", "--ranks", "2"},
                   "mpirun is not installed, and 2 ranks need it: apt-get install openmpi-bin");
    ::setenv("PATH", path.c_str(), 1);
}

} // namespace
} // namespace tutti::test
