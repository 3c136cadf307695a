#include "costs/profile.h"

#include "base/error.h"
#include "ops/operators.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tutti {

using namespace costs;
using namespace ops;
namespace {

Instruction product(std::int64_t rows, Access access = Access::write) {
    Instruction one{.op = "linear"};
    one.inputs = {{.address = {}, .type = {DType::float32, {rows, 8}}, .strides = {8, 1}},
                  {.address = {.region = Region::weights}, .type = {DType::float32, {4, 8}}, .strides = {8, 1}}};
    one.outputs = {{.address = {}, .type = {DType::float32, {rows, 4}}, .strides = {4, 1}, .access = access}};
    return one;
}

CostProfile small_profile() {
    CostProfile profile;
    profile.transport = "mpi";
    profile.machine = {.device = "cpu", .model = "a \"fast\" one", .cores = 8, .threads = 2, .version = "1.2"};
    profile.ranks = 4;
    profile.name = "gpt2";
    profile.memory = {1 << 30};
    profile.host_memory = {4ll << 30};
    profile.libraries = {77 << 20};
    profile.speed = {.flops = 1000, .bytes = 1e9, .launch = 0};
    profile.kernels = {{kernel_key(product(10), false), {"linear", 2 * 10 * 8 * 4, 600, 2.0, {640}}},
                       {kernel_key(product(100), false), {"linear", 2 * 100 * 8 * 4, 6000, 12.0}},
                       {"adamw something", {"adamw", 15, 1.6e9, 3.2}}};
    for (int ranks : {2, 4})
        for (std::int64_t bytes : {100, 1000, 5000})
            profile.collectives.push_back(
                {Collective::all_reduce, ranks, {bytes}, 1e-3 * static_cast<double>(ranks * (50 + bytes))});
    profile.messages = {{{100}, 0.1}, {{1100}, 0.6}};
    profile.group_room = {{2, {2000}}, {4, {4000}}};
    profile.host_copy = {.latency = 0.5, .bytes = 100};
    profile.contention = {1.25, 1.5};
    profile.slowdown = 1;
    return profile;
}

TEST(Profile, ReadsBackTheSame) { EXPECT_EQ(parse_profile(to_json(small_profile()), "p.json"), small_profile()); }

TEST(Profile, DamageIsASentence) {
    auto sentence = [](auto change) -> std::string {
        nlohmann::json json = nlohmann::json::parse(to_json(small_profile()));
        change(json);
        try {
            parse_profile(json.dump(), "p.json");
        } catch (const Error& error) {
            return error.what();
        }
        return "no error";
    };
    using J = nlohmann::json;
    EXPECT_EQ(sentence([](J& j) { j["version"] = 7; }),
              "p.json is a profile of version 7, and this program reads version 4");
    EXPECT_EQ(sentence([](J& j) { j["speed"]["flops"] = -1; }).find("flops is -1, and should be from 1 to 1e+21") !=
                  std::string::npos,
              true);
    EXPECT_EQ(sentence([](J& j) { j["speed"]["launch"] = 1e300; }),
              "p.json: launch is 1e+300, and should be from 0 to 1000000000");
    EXPECT_EQ(sentence([](J& j) { j["slowdown"] = 1e300; }),
              "p.json: slowdown is 1e+300, and should be from 0.001 to 1000");
    EXPECT_EQ(sentence([](J& j) { j["contention"]["compute"] = 1e300; }),
              "p.json: compute is 1e+300, and should be from 0.001 to 1000");
    EXPECT_EQ(sentence([](J& j) { j["kernels"][0]["seconds"] = 1e300; }),
              "p.json, kernels[0]: seconds is 1e+300, and should be from 1e-12 to 1000000000");
    EXPECT_EQ(sentence([](J& j) { j["libraries"] = 1'000'000'000'000'000'000; }),
              "p.json: libraries is 1000000000000000000, and should be from 0 to 1125899906842624");
    EXPECT_EQ(sentence([](J& j) { j["kernels"] = J::array(); }),
              "p.json: kernels is empty: no kernel was timed; tutti profile measures anew");
    EXPECT_NE(sentence([](J& j) { j["kernels"][0]["seconds"] = 0; }).find("kernels[0]: seconds is 0"),
              std::string::npos);
    EXPECT_NE(sentence([](J& j) { j["collectives"][1]["what"] = "gather"; }).find("no collective \"gather\""),
              std::string::npos);
    EXPECT_EQ(sentence([](J& j) { j["collectives"].push_back(j["collectives"][4]); }),
              "p.json: all_reduce of 1000 bytes by 4 ranks is in collectives twice");
    EXPECT_EQ(sentence([](J& j) { j["messages"].push_back(j["messages"][0]); }),
              "p.json: a message of 100 bytes is in messages twice");
    EXPECT_NE(sentence([](J& j) { j["ranks"] = 0; }).find("ranks is 0, and should be from 1"), std::string::npos);
    EXPECT_NE(sentence([](J& j) { j["messages"] = 3; }).find("messages should be an array"), std::string::npos);
    EXPECT_NE(sentence([](J& j) { j["group_room"][0]["bytes"] = -1; }).find("group_room[0]: bytes is -1"),
              std::string::npos);
    EXPECT_NE(sentence([](J& j) { j.erase("machine"); }), "no error");
    EXPECT_NE(sentence([](J& j) { j["memory"] = 0; }), "no error");
    EXPECT_THROW(parse_profile("{", "p.json"), Error);
}

TEST(Profile, HoldsOnlyWhereItWasMeasured) {
    const CostProfile profile = small_profile();
    EXPECT_NO_THROW(check_fits(profile, profile.machine, "p.json"));
    auto sentence = [&](auto change) -> std::string {
        Fingerprint here = profile.machine;
        change(here);
        try {
            check_fits(profile, here, "p.json");
        } catch (const Error& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_EQ(
        sentence([](Fingerprint& f) { f.threads = 1; }),
        "p.json does not hold here: when it was measured, the number of threads of a rank was 2, and here it is 1; "
        "tutti profile measures anew");
    for (auto change : {+[](Fingerprint& f) { f.device = "cuda"; }, +[](Fingerprint& f) { f.model = "x"; },
                        +[](Fingerprint& f) { f.cores = 1; }, +[](Fingerprint& f) { f.version = "1.3"; }})
        EXPECT_NE(sentence(change).find("does not hold here"), std::string::npos);
}

TEST(MeasuredCost, KernelsTakeWhatWasTimedAndOthersInProportionToTheNearest) {
    const MeasuredCost cost(small_profile(), all_operators());
    EXPECT_DOUBLE_EQ(cost.kernel_seconds(product(10), 0), 2.0);
    EXPECT_DOUBLE_EQ(cost.kernel_seconds(product(100), 0), 12.0);
    EXPECT_DOUBLE_EQ(cost.kernel_seconds(product(10, Access::accumulate), 0), 2.0); // the other form was timed
    EXPECT_DOUBLE_EQ(cost.kernel_seconds(product(200), 0), 24.0);
    EXPECT_DOUBLE_EQ(cost.kernel_seconds(product(5), 0), 1.0);
    // Never timed: by flops and bytes alone
    const TensorType x[] = {{DType::float32, {1000}}};
    const Cost gelu = all_operators().at("gelu").cost(x, x, {});
    EXPECT_DOUBLE_EQ(cost.kernel_seconds("gelu", x, x, {}, 0), gelu.flops.count / 1000);
    EXPECT_DOUBLE_EQ(cost.optimizer_seconds(200'000'000, 16, 0), 6.4);
}

TEST(MeasuredCost, TheFirstMicroBatchOverwritesAndOthersAdd) {
    CostProfile profile = small_profile();
    Instruction gradient = product(10, Access::accumulate);
    gradient.first_overwrites = true;
    profile.kernels[kernel_key(gradient, true)] = {"linear", 2 * 10 * 8 * 4, 600, 3.0, {128}};
    const MeasuredCost cost(profile, all_operators());
    EXPECT_DOUBLE_EQ(cost.kernel_seconds(gradient, 0), 3.0);
    EXPECT_DOUBLE_EQ(cost.first_kernel_seconds(gradient, 0), 2.0);
    gradient.first_overwrites = false; // then it always adds
    EXPECT_DOUBLE_EQ(cost.first_kernel_seconds(gradient, 0), 3.0);
    EXPECT_EQ(cost.workspace(gradient), (Bytes{128}));
    EXPECT_EQ(cost.workspace(product(10)), (Bytes{640}));
    EXPECT_EQ(cost.workspace(product(11)), (Bytes{})); // not timed
    // The sum of squares is not taken to be an update
    profile.kernels["squares"] = {"squared_norm", 2000, 4000, 5.0, {}};
    EXPECT_DOUBLE_EQ(MeasuredCost(profile, all_operators()).norm_seconds(2000, 4, 0), 10.0);
    // Whether others wait for the slowest rank is not a kernel's to say
    profile.slowdown = 1.5;
    const MeasuredCost slow(profile, all_operators());
    EXPECT_DOUBLE_EQ(slow.kernel_seconds(gradient, 0), 3.0);
    EXPECT_DOUBLE_EQ(slow.kernel_seconds(product(200), 0), 24.0);
    EXPECT_DOUBLE_EQ(slow.slowdown(), 1.5);
}

TEST(MeasuredCost, GroupsTakeRoomAsTheNextLargerThatIsKnown) {
    const MeasuredCost cost(small_profile(), all_operators());
    EXPECT_EQ(cost.group_room(1), Bytes{});
    EXPECT_EQ(cost.group_room(2), Bytes{2000});
    EXPECT_EQ(cost.group_room(3), Bytes{4000});
    EXPECT_EQ(cost.group_room(4), Bytes{4000});
    EXPECT_EQ(cost.group_room(64), Bytes{4000});
}

TEST(MeasuredCost, OnManyMachinesTheLinksBetweenThemCount) {
    const Cluster one = cluster_of(small_profile());
    const Cluster many = uniform_cluster(one.kinds[0], 3, {.name = "slow", .speed = {.latency = 1, .bytes = 10}});
    const MeasuredCost cost(small_profile(), all_operators(), many);
    EXPECT_EQ(cost.cluster().device_count(), 12);
    EXPECT_DOUBLE_EQ(cost.collective_seconds(Collective::all_reduce, {1000}, {{2}}, 0), 2.1);
    EXPECT_DOUBLE_EQ(cost.collective_seconds(Collective::all_reduce, {1000}, {{2, 3}}, 0),
                     collective_seconds(Collective::all_reduce, {1000}, {{2, 3}}, many.levels));
    EXPECT_DOUBLE_EQ(cost.message_seconds({600}, 0, 0, 0), 0.35);
    EXPECT_DOUBLE_EQ(cost.message_seconds({600}, 1, 1, 0), message_seconds({600}, 1, many.levels, 1));
    Cluster mixed = many;
    mixed.kinds.push_back(mixed.kinds[0]);
    EXPECT_THROW(MeasuredCost(small_profile(), all_operators(), mixed), Error);
}

TEST(MeasuredCost, ExchangesLieBetweenWhatWasTimed) {
    const MeasuredCost cost(small_profile(), all_operators());
    auto sum = [&](std::int64_t bytes, int ranks) {
        return cost.collective_seconds(Collective::all_reduce, {bytes}, {{ranks}}, 0);
    };
    EXPECT_DOUBLE_EQ(sum(1000, 2), 2.1);
    EXPECT_DOUBLE_EQ(sum(550, 2), 1.2);
    EXPECT_DOUBLE_EQ(sum(3000, 4), 12.2);
    EXPECT_DOUBLE_EQ(sum(10, 4), 0.6);     // no less than the smallest
    EXPECT_DOUBLE_EQ(sum(10000, 4), 40.2); // on with the last slope
    EXPECT_GT(sum(1000, 3), sum(1000, 2)); // not timed: more members, more time
    EXPECT_EQ(sum(1000, 1), 0);
    EXPECT_GT(cost.collective_seconds(Collective::broadcast, {1000}, {{2}}, 0), 0); // by the link
    EXPECT_DOUBLE_EQ(cost.message_seconds({600}, 0, 0, 0), 0.35);
    EXPECT_DOUBLE_EQ(cost.message_seconds({2100}, 0, 0, 0), 1.1);
    EXPECT_DOUBLE_EQ(cost.host_copy_seconds({50}, 0), 1.0);
    EXPECT_EQ(cost.contention(0), (Contention{1.25, 1.5}));
}

TEST(MeasuredCost, TheMachineIsOneNodeWithADeviceForEachRank) {
    const Cluster cluster = cluster_of(small_profile());
    EXPECT_EQ(cluster.device_count(), 4);
    EXPECT_EQ(cluster.levels.size(), 1u);
    EXPECT_EQ(cluster.kinds[0].device.memory, (Bytes{1 << 30}));
    EXPECT_DOUBLE_EQ(cluster.kinds[0].link.latency, 0.1);
    EXPECT_DOUBLE_EQ(cluster.kinds[0].link.bytes, 1100 / 0.5);
    CostProfile alone = small_profile();
    alone.ranks = 1;
    alone.messages.clear();
    alone.collectives.clear();
    EXPECT_EQ(cluster_of(alone).device_count(), 1);
}

} // namespace
} // namespace tutti
