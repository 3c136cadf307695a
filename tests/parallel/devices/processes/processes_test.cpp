// Ranks that are processes under mpirun and have devices, as users run them: the program beside the stand-ins.
#include "base/file.h"
#include "cli/program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

namespace tutti::test {
namespace {

const int quiet = ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0); // MPI keeps some memory to the end

class DevicesOfProcesses : public testing::Test {
  protected:
    DevicesOfProcesses() { ::setenv("TUTTI_NCCL", TUTTI_NCCL_STAND_IN, 1); }
    ~DevicesOfProcesses() override {
        for (const char* name : {"TUTTI_NCCL", "TUTTI_STAND_IN_SHARED", mark}) ::unsetenv(name);
    }
    void SetUp() override {
        if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
    }

    Words training(int steps, const Words& more) const {
        Words words = {"train",     reference("gpt2").string(), "--steps", std::to_string(steps), "--sequence",
                       "16",        "--global-batch",           "8",       "--micro-batch",       "1",
                       "--metrics", metrics().string(),         "--json"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    std::vector<double> losses_of(const Words& more) const {
        const Outcome outcome = tutti_with(training(3, more));
        EXPECT_EQ(outcome.status, 0) << outcome.errors;
        EXPECT_EQ(outcome.errors, "");
        std::vector<double> losses;
        for (const auto& line : json_lines(read_text(metrics()))) losses.push_back(line.at("loss"));
        return losses;
    }
    fs::path metrics() const { return folder_ / "metrics.jsonl"; }

    // The process that is this rank of the run whose mark was set.
    static std::optional<pid_t> process_of(int rank) {
        const std::string wanted = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
        for (const auto& entry : fs::directory_iterator("/proc")) {
            std::ifstream file(entry.path() / "environ", std::ios::binary);
            const std::string variables((std::istreambuf_iterator<char>(file)), {});
            const std::string all = '\0' + variables;
            if (all.find('\0' + fmt::format("{}={}", mark, ::getpid()) + '\0') != std::string::npos &&
                all.find('\0' + wanted + '\0') != std::string::npos)
                return std::stoi(entry.path().filename());
        }
        return std::nullopt;
    }
    static constexpr const char* mark = "TUTTI_TEST_RUN";

  private:
    TemporaryFolder folder_;
};

TEST_F(DevicesOfProcesses, TrainAsOneProcessDoes) {
    const std::vector<double> one = losses_of({"--device", "cpu"});
    const std::vector<double> own = losses_of({"--device", "cuda", "--mesh", "pipe=2,data=2", "--zero", "1"});
    ::setenv("TUTTI_STAND_IN_SHARED", "1", 1);
    const std::vector<double> shared = losses_of({"--device", "cuda", "--mesh", "pipe=2,tensor=2"});
    ASSERT_EQ(one.size(), 3);
    ASSERT_EQ(own.size(), 3);
    ASSERT_EQ(shared.size(), 3);
    for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(own[i], one[i], 3e-6 * one[i]);
        EXPECT_NEAR(shared[i], one[i], 3e-6 * one[i]);
    }
}

TEST_F(DevicesOfProcesses, NameARankThatIsKilled) {
    ::setenv(mark, std::to_string(::getpid()).c_str(), 1);
    Process process(training(100000, {"--device", "cuda", "--mesh", "pipe=2,data=2", "--timeout", "3"}));
    while (!fs::exists(metrics()) || read_text(metrics()).size() < 500) {
        ASSERT_TRUE(process.running()) << process.errors();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const auto victim = process_of(2);
    ASSERT_TRUE(victim);
    ::kill(*victim, SIGKILL);
    EXPECT_EQ(process.wait(), 75);
    EXPECT_NE(process.errors().find("between devices: rank 2 does not answer (it was killed or stopped)"),
              std::string::npos)
        << process.errors();
}

} // namespace
} // namespace tutti::test
