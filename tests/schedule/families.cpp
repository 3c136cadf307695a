// What is known of every family without making a schedule, against the papers' numbers, against what its schedules do,
// and in the sentences that users see.
#include "schedule/families.h"

#include "schedule/schedule.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tutti {

using namespace schedule;
namespace {

using Names = std::vector<std::string>;

std::string refusal_of(const ScheduleParameters& parameters) {
    return test::error_of([&] { make_schedule(parameters); });
}

Names names_of(const std::vector<ScheduleParameters>& list) {
    Names names;
    for (const ScheduleParameters& p : list)
        if (names.empty() || names.back() != p.family) names.push_back(p.family);
    return names;
}

// `tutti schedule list` and the page docs/schedules.md show them so.
TEST(Families, AreListedInOneOrder) {
    Names names;
    for (const Family& family : families()) names.emplace_back(family.name);
    EXPECT_EQ(names, (Names{"gpipe", "1f1b", "interleaved", "chimera", "mixpipe", "hanayo", "zb-1p", "zb-2p", "zb-v",
                            "v-half", "v-min", "dualpipe", "dualpipe-v", "early-recompute",
                            "last-stage-without-recompute", "shifted-critical-path", "greedy"}));
    for (const std::string& name : names) EXPECT_EQ(find_family(name).name, name);
    std::ranges::sort(names);
    EXPECT_TRUE(std::ranges::adjacent_find(names) == names.end()) << "two families of one name";
}

TEST(Families, SayWhatTheyAreAndHowTheirOrdersAreMade) {
    for (const Family& family : families()) {
        SCOPED_TRACE(family.name);
        EXPECT_FALSE(family.description.empty());
        EXPECT_EQ(family.description.find('\n'), std::string_view::npos);
        EXPECT_TRUE(family.make);
    }
}

// GPipe holds all micro-batches, 1F1B those that fill the pipeline, zero bubble 2 the forwards of a whole round trip,
// and each replica of Chimera fills its share of the ranks.
TEST(Families, MicroBatchesInFlightWhereNoneAreAskedFor) {
    const int ranks = 4, many = 16;
    const std::map<std::string, int> expected = {
        {"gpipe", many},
        {"1f1b", ranks},
        {"interleaved", 0},
        {"chimera", ranks / 2},
        {"mixpipe", 0},
        {"hanayo", ranks},
        {"zb-1p", ranks},
        {"zb-2p", 2 * ranks - 1},
        {"zb-v", 0},
        {"v-half", 0},
        {"v-min", 0},
        {"dualpipe", 0},
        {"dualpipe-v", 0},
        {"early-recompute", ranks},
        {"last-stage-without-recompute", ranks},
        {"shifted-critical-path", 0},
        {"greedy", ranks},
    };
    for (const auto& [family, in_flight] : expected) {
        EXPECT_EQ(resolve({.family = family, .ranks = ranks, .micro_batches = many}).in_flight, in_flight) << family;
        const ScheduleParameters few = resolve({.family = family, .ranks = 2, .micro_batches = 4});
        EXPECT_LE(few.in_flight, few.micro_batches / few.model_replicas) << family;
    }
}

// Of every rank at the same time: its forwards that have no backward yet, most of them at rank 0 of 1F1B.
TEST(Families, HoldWhatTheySayIsInFlight) {
    for (const char* name : {"gpipe", "1f1b", "zb-1p", "zb-2p", "early-recompute", "last-stage-without-recompute"}) {
        const Schedule made = make_schedule({.family = name, .ranks = 4, .micro_batches = 12});
        int held = 0, most = 0;
        for (const ScheduledTask& task : made.rank(0)) {
            held += task.work == Work::forward ? 1 : is_backward(task.work) ? -1 : 0;
            most = std::max(most, held);
        }
        EXPECT_EQ(most, made.parameters.in_flight) << name;
    }
}

TEST(Families, OnlyInterleavedTakesMicroBatchesInGroups) {
    for (const Family& family : families()) {
        const bool groups = family.name == "interleaved";
        EXPECT_EQ(resolve({.family = std::string(family.name), .ranks = 4, .micro_batches = 8}).group, groups ? 4 : 1)
            << family.name;
    }
}

// Where recomputing costs anything, a family that recomputes early has tasks of their own for it, and no other has.
TEST(Families, RecomputeEarlyAsTheySay) {
    for (const Family& family : families()) {
        const Schedule made = make_schedule({.family = std::string(family.name), .ranks = 4, .micro_batches = 8},
                                            {.forward = 1, .backward = 1, .weight_gradient = 1, .recompute = 1});
        const bool early = std::ranges::any_of(made.tasks, [](const auto& t) { return t.work == Work::recompute; });
        EXPECT_EQ(early, family.recomputes_early) << family.name;
    }
}

TEST(Families, SplitBackwardsAsTheySay) {
    for (const Family& family : families()) {
        const Schedule made = make_schedule({.family = std::string(family.name), .ranks = 4, .micro_batches = 8});
        const bool split =
            std::ranges::any_of(made.tasks, [](const auto& t) { return t.work == Work::weight_gradient; });
        EXPECT_EQ(split, family.shape.split_backward) << family.name;
    }
}

// Orders that are written down once for all, whatever the stages cost.
TEST(Families, TemplatesDoNotFollowCosts) {
    for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-1p", "zb-2p", "zb-v", "dualpipe", "dualpipe-v"}) {
        EXPECT_FALSE(find_family(name).follows_costs) << name;
        const ScheduleParameters p = resolve({.family = name, .ranks = 4, .micro_batches = 8});
        Costs uneven = uniform_costs(p, {});
        for (std::size_t s = 0; s < uneven.stages.size(); ++s) uneven.stages[s].forward = s % 3 == 0 ? 8 : 1;
        EXPECT_EQ(make_schedule(p, uneven).tasks, make_schedule(p, uniform_costs(p, {})).tasks) << name;
    }
    for (const char* name : {"mixpipe", "v-half", "v-min", "shifted-critical-path", "greedy"})
        EXPECT_TRUE(find_family(name).follows_costs) << name;
}

TEST(Families, OnlyGreedyFitsAnyCap) {
    for (const Family& family : families()) {
        ScheduleParameters p{.family = std::string(family.name), .ranks = 4, .micro_batches = 8, .memory_cap = 1.0};
        const std::string refusal = refusal_of(p);
        if (family.fits_any_cap)
            EXPECT_EQ(refusal, "(no error)") << family.name;
        else
            EXPECT_NE(refusal.find("greedy finds an order for any cap"), std::string::npos) << refusal;
    }
    EXPECT_NE(refusal_of({.family = "greedy", .ranks = 4, .micro_batches = 8, .memory_cap = 0.5})
                  .find("no order found holds less, so it takes a cap of 1 or recomputation"),
              std::string::npos);
}

// What is wrong first is said first.
TEST(Families, RefuseInWholeSentences) {
    EXPECT_EQ(refusal_of({.family = "1f1b", .ranks = 4, .micro_batches = 8, .stages_per_rank = 2}),
              "1f1b has 1 stage per rank, not 2; interleaved, hanayo and greedy take any number");
    EXPECT_EQ(refusal_of({.family = "1f1b", .ranks = 4, .micro_batches = 8, .model_replicas = 2}),
              "1f1b has 1 model replica, not 2; chimera and greedy take other numbers");
    EXPECT_EQ(refusal_of({.family = "1f1b", .ranks = 4, .micro_batches = 8, .in_flight = 2}),
              "1f1b decides itself how many micro-batches are in flight, and 2 was asked for; greedy, chimera, mixpipe "
              "and hanayo take any number");
    EXPECT_EQ(refusal_of({.family = "zb-v", .ranks = 4, .micro_batches = 8, .group = 2}),
              "zb-v takes micro-batches one by one, not in groups of 2; interleaved takes groups");
    EXPECT_EQ(refusal_of({.family = "chimera", .ranks = 4, .micro_batches = 8, .model_replicas = 3}),
              "chimera needs an even number of model replicas, half of them in each direction: 3 is odd, 4 would do");
    EXPECT_EQ(refusal_of({.family = "chimera", .ranks = 3, .micro_batches = 5}),
              "chimera with 2 model replicas needs M to be a multiple of 2: 5 is not, 6 would be");
    EXPECT_EQ(
        refusal_of({.family = "chimera", .ranks = 3, .micro_batches = 6}),
        "chimera needs model replicas that divide the pipe ranks: 2 model replicas on 3 pipe ranks do not, 4 pipe "
        "ranks would");
    EXPECT_EQ(refusal_of({.family = "dualpipe", .ranks = 3, .micro_batches = 7}),
              "dualpipe with 2 model replicas needs M to be a multiple of 2: 7 is not, 8 would be");
    EXPECT_EQ(refusal_of({.family = "dualpipe", .ranks = 3, .micro_batches = 4}),
              "dualpipe needs an even number of pipe ranks: 3 is not, 4 would be");
    EXPECT_EQ(refusal_of({.family = "dualpipe-v", .ranks = 3, .micro_batches = 5}),
              "dualpipe-v with 3 pipe ranks needs at least 6 micro-batches, not 5");
    EXPECT_EQ(refusal_of({.family = "mixpipe", .ranks = 2, .micro_batches = 3}),
              "mixpipe with 2 model replicas needs M to be a multiple of 2: 3 is not, 4 would be");
    EXPECT_EQ(refusal_of({.family = "interleaved", .ranks = 4, .micro_batches = 8, .group = 2}),
              "interleaved with 4 pipe ranks needs groups of at least 4 micro-batches, not 2");
}

// A search takes the first of equally fast plans: the plainer order comes first.
TEST(Families, ASearchTriesThemByTheirTurns) {
    EXPECT_EQ(names_of(schedules_to_try(4, 8, false)),
              (Names{"1f1b", "interleaved", "zb-1p", "zb-2p", "early-recompute", "last-stage-without-recompute",
                     "gpipe", "zb-v", "dualpipe-v", "dualpipe", "chimera", "hanayo"}));
    EXPECT_EQ(names_of(schedules_to_try(4, 8, true)),
              (Names{"mixpipe", "shifted-critical-path", "v-half", "v-min", "greedy"}));
    const std::vector<ScheduleParameters> many = schedules_to_try(4, 9, false); // more than GPipe should hold
    EXPECT_EQ(std::ranges::count(many, "gpipe", &ScheduleParameters::family), 0);
    EXPECT_EQ(schedules_to_try(1, 8, false), (std::vector<ScheduleParameters>{{.ranks = 1, .micro_batches = 8}}));
    EXPECT_TRUE(schedules_to_try(1, 8, true).empty());
}

TEST(Families, ASearchVariesStagesAndMicroBatchesInFlight) {
    std::map<std::string, std::vector<int>> stages;
    for (const ScheduleParameters& p : schedules_to_try(4, 8, false)) stages[p.family].push_back(p.stages_per_rank);
    EXPECT_EQ(stages["1f1b"], std::vector{0});
    EXPECT_EQ(stages["interleaved"], (std::vector{2, 3, 4, 6, 8}));
    EXPECT_EQ(stages["hanayo"], (std::vector{2, 4}));
    EXPECT_EQ(stages["dualpipe-v"], std::vector{2});
    std::vector<std::pair<int, int>> greedy; // stages per rank, in flight
    for (const ScheduleParameters& p : schedules_to_try(4, 6, true)) {
        if (p.family != "greedy") continue;
        greedy.emplace_back(p.stages_per_rank, p.in_flight);
        EXPECT_TRUE(p.split_backward);
        EXPECT_EQ(p.placement, p.stages_per_rank == 2 ? StagePlacement::wave : StagePlacement::loop);
    }
    using Pairs = std::vector<std::pair<int, int>>; // thirds, halves and so on of 4, no more than 6
    EXPECT_EQ(greedy, (Pairs{{1, 2}, {1, 2}, {1, 3}, {1, 4}, {1, 6}, {2, 2}, {2, 2}, {2, 3}, {2, 4}, {2, 6}}));
}

} // namespace
} // namespace tutti
