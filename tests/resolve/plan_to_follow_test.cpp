// Which plan a run follows when it goes on, and what wins over it: however it was started, whatever is typed then.
#include "resolve/asked.h"
#include "resolve/run_plan.h"
#include "run/run_folder.h"
#include "run/run_options.h"
#include "schedule/families.h"
#include "support/temporary_folder.h"

#include <map>

namespace tutti::test {

using namespace resolve;
using namespace run;
using namespace sharding;
namespace {

using Texts = std::map<std::string, std::string>;

Plan plan_with(const char* family, Mesh mesh, int zero) {
    Plan plan;
    plan.model = "GPT2LMHeadModel";
    plan.workload = {.sequence = 16, .global_batch = 16, .micro_batch = 2};
    plan.mesh = mesh;
    plan.zero = zero;
    if (mesh.pipe == 1) return plan;
    const schedule::ScheduleParameters parameters = schedule::resolve(
        {.family = family, .ranks = mesh.pipe, .micro_batches = static_cast<int>(plan.micro_batches())});
    const schedule::Costs costs = schedule::uniform_costs(parameters, {});
    plan.schedule = PlannedSchedule{schedule::make_schedule(parameters, costs), costs};
    for (int stage = 1; stage < parameters.stages(); ++stage) plan.cuts.push_back(stage);
    return plan;
}

// The folder of a run that was laid out as data=2,pipe=2, and stopped.
class StoppedRun {
  public:
    StoppedRun() {
        fs::create_directory(folder_ / "run");
        plan_ = plan_with("zb-1p", {.pipe = 2, .data = 2}, 1);
        plan_.fusion = FusionOptions{}; // completed at the start
        folder_.write("run/plan.json", to_json(plan_));
        folder_.write("other.json", to_json(plan_with("", {.data = 4}, 2)));
    }

    std::string own() const { return (folder_ / "run/plan.json").string(); }
    std::string other() const { return (folder_ / "other.json").string(); }
    std::string config() const { return (folder_ / "run/config.toml").string(); }
    const Plan& plan() const { return plan_; }

    void start_with(const std::string& keys) const {
        folder_.write("run/config.toml", std::string(config_head) + ": goes on\nmodel = \"gpt2-tiny\"\noutput = \"" +
                                             (folder_ / "run").string() + "\"\nsequence = 16\nglobal_batch = 16\n" +
                                             keys);
    }
    void start_with_flags() const {
        start_with("mesh = \"data=2,pipe=2\"\nschedule = \"zb-1p\"\nzero = 1\nmicro_batch = 2\n");
    }
    void start_with_plan() const { start_with("plan = \"" + own() + "\"\n"); }
    void start_automatically() const { start_with("ranks = 4\n"); }
    // As earlier programs kept it: the file that was given, and all that it says.
    void start_with_earlier_plan() const {
        start_with("plan = \"/gone/p.json\"\nmesh = \"data=2,pipe=2\"\nschedule = \"zb-1p\"\nstages_per_rank = 1\n"
                   "model_replicas = 1\nzero = 1\nmicro_batch = 2\nin_flight = " +
                   std::to_string(plan_.schedule->schedule.parameters.in_flight) + "\n");
    }

    AskedRun resumed_with(Texts texts, int started = 0) const {
        texts["resume"] = "true";
        return asked(texts, started);
    }
    AskedRun asked(const Texts& texts, int started = 0) const {
        GivenOptions given{.config = config()};
        for (const RunOption& option : run_options()) {
            const auto found = texts.find(option.key);
            given.flags.push_back(found == texts.end() ? std::nullopt : std::optional(found->second));
        }
        AskedRun run = asked_run(given, started);
        is_free_ = freedom_of(given, run.config).has_value();
        return run;
    }
    bool planner_is_free() const { return is_free_; } // of the last one

    const TemporaryFolder& folder() const { return folder_; }

  private:
    TemporaryFolder folder_;
    Plan plan_;
    mutable bool is_free_ = false;
};

enum class Layout { own_plan, other_plan, by_hand, planner_with_own, planner };

struct Case {
    Texts typed;
    Layout layout;
    std::string mesh; // empty: open
    int zero;
    std::string told; // empty: nothing is
};

void expect_case(const StoppedRun& run, const char* start, const Case& one) {
    std::string typed;
    for (const auto& [key, text] : one.typed) typed += " --" + key + " " + text;
    SCOPED_TRACE(std::string(start) + typed);
    const AskedRun asked = run.resumed_with(one.typed);
    const std::string mesh = asked.config.mesh ? to_string(*asked.config.mesh) : "";
    EXPECT_EQ(mesh, one.mesh);
    EXPECT_EQ(asked.config.zero.stage(), one.zero);
    const bool follows = one.layout == Layout::own_plan || one.layout == Layout::other_plan;
    ASSERT_EQ(asked.plan.has_value(), follows);
    if (follows) {
        EXPECT_EQ(*asked.plan == run.plan(), one.layout == Layout::own_plan);
        EXPECT_EQ(asked.config.plan, one.layout == Layout::own_plan ? run.own() : run.other());
    }
    const bool is_planned = one.layout == Layout::planner || one.layout == Layout::planner_with_own;
    EXPECT_EQ(run.planner_is_free(), is_planned);
    if (is_planned) {
        EXPECT_EQ(asked.before.has_value(), one.layout == Layout::planner_with_own);
    }
    ASSERT_EQ(asked.told.size(), one.told.empty() ? 0u : 1u) << (asked.told.empty() ? "" : asked.told[0]);
    if (!one.told.empty()) {
        EXPECT_EQ(asked.told[0], one.told);
    }
    EXPECT_NO_THROW(resolve_run(asked.config, 0, is_planned));
}

TEST(PlanToFollow, GoingOnIsByTheRunsOwnPlanUnlessSomethingIsTyped) {
    const StoppedRun run;
    const std::string own = run.own(), other = run.other(), file = run.config();
    auto anew = [&](const std::string& said, const std::string& winner) {
        return own + " says " + said + "; " + winner + " wins, and the plan is made anew";
    };
    const std::string by_mesh = anew("mesh data=2,pipe=2", "--mesh data=4"), by_ranks = anew("ranks 4", "--ranks 8"),
                      by_zero = anew("zero 1", "--zero 3"), by_batch = anew("micro_batch 2", "--micro-batch 4"),
                      by_schedule = anew("schedule zb-1p", "--schedule gpipe");
    const Case of_plan[] = {
        {{}, Layout::own_plan, "data=2,pipe=2", 1, ""},
        {{{"mesh", "data=2,pipe=2"}, {"zero", "1"}}, Layout::own_plan, "data=2,pipe=2", 1, ""},
        {{{"mesh", "data=4"}}, Layout::by_hand, "data=4", 1, by_mesh},
        {{{"plan", other}}, Layout::other_plan, "data=4", 2, "--plan " + other + " wins over " + own},
        {{{"plan", own}}, Layout::own_plan, "data=2,pipe=2", 1, ""},
        {{{"ranks", "8"}}, Layout::planner, "", 0, by_ranks},
        {{{"ranks", "4"}}, Layout::own_plan, "data=2,pipe=2", 1, ""},
        {{{"zero", "3"}}, Layout::by_hand, "data=2,pipe=2", 3, by_zero},
        {{{"micro_batch", "4"}}, Layout::by_hand, "data=2,pipe=2", 1, by_batch},
        {{{"schedule", "gpipe"}}, Layout::by_hand, "data=2,pipe=2", 1, by_schedule},
        {{{"mesh", "data=4"}, {"zero", "3"}},
         Layout::by_hand,
         "data=4",
         3,
         own + " says mesh data=2,pipe=2 and zero 1; --mesh data=4 and --zero 3 win, and the plan is made anew"},
    };
    run.start_with_plan();
    for (const Case& one : of_plan) expect_case(run, "with --plan", one);
    run.start_with_earlier_plan();
    for (const Case& one : of_plan)
        if (one.layout != Layout::other_plan) expect_case(run, "with --plan, by an earlier program", one);

    run.start_with_flags();
    for (const Case& one : {
             Case{{}, Layout::by_hand, "data=2,pipe=2", 1, ""},
             Case{{{"mesh", "data=4"}}, Layout::by_hand, "data=4", 1, by_mesh},
             Case{{{"plan", other}},
                  Layout::other_plan,
                  "data=4",
                  2,
                  "--plan " + other + " wins over " + own + " and mesh data=2,pipe=2, schedule zb-1p and zero 1 of " +
                      file},
             Case{{{"ranks", "8"}}, Layout::planner, "", 1, by_ranks},
             Case{{{"zero", "3"}}, Layout::by_hand, "data=2,pipe=2", 3, by_zero},
         })
        expect_case(run, "with flags", one);

    run.start_automatically();
    for (const Case& one : {
             Case{{}, Layout::planner_with_own, "", 0, ""},
             Case{{{"mesh", "data=4"}}, Layout::by_hand, "data=4", 0, by_mesh},
             Case{{{"plan", other}}, Layout::other_plan, "data=4", 2, "--plan " + other + " wins over " + own},
             Case{{{"ranks", "8"}}, Layout::planner, "", 0, by_ranks},
             Case{{{"zero", "3"}}, Layout::planner, "", 3, by_zero},
             Case{{{"plan", ""}}, Layout::planner, "", 0, ""},
         })
        expect_case(run, "automatically", one);
}

TEST(PlanToFollow, WhatIsMadeAnewKeepsWhatStillFits) {
    const StoppedRun run;
    Plan plan = run.plan();
    plan.precision.compute = DType::bfloat16;
    plan.recompute = {{0}, {}};
    plan.chunk_elements = 4096;
    run.folder().write("run/plan.json", to_json(plan));
    run.start_with_plan();
    const RunConfig other_zero = run.resumed_with({{"zero", "3"}}).config;
    EXPECT_EQ(other_zero.schedule, "zb-1p");
    EXPECT_EQ(other_zero.precision.compute, DType::bfloat16);
    EXPECT_EQ(other_zero.workload.micro_batch, 2);
    EXPECT_TRUE(other_zero.recompute.automatic);
    EXPECT_EQ(other_zero.in_flight, 0);      // what the schedule has
    EXPECT_EQ(other_zero.chunk_elements, 0); // what suits the new plan
    const RunConfig other_mesh = run.resumed_with({{"mesh", "data=16"}}).config;
    EXPECT_EQ(other_mesh.schedule, "");
    EXPECT_EQ(other_mesh.workload.micro_batch, 0); // 2 of each of 16 replicas are more than there are
    EXPECT_EQ(run.resumed_with({{"recompute", "none"}}).config.recompute, RecomputeAmount{});
}

// Nothing is said of the ranks, neither by a file nor on the command line.
TEST(PlanToFollow, ARunThatIsNamedByItsFolderAloneGoesOnWithItsRanks) {
    const StoppedRun run;
    run.start_with("zero = 1\n");
    EXPECT_EQ(run.resumed_with({}).plan, run.plan());
    EXPECT_EQ(run.resumed_with({}, 4).plan, run.plan());
    EXPECT_FALSE(run.resumed_with({}, 2).plan); // mpirun says how many
    EXPECT_FALSE(run.asked({}).plan);           // it does not go on
    run.start_with("zero = 2\n");
    EXPECT_EQ(run.resumed_with({}).told,
              std::vector<std::string>{run.own() + " says zero 1; zero 2 wins, and the plan is made anew"});
}

TEST(PlanToFollow, ProcessesThatWereStartedWinOverAPlanThatIsForOthers) {
    const StoppedRun run;
    run.start_with_plan();
    EXPECT_TRUE(run.resumed_with({}, 4).plan);
    const AskedRun more = run.resumed_with({}, 8);
    EXPECT_FALSE(more.plan || more.config.mesh);
    EXPECT_EQ(more.told, std::vector<std::string>{run.own() + " says ranks 4; a start of 8 processes wins, and the "
                                                              "plan is made anew"});
}

TEST(PlanToFollow, APlanFromTheFolderIsTheRunsOwn) {
    const StoppedRun run;
    run.start_with_plan();
    fs::remove(run.own());
    EXPECT_ERROR(run.resumed_with({}), "cannot read " + run.own());
    run.start_with_flags();
    EXPECT_EQ(run.resumed_with({}).config.mesh, (Mesh{.pipe = 2, .data = 2})); // and needs none
    run.folder().write("run/plan.json", "notes");
    EXPECT_TRUE(run.resumed_with({{"mesh", "data=4"}}).told.empty());
    // A config that no run left there, beside somebody's plan.
    run.folder().write("run/plan.json", to_json(run.plan()));
    run.folder().write("run/config.toml", "output = \"" + (run.folder() / "run").string() + "\"\n");
    EXPECT_FALSE(run.resumed_with({}).plan);
}

TEST(PlanToFollow, AFileHasToAgreeWithThePlanThatItNames) {
    const StoppedRun run;
    run.start_with("zero = 3\nplan = \"" + run.own() + "\"\n");
    EXPECT_ERROR(run.resumed_with({}),
                 "zero is 3, but the plan " + run.own() + " says 1: leave zero or plan out of " + run.config());
    EXPECT_EQ(run.resumed_with({{"zero", "3"}}).config.zero, 3);
    EXPECT_ERROR(run.resumed_with({{"plan", run.own()}, {"zero", "3"}}), "leave --zero or --plan out");
}

TEST(PlanToFollow, TypedRanksWinOverTheMeshOfAFile) {
    const StoppedRun run;
    run.start_with_flags();
    const AskedRun more = run.asked({{"ranks", "8"}});
    EXPECT_FALSE(more.config.mesh);
    EXPECT_EQ(more.config.schedule, "");
    EXPECT_EQ(more.told, std::vector<std::string>{"--ranks 8 wins over mesh data=2,pipe=2 of " + run.config()});
    const AskedRun same = run.asked({{"ranks", "4"}});
    EXPECT_EQ(same.config.mesh, (Mesh{.pipe = 2, .data = 2}));
    EXPECT_TRUE(same.told.empty());
    EXPECT_ERROR(resolve_run(run.asked({{"ranks", "8"}, {"mesh", "data=4"}}).config, 0),
                 "has 4 ranks, but there are 8");
}

TEST(PlanToFollow, ATypedPlanWinsOverTheRanksOfAFile) {
    const StoppedRun run;
    run.start_automatically();
    run.folder().write("two.json", to_json(plan_with("", {.data = 2}, 0)));
    const std::string two = (run.folder() / "two.json").string();
    const AskedRun asked = run.asked({{"plan", two}});
    EXPECT_EQ(resolve_run(asked.config, 0).ranks, 2);
    EXPECT_EQ(asked.told, std::vector<std::string>{"--plan " + two + " wins over ranks 4 of " + run.config()});
}

} // namespace
} // namespace tutti::test
