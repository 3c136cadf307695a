// What follows from the settings for many ranks, before any file is read.
#include "run/layout.h"

#include "support/temporary_folder.h"

namespace tutti {

using namespace run;
using namespace schedule;
using namespace sharding;
namespace {

RunConfig with_mesh(const char* text, int ranks = 0) {
    RunConfig config;
    if (*text) config.mesh = parse_mesh(text);
    config.ranks = ranks;
    return config;
}

TEST(Layout, WithoutAnythingIsOneRank) {
    const RunConfig config = with_layout({}, 0);
    EXPECT_EQ(config.ranks, 1);
    EXPECT_EQ(config.mesh, Mesh{});
    EXPECT_TRUE(config.schedule.empty());
    EXPECT_EQ(with_layout({}, 1), config); // mpirun -n 1
}

TEST(Layout, RanksWithoutAMeshAreReplicas) {
    EXPECT_EQ(with_layout(with_mesh("", 5), 0).mesh, (Mesh{.data = 5}));
    EXPECT_EQ(with_layout({}, 3).mesh, (Mesh{.data = 3}));
    EXPECT_EQ(with_layout({}, 3).ranks, 3);
}

TEST(Layout, AMeshWithoutRanksSaysHowManyThereAre) {
    const RunConfig config = with_layout(with_mesh("pipe=2,tensor=3"), 0);
    EXPECT_EQ(config.ranks, 6);
    EXPECT_EQ(config.schedule, "1f1b");
    EXPECT_EQ(with_layout(config, 6), config); // in a process that was started for it
    EXPECT_EQ(with_layout(config, 0), config); // from the config that was saved
}

TEST(Layout, AMeshThatDoesNotFitIsToldWithOneThatDoes) {
    EXPECT_ERROR(with_layout(with_mesh("data=2,pipe=2", 8), 0),
                 "the mesh data=2,pipe=2 has 4 ranks, but there are 8: --mesh data=4,pipe=2 would fit, or 4 ranks");
    EXPECT_ERROR(with_layout(with_mesh("pipe=2,tensor=2"), 6),
                 "the mesh pipe=2,tensor=2 has 4 ranks, but there are 6: --mesh data=6 would fit");
    EXPECT_ERROR(with_layout(with_mesh("tensor=2"), 1), "has 2 ranks, but there is 1: --mesh data=1 would fit");
    EXPECT_ERROR(with_layout(with_mesh("", 8), 4), "ranks is 8, but 4 processes were started");
    EXPECT_ERROR(with_layout(with_mesh("", -1), 0), "ranks is -1; it has to be from 0 to 65536");
    EXPECT_ERROR(with_layout(with_mesh("", 100000), 0), "ranks is 100000");
    RunConfig config;
    config.mesh = Mesh{.data = 0};
    EXPECT_ERROR(with_layout(config, 0), "data is 0; it has to be from 1");
}

TEST(Layout, ThreadsAreForOneProcess) {
    RunConfig config = with_mesh("", 4);
    config.comm = Connection::threads;
    EXPECT_EQ(with_layout(config, 0).ranks, 4);
    EXPECT_EQ(with_layout(config, 1).ranks, 4); // mpirun -n 1 is as good as none
    EXPECT_ERROR(with_layout(config, 4),
                 "one of 4 processes that were started together: give --ranks 4 --comm threads");
}

TEST(Layout, BatchesThatReplicasCannotShareAreToldWithThoseTheyCan) {
    RunConfig config = with_mesh("data=3");
    config.workload.global_batch = 10;
    EXPECT_ERROR(check(config), "global_batch 10 is not a multiple of micro_batch 3 x data 3 = 9: 9 or 18 would be");
    config.workload.global_batch = 12;
    EXPECT_NO_THROW(check(config));
    EXPECT_EQ(micro_batch_of(config, 12), 4);
    config.workload.micro_batch = 8;
    EXPECT_ERROR(check(config), "x data 3 = 24: 24 would be");
    config.workload.global_batch = 0; // left to a default, which fits
    EXPECT_NO_THROW(check(config));
}

TEST(Layout, HalvesNeedEvenMicroBatchesAndATensorAxis) {
    RunConfig config = with_mesh("tensor=2");
    config.sub_pipeline = true;
    config.workload.micro_batch = 3;
    EXPECT_ERROR(check(config), "sub_pipeline takes micro-batches in halves, and micro_batch is 3: 2 or 4 would do");
    config.workload.micro_batch = 1;
    EXPECT_ERROR(check(config), "micro_batch is 1: 2 would do");
    config.workload.micro_batch = 2;
    EXPECT_NO_THROW(check(config));
    config.mesh = Mesh{.data = 2};
    EXPECT_ERROR(check(config), "the mesh data=2 has none: tensor=2 would do");
}

TEST(Layout, SchedulesSayWhatTheyNeed) {
    auto refusal = [](const char* mesh, const char* schedule, std::int64_t global, std::int64_t micro) {
        RunConfig config = with_mesh(mesh);
        config.schedule = schedule;
        config.workload.global_batch = global;
        config.workload.micro_batch = micro;
        return test::error_of([&] { check(with_layout(config, 0)); });
    };
    EXPECT_EQ(refusal("pipe=4", "dualpipe", 16, 2), "(no error)");
    EXPECT_EQ(refusal("pipe=4", "dualpipe", 8, 2), "dualpipe with 4 pipe ranks needs at least 8 micro-batches, not 4");
    EXPECT_NE(refusal("pipe=4", "interleaved", 6, 1).find("6 is no multiple of it, 8 would be"), std::string::npos);
    EXPECT_EQ(refusal("pipe=4,data=2", "interleaved", 16, 2), "(no error)"); // 4 micro-batches per replica
    EXPECT_NE(refusal("pipe=2", "2f2b", 8, 1).find("there is no schedule family \"2f2b\"; there are gpipe, 1f1b"),
              std::string::npos);
    RunConfig config = with_mesh("pipe=2");
    config.stages_per_rank = 2;
    config.workload.global_batch = 8;
    EXPECT_ERROR(check(with_layout(config, 0)), "1f1b has 1 stage per rank, not 2; interleaved, hanayo and greedy");
}

TEST(Layout, ScheduleParametersAreWhatWasAskedFor) {
    RunConfig config = with_mesh("pipe=3");
    EXPECT_TRUE(has_schedule(config));
    EXPECT_FALSE(has_schedule({}));
    config.schedule = "hanayo";
    config.stages_per_rank = 4;
    config.in_flight = 2;
    const ScheduleParameters parameters = schedule_parameters(config, 6);
    EXPECT_EQ(parameters, (ScheduleParameters{.family = "hanayo",
                                              .ranks = 3,
                                              .micro_batches = 6,
                                              .stages_per_rank = 4,
                                              .model_replicas = 0,
                                              .in_flight = 2}));
}

TEST(Layout, CoresAreSharedByRanks) {
    EXPECT_EQ(threads_of({}, 0, 16, 4), 4);
    EXPECT_EQ(threads_of({}, 7, 2, 8), 1);
    RunConfig config;
    config.threads = 3;
    EXPECT_EQ(threads_of(config, 5, 2, 8), 3);
}

TEST(Layout, NumbersOutOfRangeAreTold) {
    auto refusal = [](auto set) {
        RunConfig config;
        set(config);
        return test::error_of([&] { check(config); });
    };
    EXPECT_EQ(refusal([](RunConfig& c) { c.zero = 4; }), "zero is 4; it has to be from 0 to 3");
    EXPECT_EQ(refusal([](RunConfig& c) { c.timeout = 0; }), "timeout is 0; it has to be from 1 second to 1000000");
    EXPECT_EQ(refusal([](RunConfig& c) { c.stages_per_rank = -1; }),
              "stages_per_rank is -1; it has to be from 0 to 4096");
    EXPECT_NE(refusal([](RunConfig& c) { c.in_flight = -1; }), "(no error)");
    EXPECT_NE(refusal([](RunConfig& c) { c.model_replicas = 1 << 20; }), "(no error)");
}

TEST(RecomputeAmount, IsNoneAutoFullOrAShare) {
    for (const char* text : {"none", "auto", "full", "0.25"}) EXPECT_EQ(to_string(*parse_recompute(text)), text);
    EXPECT_EQ(parse_recompute("1"), (RecomputeAmount{.share = 1}));
    EXPECT_EQ(to_string(*parse_recompute("-0")), "none");
    for (const char* text : {"", "some", "1.5", "-0.1", "nan", "0.5x", " 0.5"})
        EXPECT_FALSE(parse_recompute(text)) << text;
}

} // namespace
} // namespace tutti
