#include "report/plan_page.h"

#include "schedule/families.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tutti {

using namespace costs;
using namespace report;
using namespace schedule;
namespace {

Cluster small_cluster() {
    return uniform_cluster(
        {.device = *find_device_preset("h100"), .devices = 2, .link = {1e-6, 1e11}, .host_copy = {0, 1e10}}, 2,
        {.name = "fabric", .speed = {1e-6, 1e10}});
}

nlohmann::json data_of(const std::string& page) {
    const std::string mark = "id=\"data\">";
    const std::size_t begin = page.find(mark) + mark.size();
    return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

PlanReport report() {
    PlanReport all;
    all.title = "gpt2 on 4 h100";
    all.terms = {"computing", "bubble"};
    all.plans = {{.name = "joint", .step_seconds = 2, .margin = {5}, .terms = {1.5, 0.5}},
                 {.name = "by hand", .fits = false, .step_seconds = 3, .margin = {-5}, .terms = {1.5, 1.5}}};
    const ScheduleParameters p = resolve({.family = "1f1b", .ranks = 2, .micro_batches = 3});
    const Costs costs = uniform_costs(p, {.forward = 1, .backward = 2, .weight_gradient = 0}, 0);
    const Schedule schedule = make_schedule(p, costs);
    all.timeline = make_timeline(schedule, costs, evaluate(schedule, costs));
    all.categories = {"weights", "activations"};
    all.memory = {{"pipe 0", {{10}, {20}}, {100}}, {"pipe 1", {{12}, {8}}, {100}}};
    all.searched = {{2, {30}, "1f1b", "first"}, {3, {40}, "gpipe", "second"}};
    all.cluster = small_cluster();
    all.assignment = {{0, 0, 0}, {0, 0, 1}, {1, 0, 0}, {-1, 0, 0}};
    all.scaling = {{2, 100, "a"}, {4, 180, "b"}};
    return all;
}

TEST(PlanFrontier, HoldsWhatNothingBeatsInBoth) {
    const std::vector<SearchedPlan> plans = {{3, {10}}, {1, {50}}, {2, {20}}, {2, {30}},
                                             {4, {10}}, {5, {5}},  {1, {50}}, {1, {60}}};
    EXPECT_EQ(frontier_of(plans), (std::vector<std::size_t>{1, 2, 0, 5}));
    EXPECT_TRUE(frontier_of({}).empty());
}

TEST(PlanPage, HoldsEverythingThatWasTold) {
    const std::string page = plan_page(report());
    const nlohmann::json data = data_of(page);
    EXPECT_EQ(data["timelines"].size(), 1u);
    const nlohmann::json& plan = data["plan"];
    EXPECT_EQ(plan["title"], "gpt2 on 4 h100");
    EXPECT_EQ(plan["plans"][1]["fits"], false);
    EXPECT_EQ(plan["plans"][1]["margin"], -5);
    EXPECT_EQ(plan["memory"][0]["parts"], (nlohmann::json{10, 20}));
    EXPECT_EQ(plan["searched"]["frontier"], nlohmann::json::parse("[[2.0, 30]]"));
    EXPECT_EQ(plan["searched"]["families"], (nlohmann::json{"1f1b", "gpipe"}));
    EXPECT_EQ(plan["cluster"]["ranks"], nlohmann::json::parse("[[0,0,0],[0,0,1],[1,0,0],[-1,0,0]]"));
    EXPECT_EQ(plan["cluster"]["levels"], nlohmann::json::parse(R"([{"name": "fabric", "nodes": 2}])"));
    EXPECT_EQ(plan["scaling"][1]["tokens"], 180);
    EXPECT_EQ(page.find("/*DATA*/"), std::string::npos);
    EXPECT_EQ(page.find("<!--MORE-->"), std::string::npos);
    EXPECT_EQ(page.find("http"), std::string::npos); // asks for nothing
}

TEST(PlanPage, TextsCannotBecomePartsOfThePage) {
    PlanReport hostile = report();
    hostile.title = "</script><script>alert(1)</script><!--MORE-->";
    hostile.searched[0].what = "\xff</script>";
    const std::string page = plan_page(hostile);
    EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
    EXPECT_EQ(data_of(page)["plan"]["title"], hostile.title);
}

TEST(PlanPage, ThinsOutWhatIsFarFromTheFrontier) {
    PlanReport many = report();
    many.searched.clear();
    for (int i = 0; i < 20000; ++i) many.searched.push_back({1 + i * 1e-3, {1'000'000 - i % 7}, "1f1b", {}});
    const nlohmann::json searched = data_of(plan_page(many))["plan"]["searched"];
    EXPECT_EQ(searched["count"], 20000);
    EXPECT_LE(searched["points"].size(), 5010u);
    EXPECT_EQ(searched["frontier"].size(), 7u);
}

TEST(PlanPage, NothingIsAPageToo) {
    const nlohmann::json plan = data_of(plan_page({}))["plan"];
    EXPECT_TRUE(plan["plans"].empty());
    EXPECT_TRUE(plan["cluster"]["nodes"].empty());
}

} // namespace
} // namespace tutti
