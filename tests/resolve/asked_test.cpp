// Config file, flags, plan and ranks become one config; contradictions are told.
#include "resolve/asked.h"

#include "cli/program.h"
#include "plan/plan.h"
#include "run/run_options.h"
#include "schedule/families.h"

#include <map>

namespace tutti::test {

using namespace resolve;
using namespace run;
using namespace schedule;
using namespace sharding;
namespace {

RunConfig resolved(const GivenOptions& given, int started) { return resolve_run(asked_run(given).config, started); }

GivenOptions given(const std::map<std::string, std::string>& texts) {
    GivenOptions options;
    for (const RunOption& option : run_options()) {
        const auto found = texts.find(option.key);
        options.flags.push_back(found == texts.end() ? std::nullopt : std::optional(found->second));
    }
    return options;
}

std::string refusal(const std::map<std::string, std::string>& texts, int started = 0) {
    return test::error_of([&] { resolved(given(texts), started); });
}

Plan some_plan() {
    Plan plan;
    plan.model = "GPT2LMHeadModel";
    plan.workload = {.sequence = 16, .global_batch = 16, .micro_batch = 2};
    plan.precision.compute = DType::bfloat16;
    plan.mesh = {.pipe = 2, .data = 2};
    const ScheduleParameters parameters = schedule::resolve({.family = "zb-1p", .ranks = 2, .micro_batches = 4});
    const Costs costs = uniform_costs(parameters, {});
    plan.schedule = PlannedSchedule{make_schedule(parameters, costs), costs};
    plan.cuts = {3};
    plan.zero = 1;
    return plan;
}

TEST(Resolve, FlagsOfManyRanks) {
    const RunConfig config = resolved(given({{"mesh", "tensor=2,pipe=2"},
                                             {"schedule", "shifted-critical-path"},
                                             {"recompute", "0.5"},
                                             {"sub_pipeline", "off"},
                                             {"sequence_parallel", "off"},
                                             {"comm", "threads"},
                                             {"zero", "0"}}),
                                      0);
    EXPECT_EQ(config.ranks, 4);
    EXPECT_EQ(config.mesh, (Mesh{.pipe = 2, .tensor = 2}));
    EXPECT_EQ(config.recompute.share, 0.5);
    EXPECT_FALSE(config.sequence_parallel);
    EXPECT_EQ(config.comm, Connection::threads);
}

TEST(Resolve, ValuesThatMakeNoSense) {
    EXPECT_EQ(refusal({{"mesh", "dta=2"}}), "a mesh has no axis \"dta\"; its axes are data, pipe and tensor");
    EXPECT_EQ(refusal({{"mesh", "data=0"}}), "in the mesh, data is \"0\", and should be an integer from 1 to 65536");
    EXPECT_EQ(refusal({{"sub_pipeline", "maybe"}}), "--sub-pipeline is \"maybe\", and should be on or off");
    EXPECT_EQ(refusal({{"recompute", "2"}}),
              "--recompute is \"2\", and should be none, auto, full, or a share from 0 to 1");
    EXPECT_EQ(refusal({{"comm", "tcp"}}), "--comm is \"tcp\", and should be auto, threads or mpi");
    EXPECT_TRUE(refusal({{"schedule", "1fb1"}}).starts_with("there is no schedule \"1fb1\"; there are 1f1b, "));
    EXPECT_TRUE(
        refusal({{"schedule", "chimaera"}}).starts_with("there is no schedule \"chimaera\"; there are chimera, "));
    EXPECT_NE(refusal({{"mesh", "data=2,pipe=2"}}, 3).find("has 4 ranks, but there are 3"), std::string::npos);
}

TEST(Resolve, WhatMovesModelDataNeedsALimit) {
    const std::pair<const char*, const char*> settings[] = {
        {"host_memory", "1GB"}, {"disk", "/tmp"},    {"optimizer_placement", "host"}, {"eviction", "lru"},
        {"prefetch", "off"},    {"updates", "next"}, {"offload_activations", "full"},
    };
    for (const auto& [key, value] : settings) {
        SCOPED_TRACE(key);
        EXPECT_NE(refusal({{key, value}}).find("device_memory has no limit"), std::string::npos);
        EXPECT_NO_THROW(resolved(given({{key, value}, {"device_memory", "1GB"}}), 0));
    }
}

TEST(Resolve, KeysOfAFileMeanTheSame) {
    RunConfig config;
    parse_run_config(config, "mesh = \"data=2\"\nrecompute = 0.5\nsub_pipeline = true\nsequence_parallel = \"off\"\n",
                     "run.toml");
    EXPECT_EQ(config.mesh, (Mesh{.data = 2}));
    EXPECT_EQ(config.recompute.share, 0.5);
    EXPECT_TRUE(config.sub_pipeline);
    EXPECT_FALSE(config.sequence_parallel);
    auto mistake = [&](const char* text) {
        return test::error_of([&] { parse_run_config(config, text, "run.toml"); });
    };
    EXPECT_EQ(
        mistake("steps = 1\nmesh = \"data\""),
        "run.toml, line 2: the mesh has \"data\", and should be made of axis=number, as in data=2,pipe=2,tensor=2");
    EXPECT_EQ(mistake("mesh = 4"),
              "run.toml, line 1: the mesh has \"4\", and should be made of axis=number, as in data=2,pipe=2,tensor=2");
    EXPECT_TRUE(mistake("schedule = \"gpip\"")
                    .starts_with("run.toml, line 1: there is no schedule \"gpip\"; there are gpipe,"));
    EXPECT_EQ(mistake("recompute = 7"),
              "run.toml, line 1: recompute is 7, and should be none, auto, full, or a share from 0 to 1");
    EXPECT_EQ(mistake("zero = \"all\""), "run.toml, line 1: zero is \"all\", and should be an integer");
}

// The number of ranks in a run's config.toml used to stand in the way of another mesh.
TEST(Resolve, AMeshAsAFlagOverrulesTheRanksOfAFile) {
    const TemporaryFolder folder;
    const std::string file = folder.write("config.toml", "ranks = 2\n").string();
    auto over_file = [&](const std::map<std::string, std::string>& texts) {
        GivenOptions options = given(texts);
        options.config = file;
        return options;
    };
    EXPECT_EQ(resolved(over_file({}), 0).ranks, 2);
    for (const auto& [mesh, ranks] : {std::pair("data=1", 1), std::pair("pipe=2,tensor=2", 4)})
        EXPECT_EQ(resolved(over_file({{"mesh", mesh}}), 0).ranks, ranks) << mesh;
    EXPECT_NE(test::error_of([&] {
                  resolved(over_file({{"mesh", "data=1"}, {"ranks", "2"}}), 0);
              }).find("the mesh data=1 has 1 rank, but there are 2"),
              std::string::npos);
    folder.write("config.toml", "ranks = 2\nmesh = \"data=1\"\n");
    EXPECT_NE(test::error_of([&] { resolved(over_file({}), 0); }).find("has 1 rank, but there are 2"),
              std::string::npos);
}

TEST(Resolve, APlanDecides) {
    const TemporaryFolder folder;
    const std::string file = folder.write("plan.json", to_json(some_plan())).string();
    const RunConfig config = resolved(given({{"model", "gpt2-tiny"}, {"plan", file}}), 0);
    EXPECT_EQ(config.ranks, 4);
    EXPECT_EQ(config.mesh, some_plan().mesh);
    EXPECT_EQ(config.schedule, "zb-1p");
    EXPECT_EQ(config.zero, 1);
    EXPECT_EQ(config.precision.compute, DType::bfloat16);
    EXPECT_EQ(config.workload.sequence, 16);
    EXPECT_EQ(config.workload.global_batch, 16);
    EXPECT_EQ(config.workload.micro_batch, 2);
    // What agrees with it, or says nothing, may be given too; so may the config that a run saves.
    EXPECT_EQ(
        resolved(
            given(
                {{"model", "gpt2-tiny"}, {"plan", file}, {"zero", "1"}, {"mesh", "pipe=2,data=2"}, {"sequence", "0"}}),
            0),
        config);
    GivenOptions saved = given({});
    saved.config = folder.write("config.toml", to_toml(config)).string();
    EXPECT_EQ(resolved(saved, 0), config);
    EXPECT_EQ(resolved(saved, 4), config);
}

TEST(Resolve, WhatContradictsAPlanIsToldWithBoth) {
    const TemporaryFolder folder;
    const std::string file = folder.write("plan.json", to_json(some_plan())).string();
    auto told = [&](const char* key, const char* value) {
        return refusal({{"model", "gpt2-tiny"}, {"plan", file}, {key, value}});
    };
    EXPECT_EQ(told("mesh", "data=4"),
              "mesh is data=4, but the plan " + file + " says data=2,pipe=2: leave --mesh or --plan out");
    EXPECT_EQ(told("zero", "0"), "zero is 0, but the plan " + file + " says 1: leave --zero or --plan out");
    EXPECT_NE(told("schedule", "1f1b").find("schedule is 1f1b, but the plan"), std::string::npos);
    EXPECT_NE(told("dtype", "float32").find("dtype is float32, but the plan"), std::string::npos);
    EXPECT_NE(told("micro_batch", "4").find("says 2: leave --micro-batch"), std::string::npos);
    EXPECT_NE(told("recompute", "full").find("recompute is full, but the plan " + file + " says which blocks"),
              std::string::npos);
    EXPECT_NE(refusal({{"model", "gpt2-tiny"}, {"plan", file}, {"ranks", "8"}}).find("has 4 ranks, but there are 8"),
              std::string::npos);
    GivenOptions by_file = given({});
    by_file.config = folder.write("run.toml", "model = \"gpt2-tiny\"\nplan = \"" + file + "\"\nzero = 3\n").string();
    EXPECT_NE(test::error_of([&] { resolved(by_file, 0); }).find("zero is 3, but the plan"), std::string::npos);
    EXPECT_NE(refusal({{"plan", file}}).find("which model?"), std::string::npos);
    EXPECT_NE(refusal({{"plan", (folder / "absent").string()}}).find("cannot read"), std::string::npos);
    EXPECT_NE(refusal({{"plan", folder.write("no.json", "[]").string()}}).find("is no plan"), std::string::npos);
}

TEST(Resolve, WhatSettlesALayoutIsNamed) {
    auto settled = [](const std::map<std::string, std::string>& flags) {
        const GivenOptions options = given(flags);
        const RunConfig asked = asked_run(options).config;
        EXPECT_EQ(settled_by(options, asked).empty(), freedom_of(options, asked).has_value());
        return settled_by(options, asked);
    };
    EXPECT_EQ(settled({{"ranks", "2"}, {"zero", "1"}}), "");
    EXPECT_EQ(settled({{"ranks", "2"}, {"device_memory", "60MiB"}}), "--device-memory");
    EXPECT_EQ(settled({{"ranks", "2"}, {"recompute", "0.5"}}), "--recompute");
    EXPECT_EQ(settled({{"ranks", "2"}, {"threads", "2,1"}}), "--threads");
    EXPECT_EQ(settled({{"ranks", "2"}, {"device", "reference"}}), "--device"); // too slow to search for
    EXPECT_EQ(settled({{"ranks", "2"}, {"device", "cuda"}}), "");
}

TEST(Resolve, APlanIsForOneModel) {
    const TemporaryFolder folder;
    Plan plan = some_plan();
    plan.mesh = {};
    plan.schedule.reset();
    plan.cuts.clear();
    plan.zero = 0;
    plan.precision.compute = DType::float32;
    const std::string file = folder.write("plan.json", to_json(plan)).string();
    test::expect_refusal({"train", test::reference("llama").string(), "--plan", file, "--dry-run"},
                         "is a plan for another model: for a GPT2LMHeadModel, and");
    const test::Outcome outcome =
        test::tutti_with({"train", test::reference("gpt2").string(), "--plan", file, "--dry-run"});
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_NE(outcome.output.find("8 micro-batches of 2 sequences"), std::string::npos) << outcome.output;
    const std::string shown =
        test::tutti_with({"inspect", folder.write("many.json", to_json(some_plan())).string()}).output;
    for (const char* part : {"4 ranks: data=2,pipe=2", "zb-1p, 2 ranks, 4 micro-batches", "2: blocks 0 to 2 | from 3",
                             "1: optimizer states are sharded", "4 of 2 sequences in every replica"})
        EXPECT_NE(shown.find(part), std::string::npos) << part << "\n" << shown;
}

} // namespace
} // namespace tutti::test
