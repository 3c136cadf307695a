// Ranks that are processes under mpirun and have devices, as users run them: the program beside the stand-ins. With
// TUTTI_TEST_NCCL=1, the built program itself on one GPU that all ranks share, through NCCL itself.
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

bool is_nccl_itself() { return std::getenv("TUTTI_TEST_NCCL") != nullptr; }

fs::path program() { return is_nccl_itself() ? the_program().parent_path().parent_path() / "tutti" : the_program(); }

class DevicesOfProcesses : public testing::Test {
  protected:
    DevicesOfProcesses() {
        if (is_nccl_itself())
            ::setenv("TUTTI_NCCL_SHARES_DEVICES", "1", 1);
        else
            ::setenv("TUTTI_NCCL", TUTTI_NCCL_STAND_IN, 1);
    }
    ~DevicesOfProcesses() override {
        for (const char* name : {"TUTTI_STAND_IN_SHARED", "TUTTI_NCCL_SHARES_DEVICES", mark}) ::unsetenv(name);
        if (!is_nccl_itself()) ::unsetenv("TUTTI_NCCL");
    }
    void SetUp() override {
        if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
    }

    Words training(int steps, const Words& more, const std::string& model = "gpt2") const {
        Words words = {"train",     reference(model).string(), "--steps", std::to_string(steps), "--sequence",
                       "16",        "--global-batch",          "8",       "--micro-batch",       "1",
                       "--metrics", metrics().string(),        "--json"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    std::vector<double> losses_of(const Words& more, const std::string& model = "gpt2") const {
        fs::remove(metrics());
        const Outcome outcome = tutti_with(training(3, more, model), program());
        EXPECT_EQ(outcome.status, 0) << outcome.errors;
        EXPECT_EQ(outcome.errors, "");
        std::vector<double> losses;
        if (fs::exists(metrics()))
            for (const auto& line : json_lines(read_text(metrics()))) losses.push_back(line.at("loss"));
        return losses;
    }
    // Float32, within what another order of sums makes of it: on a GPU other kernels add, too.
    static void expect_same(const std::vector<double>& expected, const std::vector<double>& found) {
        const double bound = is_nccl_itself() ? 2e-5 : 3e-6;
        ASSERT_EQ(expected.size(), 3);
        ASSERT_EQ(found.size(), 3);
        for (std::size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(found[i], expected[i], bound * expected[i]) << "step " << i + 1;
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
    expect_same(one, own);
    expect_same(one, shared);
}

struct Layout {
    const char *name, *model;
    Words flags;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class LayoutsOfProcesses : public DevicesOfProcesses, public testing::WithParamInterface<Layout> {};

// Over the stand-in, ranks that are threads try these and more in devices_test.cpp.
TEST_P(LayoutsOfProcesses, TrainThroughNcclAsOneProcessDoes) {
    if (!is_nccl_itself()) GTEST_SKIP() << "TUTTI_TEST_NCCL=1 takes these through NCCL itself, on a GPU";
    Words flags = GetParam().flags;
    flags.insert(flags.end(), {"--device", "cuda"});
    expect_same(losses_of({"--device", "cpu"}, GetParam().model), losses_of(flags, GetParam().model));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, LayoutsOfProcesses,
    testing::Values(Layout{"Zero3", "llama", {"--mesh", "data=4", "--zero", "3"}},
                    Layout{"Zero1", "gpt2", {"--mesh", "data=2", "--zero", "1"}},
                    Layout{"Pipe", "gpt2", {"--mesh", "pipe=4"}},
                    Layout{"PipeDual", "qwen2", {"--mesh", "pipe=2,data=2", "--schedule", "dualpipe"}},
                    Layout{"PipeZeroBubbleV", "qwen2", {"--mesh", "pipe=2,tensor=2", "--schedule", "zb-v"}},
                    Layout{"Tensor", "gpt2", {"--mesh", "tensor=4", "--sequence-parallel", "off"}},
                    Layout{"All", "llama", {"--mesh", "pipe=2,tensor=2"}}),
    [](const auto& layout) { return std::string(layout.param.name); });

TEST_F(DevicesOfProcesses, NameARankThatIsKilled) {
    ::setenv(mark, std::to_string(::getpid()).c_str(), 1);
    Process process(training(100000, {"--device", "cuda", "--mesh", "pipe=2,data=2", "--timeout", "3"}), nullptr,
                    program());
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
