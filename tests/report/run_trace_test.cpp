#include "report/run_trace.h"

#include "report/comparison.h"
#include "report/html.h"
#include "report/terminal.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>

namespace tutti {

using namespace report;
using namespace test;
namespace {

using Json = nlohmann::json;
using test::TemporaryFolder;

// A rank of a pipeline of two, as it may have been measured or simulated: `pace` seconds a unit, `start` later.
RankTrace rank_at(int rank, double start, double pace) {
    RankTrace trace{.start = start, .end = start + 10 * pace};
    auto add = [&](TaskKind kind, int micro_batch, double from, double to) {
        trace.tasks.push_back({kind, rank, 0, micro_batch, start + from * pace, start + to * pace});
    };
    add(TaskKind::load, 0, 0, 0.5);
    if (rank == 0) {
        add(TaskKind::forward, 0, 0.5, 2);
        add(TaskKind::send, 0, 2, 2);
        add(TaskKind::forward, 1, 2, 3.5);
        add(TaskKind::receive, 0, 3.5, 3.5);
        add(TaskKind::backward, 0, 6, 8);
        trace.communications = {{2, "send to rank 1", {64}, start + 2 * pace, start + 4 * pace},
                                {4, "receive from rank 1", {64}, start + 3.5 * pace, start + 6 * pace}};
        trace.waits = {{5, "receive from rank 1", start + 3.5 * pace, start + 6 * pace}};
    } else {
        add(TaskKind::receive, 0, 0.5, 0.5);
        add(TaskKind::forward, 0, 4, 5);
        add(TaskKind::backward, 0, 5, 6);
        trace.communications = {{1, "receive from rank 0", {64}, start + 0.5 * pace, start + 4 * pace}};
        trace.waits = {{2, "receive from rank 0", start + 0.5 * pace, start + 4 * pace}};
    }
    add(TaskKind::norm, 0, 8, 9);
    trace.waits.push_back({static_cast<std::int32_t>(trace.tasks.size()) - 1, "all_reduce in world",
                           start + 8.25 * pace, start + 8.75 * pace});
    add(TaskKind::update, 0, 9, 10);
    return trace;
}

RunTrace example() {
    RunTrace trace{.model = "gpt2", .mesh = "pipe=2", .schedule = "1f1b", .device = "a machine"};
    trace.offsets = {{0}, {0.125}};
    trace.kernels = {1e9, 1e8, 1e-6};
    trace.link = {1e-5, 1e9};
    double start = 0;
    for (const auto& [step, pace] : std::map<std::int64_t, double>{{2, 0.5}, {3, 0.25}, {4, 0.125}}) {
        trace.steps.push_back({step, {rank_at(0, start, pace), rank_at(1, start, pace)}});
        start += 10 * pace;
    }
    trace.simulated = {rank_at(0, 0, 0.2), rank_at(1, 0, 0.2)};
    return trace;
}

TEST(RunTrace, ComesBackAsItWasWritten) {
    const RunTrace trace = example(), again = parse_run_trace(to_chrome(trace), "t");
    ASSERT_EQ(again.steps.size(), 3u);
    EXPECT_EQ(again.model, trace.model);
    EXPECT_EQ(again.schedule, trace.schedule);
    EXPECT_EQ(again.offsets, trace.offsets);
    EXPECT_EQ(again.kernels, trace.kernels);
    EXPECT_EQ(again.link, trace.link);
    const RankTrace &a = trace.steps[1].ranks[0], &b = again.steps[1].ranks[0];
    EXPECT_EQ(again.steps[1].step, 3);
    ASSERT_EQ(b.tasks.size(), a.tasks.size());
    for (std::size_t i = 0; i < a.tasks.size(); ++i) {
        EXPECT_EQ(name_of(b.tasks[i]), name_of(a.tasks[i]));
        EXPECT_NEAR(b.tasks[i].start, a.tasks[i].start, 1e-9);
        EXPECT_NEAR(b.tasks[i].end, a.tasks[i].end, 2e-9);
    }
    ASSERT_EQ(b.waits.size(), a.waits.size());
    EXPECT_EQ(b.waits[0].what, a.waits[0].what);
    EXPECT_EQ(b.waits[0].task, a.waits[0].task);
    ASSERT_EQ(b.communications.size(), a.communications.size());
    EXPECT_EQ(b.communications[0].bytes, Bytes{64});
    EXPECT_EQ(b.communications[0].task, 2);
}

// Perfetto shows slices of one track only where they lie within each other or apart.
TEST(RunTrace, HasAProcessPerRankAndTracksWithoutOverlap) {
    const Json json = Json::parse(to_chrome(example()));
    std::map<int, std::string> processes;
    std::map<std::pair<int, int>, std::string> tracks;
    std::map<std::pair<int, int>, double> busy_until;
    for (const Json& event : json.at("traceEvents")) {
        const int process = event.at("pid");
        if (event.at("ph") == "M" && event.at("name") == "process_name")
            processes[process] = event.at("args").at("name");
        if (event.at("ph") == "M" && event.at("name") == "thread_name")
            tracks[{process, event.at("tid")}] = event.at("args").at("name");
        if (event.at("ph") != "X") continue;
        const std::pair track(process, event.at("tid").get<int>());
        ASSERT_TRUE(tracks.contains(track)) << event;
        const std::string category = event.at("cat");
        EXPECT_EQ(tracks[track].substr(0, 4), category == "step"   ? "step"
                                              : category == "task" ? "comp"
                                              : category == "wait" ? "wait"
                                                                   : "comm");
        EXPECT_GE(event.at("dur").get<double>(), 0);
        EXPECT_GE(event.at("ts").get<double>(), busy_until[track] - 1e-6) << event;
        busy_until[track] = event.at("ts").get<double>() + event.at("dur").get<double>();
    }
    EXPECT_EQ(processes, (std::map<int, std::string>{
                             {0, "rank 0"}, {1, "rank 1"}, {2, "rank 0, simulated"}, {3, "rank 1, simulated"}}));
    EXPECT_EQ((tracks[{0, 4}]), "communication 2"); // a send and a receive overlap
}

TEST(Comparison, PutsTheMedianStepBesideTheSimulation) {
    const Comparison comparison = compare(example());
    EXPECT_EQ(comparison.step, 3);
    EXPECT_DOUBLE_EQ(comparison.time.measured, 2.5);
    EXPECT_DOUBLE_EQ(comparison.time.simulated, 2.0);
    EXPECT_DOUBLE_EQ(comparison.time.share(), 0.25);
    ASSERT_EQ(comparison.tasks.size(), 8u + 6u);
    for (const ComparedTask& task : comparison.tasks) {
        EXPECT_NEAR(task.start.measured, 1.25 * task.start.simulated, 1e-12);
        EXPECT_NEAR(task.duration.measured, 1.25 * task.duration.simulated, 1e-12);
    }
    auto sum_of = [&](int rank, TaskKind kind) {
        for (const ComparedKind& one : comparison.kinds)
            if (one.rank == rank && one.kind == kind) return one;
        return ComparedKind{};
    };
    EXPECT_EQ(sum_of(0, TaskKind::forward).count, 2);
    EXPECT_NEAR(sum_of(0, TaskKind::forward).time.measured, 3 * 0.25, 1e-12);
    EXPECT_NEAR(sum_of(0, TaskKind::send).time.simulated, 2 * 0.2, 1e-12); // until it was there
    EXPECT_NEAR(sum_of(1, TaskKind::receive).time.measured, 3.5 * 0.25, 1e-12);
    EXPECT_NEAR(comparison.waiting[0].measured, (2.5 + 0.5) * 0.25, 1e-12);
    // Rank 0 computes 3 + 2 + 0.5 + 1 of 10 units, rank 1 1 + 1 + 0.5 + 1.
    EXPECT_NEAR(comparison.bubble.measured, 1 - (6.5 + 3.5) / 20, 1e-12);
    EXPECT_NEAR(comparison.bubble.simulated, comparison.bubble.measured, 1e-12);
}

TEST(Comparison, DrawsBothOnOneAxisWithoutActivations) {
    const Comparison comparison = compare(example());
    const std::vector<Timeline> both = {comparison.measured, comparison.simulated};
    const std::string picture = terminal_picture(both, {.columns = 90, .colours = false});
    EXPECT_NE(picture.find("measured: step 3, unit ms\ntime 2500, bubble 50.0%\n"), std::string::npos) << picture;
    EXPECT_NE(picture.find("simulated: unit ms\ntime 2000"), std::string::npos) << picture;
    EXPECT_EQ(picture.find("peak"), std::string::npos) << picture;
    const std::string page = html_page(both);
    EXPECT_NE(page.find("\"title\":\"simulated\""), std::string::npos);
    for (const Timeline& timeline : both) // boxes and waiting fill the step
        for (const TimelineRow& row : timeline.rows) {
            double sum = 0;
            for (const Box& box : row.boxes) sum += box.end - box.start;
            for (const Idle& idle : row.idle) sum += idle.end - idle.start;
            EXPECT_NEAR(sum, timeline.time, 1e-9 * timeline.time);
        }
}

// ---- files that are something else

std::string changed(const std::function<void(Json&)>& change) {
    Json json = Json::parse(to_chrome(example()));
    change(json);
    return json.dump();
}

Json& first_of(Json& json, const std::string& category) {
    for (Json& event : json["traceEvents"])
        if (event.value("cat", "") == category) return event;
    throw std::runtime_error("no " + category);
}

TEST(RunTrace, FilesThatAreNoneAreToldInASentence) {
    auto refused = [](const std::function<void(Json&)>& change, const std::string& part) {
        EXPECT_ERROR(parse_run_trace(changed(change), "t.json"), part);
    };
    EXPECT_ERROR(parse_run_trace("", "t.json"), "t.json");
    EXPECT_ERROR(parse_run_trace("[]", "t.json"), "t.json");
    EXPECT_ERROR(parse_run_trace("{}", "t.json"), "no list traceEvents");
    EXPECT_ERROR(parse_run_trace("{\"traceEvents\": []}", "t.json"), "tutti train --trace FILE writes one");
    refused([](Json& json) { json["otherData"]["tutti_trace"] = 2; }, "version 2");
    refused([](Json& json) { json["otherData"]["ranks"] = 0; }, "ranks is 0");
    refused([](Json& json) { json["otherData"]["ranks"] = 60000; }, "clock_offsets has to be a list of 60000");
    refused([](Json& json) { json["otherData"]["clock_offsets"][0] = "now"; }, "clock_offsets");
    refused([](Json& json) { json["otherData"]["flops"] = 0; }, "flops is 0");
    refused([](Json& json) { json["traceEvents"] = Json::array(); }, "holds no step");
    refused([](Json& json) { json["traceEvents"].push_back(3); }, "t.json");
    refused([](Json& json) { first_of(json, "task")["pid"] = 9; }, "pid is 9");
    refused([](Json& json) { first_of(json, "task").erase("args"); }, "args");
    refused([](Json& json) { first_of(json, "task")["dur"] = -1; }, "dur is -1");
    // 2^63 microseconds: a picture in which the step is one character would be as wide as memory.
    refused([](Json& json) { first_of(json, "task")["ts"] = 9223372036854775807; }, "ts is 9.22");
    refused([](Json& json) { first_of(json, "step")["ts"] = -1e16; },
            "ts is -1e+16; it has to be from -1000000000000000 to");
    refused([](Json& json) { first_of(json, "task")["dur"] = 1e15; }, "and the step from");
    refused([](Json& json) { first_of(json, "task")["ts"] = -1e14; }, "and the step from");
    refused([](Json& json) { first_of(json, "task")["ts"] = "soon"; }, "ts");
    refused([](Json& json) { first_of(json, "task")["args"]["kind"] = "nap"; }, "\"nap\"");
    refused([](Json& json) { first_of(json, "task")["args"]["task"] = 1; }, "does not hold every task of step 2");
    refused([](Json& json) { first_of(json, "task")["args"]["task"] = 100000000; }, "every task");
    refused([](Json& json) { first_of(json, "task")["args"]["kind"] = "clear"; }, "in the simulation");
    refused([](Json& json) { first_of(json, "wait")["args"]["task"] = 40; }, "speaks of task 40 of 8");
    refused([](Json& json) { first_of(json, "exchange")["args"]["bytes"] = -4; }, "-4 bytes");
    refused([](Json& json) { first_of(json, "step")["cat"] = "other"; }, "lacks step 2 of rank 0");
    refused([](Json& json) { json["traceEvents"].push_back(first_of(json, "step")); }, "twice");
}

// Rank and step numbers of a short file must not decide how much memory is taken.
TEST(RunTrace, AShortFileAsksForLittle) {
    Json json = Json::parse(to_chrome(example()));
    json["otherData"]["ranks"] = 65536;
    json["otherData"]["clock_offsets"] = std::vector<double>(65536, 0);
    EXPECT_ERROR(parse_run_trace(json.dump(), "t"), "lacks steps of ranks");
}

TEST(RunTrace, DamagedFilesAreReadOrRefused) {
    const std::string whole = to_chrome(example());
    test::Mutator mutate(3);
    for (int i = 0; i < 400; ++i) {
        try {
            compare(parse_run_trace(mutate(whole), "t"));
        } catch (const Error&) { // anything else is a defect
        }
    }
}

TEST(RunTrace, AFolderHoldsTraceJson) {
    const TemporaryFolder folder;
    EXPECT_ERROR(read_run_trace(folder.path().string()), "has no trace.json: tutti train --trace");
    EXPECT_ERROR(read_run_trace((folder / "absent.json").string()), "absent.json");
    folder.write("trace.json", to_chrome(example()));
    EXPECT_EQ(read_run_trace(folder.path().string()).ranks(), 2);
    EXPECT_EQ(read_run_trace((folder / "trace.json").string()).steps.size(), 3u);
}

} // namespace
} // namespace tutti
