#include "program.h"

namespace tutti::test {
namespace {

TEST(Report, PutsATracedRunBesideItsSimulation) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", trace = run / "trace.json";
    const Outcome trained = tutti_with({"train",          reference("gpt2").string(),
                                        "--steps",        "3",
                                        "--sequence",     "16",
                                        "--global-batch", "4",
                                        "--micro-batch",  "1",
                                        "--threads",      "1",
                                        "--mesh",         "pipe=2",
                                        "--comm",         "threads",
                                        "--output",       run.string(),
                                        "--trace",        trace.string()});
    ASSERT_EQ(trained.status, 0) << trained.errors;

    const Outcome shown = tutti_with({"report", run.string()});
    EXPECT_EQ(shown.status, 0) << shown.errors;
    for (const char* part : {"measured: step", "simulated: unit ms", "rank 1", "waiting", "% measured", "report.html"})
        EXPECT_NE(shown.output.find(part), std::string::npos) << part << "\n" << shown.output;
    EXPECT_NE(read_text(run / "report.html").find("\"simulated\""), std::string::npos);
    // Weight gradients are no tasks of their own here.
    EXPECT_NE(shown.output.find("B backward"), std::string::npos) << shown.output;
    EXPECT_EQ(shown.output.find("input gradient"), std::string::npos) << shown.output;

    const Outcome tasks = tutti_with({"report", trace.string(), "--tasks"});
    EXPECT_NE(tasks.output.find("B3.1"), std::string::npos) << tasks.output;
    const auto json = json_lines(tutti_with({"report", trace.string(), "--json"}).output).at(0);
    EXPECT_EQ(json.at("ranks"), 2);
    EXPECT_EQ(json.at("steps").size(), 3u);
    EXPECT_GT(json.at("time").at("measured"), 0);
    EXPECT_GT(json.at("time").at("simulated"), 0);
}

TEST(Report, SaysWhatIsMissing) {
    const TemporaryFolder folder;
    expect_refusal({"report"}, "report on what?");
    expect_refusal({"report", folder.path().string()}, "has no trace.json");
    expect_refusal({"report", (folder / "absent").string()}, "absent");
    const std::string schedule = (folder / "schedule.json").string();
    tutti_with({"schedule", "1f1b", "--pipe", "2", "--micro-batches", "2", "--trace", schedule});
    expect_refusal({"report", schedule}, "is not the trace of a run");
    folder.write("trace.json", "\xff{");
    expect_refusal({"report", folder.path().string()}, "trace.json");
    expect_refusal({"report", schedule, "--colour", "blue"}, "auto, always or never");
}

} // namespace
} // namespace tutti::test
