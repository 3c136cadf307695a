// Ranks on cores of their own: what a run says of it, and that it changes nothing of what is computed.
#include "cores/topology.h"
#include "program.h"

#include <set>

namespace tutti::test {

using namespace formats;
namespace {

struct BoundRun {
    nlohmann::json binding;
    std::vector<nlohmann::json> losses;
};

BoundRun run_bound(const char* comm, const char* bind, const fs::path& metrics) {
    const Outcome outcome = tutti_with({"train",     gpt2,        "--ranks",        "2",
                                        "--comm",    comm,        "--bind",         bind,
                                        "--threads", "1",         "--mesh",         "data=2",
                                        "--steps",   "3",         "--sequence",     "16",
                                        "--json",    "--metrics", metrics.string(), "--global-batch",
                                        "4"});
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    BoundRun run{.binding = json_lines(outcome.output).at(0).at("summary").at("binding"), .losses = {}};
    for (const nlohmann::json& line : json_lines(read_text(metrics)))
        if (line.contains("loss")) run.losses.push_back(line["loss"]);
    fs::remove(metrics);
    return run;
}

TEST(Bind, IsToldAndGivesTheSameBits) {
    const TemporaryFolder folder;
    const bool have_cores = cores::usable_cores() >= 2;
    const BoundRun free = run_bound("threads", "none", folder / "metrics.jsonl");
    EXPECT_EQ(free.binding.at("why_not"), "--bind is none");
    ASSERT_EQ(free.losses.size(), 3u);
    for (const char* comm : {"threads", "mpi"})
        for (const char* bind : {"auto", "core", "numa"}) {
            SCOPED_TRACE(std::string(comm) + " " + bind);
            const BoundRun bound = run_bound(comm, bind, folder / "metrics.jsonl");
            EXPECT_EQ(bound.losses, free.losses);
            if (bind == std::string("numa")) continue; // both may have the same node
            if (!have_cores) {
                EXPECT_TRUE(bound.binding.contains("why_not")) << bound.binding;
                continue;
            }
            if (bind == std::string("auto") && bound.binding.contains("why_not")) continue; // its time is limited
            std::set<int> all;
            std::size_t count = 0;
            for (const auto& units : bound.binding.at("cores_of_ranks")) {
                EXPECT_FALSE(units.empty());
                all.insert(units.begin(), units.end());
                count += units.size();
            }
            EXPECT_EQ(all.size(), count) << bound.binding; // no core is both ranks'
            EXPECT_TRUE(bind != std::string("core") || bound.binding.at("thread_each").get<bool>());
        }
}

TEST(Bind, IsShownWithThePlan) {
    const Words words = {"train", gpt2, "--sequence", "16", "--global-batch", "4", "--dry-run", "--threads", "1"};
    auto with = [&](const char* bind) {
        Words more = words;
        more.insert(more.end(), {"--bind", bind});
        return tutti_with(more).output;
    };
    EXPECT_NE(with("none").find("the system places threads: --bind is none"), std::string::npos);
    const std::string first = std::to_string(cores::machine().units.empty() ? 0 : cores::own_units().front());
    EXPECT_NE(with("core").find("cores              " + first), std::string::npos) << with("core");
    expect_refusal({"train", "--bind", "socket"}, "should be auto, none, core or numa");
}

} // namespace
} // namespace tutti::test
