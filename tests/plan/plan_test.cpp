#include "plan/plan.h"

#include "schedule/families.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

#include <nlohmann/json.hpp>

#include <set>

namespace tutti {

using namespace offload;
using namespace schedule;
using namespace sharding;
namespace {

// Every field away from its default: 2 replicas of 2 pipe ranks of 4 tensor ranks, two stages on each pipe rank.
Plan unusual() {
    Plan plan;
    plan.model = "GPT2LMHeadModel";
    plan.device = "reference";
    plan.workload = {.sequence = 64, .global_batch = 32, .micro_batch = 4};
    plan.precision = {.compute = DType::bfloat16, .master = DType::bfloat16, .moments = DType::bfloat16};
    plan.chunk_elements = 4096;
    plan.split_backward = true;
    plan.mesh = {.pipe = 2, .data = 2, .tensor = 4};
    const ScheduleParameters parameters =
        resolve({.family = "interleaved", .ranks = 2, .micro_batches = 4, .stages_per_rank = 2});
    const Costs costs = uniform_costs(parameters, {});
    plan.schedule = PlannedSchedule{make_schedule(parameters, costs), costs};
    plan.cuts = {3, 5, 8};
    plan.recompute = {{0, 2}, {}, {5, 6, 7}, {12}};
    plan.zero = 2;
    plan.sequence_parallel = false;
    plan.sub_pipeline = true;
    plan.strategies =
        OperatorStrategies{.axes = {2, 2},
                           .operators = {{{"transformer.h.*.attn.c_attn", "linear", 0}, {"r0", "n"}, true, false},
                                         {{"transformer.h.*", "add", 1}, {"none", "follow"}, false, true}},
                           .tensors = {{"transformer.h.*.attn.c_attn.weight", {true, false}}}};
    plan.devices = PlannedDevices{
        .nodes = {{"fast", 2, 4}, {"slow", 1, 8}, {"spare", 1, 2}},
        .ranks = {8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 7, 6, 5, 17},
    };
    return plan;
}

// The same with all that is decided when a run starts: two of its ranks have model data in host memory or on disk.
Plan decided() {
    Plan plan = unusual();
    plan.parameters = 124439808;
    plan.device_memory = {1 << 20};
    plan.fusion = FusionOptions{.elementwise = true, .norm_weights = false, .head = true, .merge_linears = false};
    plan.fusion->head_logits = {4096};
    const PlannedStep training{.capacity = {65536},
                               .residents = {{{Region::weights, 3}, BackingTier::host, false, {{0, 12}, {30, 41}}},
                                             {{Region::moments1, 0}, BackingTier::device, true, {}},
                                             {{Region::offloaded, 7}, BackingTier::disk, false, {{2, 2}}}},
                               .seconds = 0.5,
                               .exposed = 0.125};
    PlannedResidency one{.host_updates = {0, 2},
                         .later_updates = true,
                         .training = training,
                         .host = {.latency = 1e-5, .in = 1e10, .out = 2e10, .together = 2.5e10},
                         .host_update_bytes = 6e10};
    plan.residency.emplace(static_cast<std::size_t>(plan.mesh.ranks()));
    plan.residency->front() = one;
    one.evaluation = PlannedStep{.capacity = {1024}};
    one.disk = CopySpeed{.latency = 1e-3, .in = 1e9, .out = 5e8, .together = 1e9};
    plan.residency->back() = one;
    plan.timed_kernels = {{"NVIDIA H200", {{"bf16 1024x768x768", "17"}, {"bf16 1024x768x3072", "3"}}}};
    return plan;
}

const fs::path golden = test::test_data() / "plans" / "version-7.json";

TEST(PlanFile, KeepsWhatIsSaidOfMemory) {
    Plan plan = unusual();
    plan.device_memory = {123};
    plan.host_memory = {456};
    plan.optimizer_placement = OptimizerPlacement::host;
    plan.eviction = Eviction::first_in;
    plan.prefetch = false;
    plan.updates = UpdateTime::backward;
    plan.offload.resize(static_cast<std::size_t>(plan.stages()));
    plan.offload.back() = {plan.cuts.empty() ? 0 : plan.cuts.back()};
    plan.gradients_over_weights = false;
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
    std::string text = to_json(plan);
    text.replace(text.find("\"fifo\""), 6, "\"best\"");
    try {
        parse_plan(text, "plan.json");
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("eviction is \"best\""), std::string::npos) << error.what();
    }
}

TEST(PlanFile, GivesEveryFieldBack) {
    EXPECT_EQ(parse_plan(to_json(unusual()), "plan.json"), unusual());
    EXPECT_EQ(parse_plan(to_json(decided()), "plan.json"), decided());
}

// A plan that somebody has kept must mean the same tomorrow: where this fails, the version has to rise.
TEST(PlanFile, Version7IsWhatItWas) {
    EXPECT_EQ(to_json(decided()), read_text(golden));
    EXPECT_EQ(parse_plan(read_text(golden), "plan.json"), decided());
}

TEST(PlanFile, Version6DecidesNothingThatARunDecides) {
    const Plan sixth = parse_plan(read_text(golden.parent_path() / "version-6.json"), "plan.json");
    EXPECT_EQ(sixth, unusual());
    EXPECT_FALSE(sixth.fusion || sixth.residency || !sixth.timed_kernels.empty());
}

TEST(PlanFile, Version5HasNoDevices) {
    Plan fifth = unusual();
    fifth.devices.reset();
    EXPECT_EQ(parse_plan(read_text(golden.parent_path() / "version-5.json"), "plan.json"), fifth);
}

TEST(PlanFile, Version4HasNoStrategies) {
    Plan fourth = unusual();
    fourth.mesh.tensor = 2;
    fourth.strategies.reset();
    fourth.devices.reset();
    EXPECT_EQ(parse_plan(read_text(golden.parent_path() / "version-4.json"), "plan.json"), fourth);
}

TEST(PlanFile, EarlierVersionsAreForOneReplica) {
    nlohmann::json json = nlohmann::json::parse(read_text(golden));
    for (const char* key : {"parameters", "device_memory", "mesh", "zero", "sequence_parallel", "sub_pipeline", "cuts",
                            "recompute", "strategies", "devices", "fusion", "residency", "timed_kernels"})
        json.erase(key);
    json["tutti_plan"] = 3;
    json["workload"]["global_batch"] = 16;
    const Plan third = parse_plan(json.dump(), "plan.json");
    EXPECT_EQ(third.mesh, (Mesh{.pipe = 2}));
    EXPECT_EQ(third.schedule, unusual().schedule);
    json.erase("schedule");
    json["tutti_plan"] = 2;
    EXPECT_EQ(parse_plan(json.dump(), "plan.json").mesh, Mesh{});
    json["precision"] = {{"compute", "bf16"}, {"states", "float32"}};
    json["tutti_plan"] = 1;
    EXPECT_EQ(parse_plan(json.dump(), "plan.json").precision.moments, DType::float32);
}

// One value of the golden file replaced.
std::string refusal(const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(read_text(golden));
    json[nlohmann::json::json_pointer(pointer)] = value;
    const std::string sentence = test::error_of([&] { parse_plan(json.dump(), "plan.json"); });
    EXPECT_TRUE(sentence.starts_with("plan.json")) << sentence;
    return sentence;
}

void expect_refusal(const std::string& pointer, const nlohmann::json& value, const std::string& part) {
    const std::string sentence = refusal(pointer, value);
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
}

TEST(PlanFile, ValuesThatMakeNoSenseAreRefused) {
    expect_refusal("/mesh/data", 0, "data is 0; it has to be from 1 to 65536");
    expect_refusal("/mesh/tensor", -1, "tensor is -1");
    expect_refusal("/mesh/pipe", 4294967298, "pipe is 2147483647"); // not cut to 2
    expect_refusal("/mesh/pipe", 1.5, "should be an integer");
    expect_refusal("/mesh/pipe", "2", "should be an integer");
    expect_refusal("/mesh/pipe", 18446744073709551615u, "too large");
    expect_refusal("/mesh", 3, "should be an object");
    expect_refusal("/mesh", nlohmann::json{{"data", 65536}, {"pipe", 65536}, {"tensor", 65536}}, "65536 ranks");
    expect_refusal("/zero", 4, "zero is 4; it has to be from 0 to 3");
    expect_refusal("/zero", -1, "zero is -1");
    expect_refusal("/sub_pipeline", "on", "should be true or false");
    expect_refusal("/workload/global_batch", std::int64_t{1} << 62, "global_batch is");
    expect_refusal("/workload/micro_batch", 0, "micro_batch is 0");
    expect_refusal("/chunk_elements", std::int64_t{1} << 62, "chunk_elements is");
    expect_refusal("/schedule/in_flight", 1000000000, "1000000000 micro-batches in flight; at most 1048576 work");
    expect_refusal("/schedule/group", 1000000000, "1000000000 micro-batches in a group; at most");
    expect_refusal("/schedule/deferred_weight_gradients", 1000000000, "1000000000 weight gradients that wait; at most");
    expect_refusal("/predicted", nlohmann::json{{"step_seconds", 1e300}, {"memory_bytes_of_pipe_ranks", {1, 1}}},
                   "predicted to take 1e+300 seconds, and should take from 1e-12 to 1000000000");
    expect_refusal("/predicted",
                   nlohmann::json{{"step_seconds", 1}, {"memory_bytes_of_pipe_ranks", {1, std::int64_t{1} << 60}}},
                   "the predicted memory of a rank is 1152921504606846976");
    // Sums of these would not be numbers any more, and schedules are ordered by them.
    expect_refusal("/schedule/costs/stages/0/forward", 1e308,
                   "the forward cost of stage 0 is 1e+308; it has to be from 0 to 1e+18");
    expect_refusal("/schedule/costs/stages/1/activation", 1e19, "the activation cost of stage 1 is 1e+19");
    expect_refusal("/schedule/costs/communication/0", 1e308, "the communication cost of stage 0 is 1e+308");
    expect_refusal("/device_memory", -1, "device_memory is -1");
    expect_refusal("/cuts", "none", "cuts should be a list of integers");
    expect_refusal("/cuts", {3, 5.5, 8}, "cuts should be a list of integers");
    expect_refusal("/cuts", {5, 5, 8}, "cuts are 5, 5, 8, and should rise");
    expect_refusal("/cuts", {0, 5, 8}, "a cut is 0");
    expect_refusal("/cuts", {3, 5, 4294967296}, "a cut is 2147483647");
    expect_refusal("/recompute", 3, "recompute should be a list");
    expect_refusal("/recompute/0", 3, "recompute should be a list");
    expect_refusal("/recompute/0", {"a"}, "recompute should be a list");
    expect_refusal("/tutti_plan", 8, "this program reads versions 1 to 7");
    expect_refusal("/tutti_plan", 4294967297, "version 4294967297");
}

// The places of all objects whose keys a plan knows.
std::vector<std::string> objects_in(const nlohmann::json& json, const std::string& place = "") {
    std::vector<std::string> places;
    if (json.is_object()) places.push_back(place);
    if (place == "/timed_kernels" || !json.is_structured()) return {}; // keys of its own
    for (const auto& [key, value] : json.items())
        for (std::string& inner : objects_in(value, place + "/" + key)) places.push_back(std::move(inner));
    return places;
}

TEST(PlanFile, KeysThatNobodyKnowsAreRefused) {
    const std::vector<std::string> places = objects_in(nlohmann::json::parse(read_text(golden)));
    EXPECT_GT(places.size(), 20u);
    for (const std::string& place : places) expect_refusal(place + "/surplus", 1, "unknown key \"surplus\"");
    expect_refusal("/chunk_element", 1, "plan.json: unknown key \"chunk_element\"; did you mean chunk_elements?");
    expect_refusal("/workload/micro_bach", 1, "unknown key \"micro_bach\"; did you mean micro_batch?");
    expect_refusal("/schedule/costs/stages/1/forwards", 1,
                   "costs: stages: unknown key \"forwards\"; did you mean forward?");
    expect_refusal("/tutti_plan", 4, "unknown key"); // of later versions
}

TEST(PlanFile, BlocksAreAListForEachStage) {
    expect_refusal("/recompute", {0, 1},
                   "recompute should be a list with a list of blocks for each stage, as in [[0, 1], []]");
    expect_refusal("/offload", {0}, "offload should be a list with a list of blocks for each stage");
    expect_refusal("/recompute/0", {"a"}, "recompute should be a list of integers");
}

TEST(PlanFile, DecisionsThatMakeNoSenseAreRefused) {
    expect_refusal("/fusion", true, "fusion holds a JSON boolean where an object should be");
    expect_refusal("/fusion/head", 1, "\"head\" is 1, and should be true or false");
    expect_refusal("/fusion/head_logits", -1, "head_logits is -1");
    expect_refusal("/residency", "all", "residency should be a list, with null or an object for each rank");
    expect_refusal("/residency", nlohmann::json::array({nullptr}), "residency speaks of 1 rank");
    expect_refusal("/residency/0", 3, "residency of rank 0 holds a JSON number where an object should be");
    expect_refusal("/residency/0/host_updates", {-1}, "residency of rank 0: host_updates should be a list of chunks");
    expect_refusal("/residency/0/host_update_bytes", -1.0, "host_update_bytes is -1");
    expect_refusal("/residency/0/host_copies/in", 1e300, "in is 1e+300, and should be from 0 to 1e18");
    expect_refusal("/residency/0/training/capacity", -1, "the capacity of a residency is -1");
    for (const char* resident :
         {"weights", "weights -1 in host: 0-1", "weights 0 in host: 0", "weights 0 in ram: 0-1",
          "biases 0 in host: 0-1", "weights 0 in host: always 0-1", "weights 99999999999 in host:"})
        expect_refusal("/residency/15/training/on_device/0", resident, "which is not a chunk with its intervals");
    expect_refusal("/device_memory", 0, "there is a residency, and no device_memory");
    expect_refusal("/timed_kernels", 3, "timed_kernels should be an object");
    expect_refusal("/timed_kernels/NVIDIA H200", 3, "timed_kernels of \"NVIDIA H200\" should be an object");
    expect_refusal("/timed_kernels/NVIDIA H200/bf16 1024x768x768", 17, "should be texts");
}

TEST(PlanFile, NumbersThatDoNotFitTogetherAreRefused) {
    expect_refusal("/workload/global_batch", 30,
                   "global_batch 30 is not a multiple of micro_batch 4 x data 2 = 8: 24 or 32 would be");
    expect_refusal("/workload/global_batch", 4, "= 8: 8 would be");
    expect_refusal("/workload/global_batch", 40, "the schedule is for 4 micro-batches, but");
    expect_refusal("/workload/micro_batch", 1, "micro_batch is 1: 2 would do");
    expect_refusal("/mesh/tensor", 1, "sub_pipeline hides collectives of the tensor axis");
    expect_refusal("/mesh/pipe", 4, "the schedule is for 2 ranks, but the mesh data=2,pipe=4,tensor=4 has pipe=4");
    expect_refusal("/cuts", {3, 5},
                   "there are 2 cuts, which make 3 stages, but the schedule has 2 ranks with 2 stages");
    expect_refusal("/cuts", nlohmann::json::array(),
                   "there are 0 cuts, which make 1 stage, but the schedule has 2 ranks with 2 stages");
    expect_refusal("/schedule", nullptr, "has a pipeline, but there is no schedule");
    expect_refusal("/recompute", nlohmann::json::array({nlohmann::json::array()}),
                   "recompute has lists for 1 stage; there are 4");
    expect_refusal("/recompute/0", {3}, "recompute names block 3 for stage 0, which has blocks 0 to 2");
    expect_refusal("/recompute/3", {7}, "recompute names block 7 for stage 3, which has blocks 8 to the last");
    expect_refusal("/recompute/2", {6, 6}, "each once, in order");
    expect_refusal("/recompute/2", {7, 6}, "each once, in order");
}

TEST(PlanFile, StrategiesThatMakeNoSenseAreRefused) {
    expect_refusal("/strategies", 3, "plan.json: strategies");
    expect_refusal("/strategies/axes", nullptr, "axes should be a list");
    expect_refusal("/strategies/axes", {2, "2"}, "axes should be a list of integers");
    expect_refusal("/strategies/axes", nlohmann::json::array(), "strategies are for 0 axes");
    expect_refusal("/strategies/axes", {2, 4}, "the axes 2 x 4, which make 8 ranks or more; the mesh has tensor=4");
    expect_refusal("/strategies/axes", {2, 1}, "the axes 2 x 1, which make 2 ranks");
    expect_refusal("/strategies/axes", {-2, -2}, "an axis of -2 ranks");
    expect_refusal("/strategies/axes", {18446744073709551615u, 1}, "an axis of 2147483647 ranks");
    expect_refusal("/strategies/axes", {4}, "what it does along 2 axes; the tensor axis is 1: 4");
    expect_refusal("/strategies/operators", "all", "operators should be a list");
    expect_refusal("/strategies/operators/0", "all", "strategies: operators");
    expect_refusal("/strategies/operators/0/operator", 1, "should be a string");
    expect_refusal("/strategies/operators/0/ordinal", -1, "they are counted from 0");
    expect_refusal("/strategies/operators/0/split", {"r0", 1}, "split should be a list of loops' names");
    expect_refusal("/strategies/operators/0/keep_gathered", 1, "should be true or false");
    expect_refusal("/strategies/tensors/0/held", {true, 0}, "held should be a list of true and false");
    expect_refusal("/strategies/tensors/0/held", nlohmann::json::array({true}), "what it does along 1 axes");
    nlohmann::json twice = nlohmann::json::parse(read_text(golden))["strategies"]["operators"];
    twice.push_back(twice[0]);
    expect_refusal("/strategies/operators", twice, "twice");
}

TEST(PlanFile, DevicesThatMakeNoSenseAreRefused) {
    expect_refusal("/devices", 3, "plan.json: devices");
    expect_refusal("/devices/nodes", 3, "devices: nodes should be a list");
    expect_refusal("/devices/nodes/0", 3, "devices: nodes");
    expect_refusal("/devices/nodes/0/kind", 3, "should be a string");
    expect_refusal("/devices/nodes/0/nodes", 0, "nodes of devices is 0; it has to be from 1 to 65536");
    expect_refusal("/devices/nodes/1/devices", -8, "devices of a node is -8");
    expect_refusal("/devices/nodes/1/devices", 18446744073709551615u, "too large");
    expect_refusal("/devices/nodes/1", {{"kind", "x"}, {"nodes", 65536}, {"devices", 65536}}, "more than 65536");
    expect_refusal("/devices/nodes", nlohmann::json::array(), "rank 0 has device 8, and the nodes have 0 devices");
    expect_refusal("/devices/ranks", "all", "ranks should be a list of integers");
    expect_refusal("/devices/ranks/3", 1.5, "ranks should be a list of integers");
    expect_refusal("/devices/ranks", {0, 1},
                   "devices names 2 devices for the ranks, but the mesh "
                   "data=2,pipe=2,tensor=4 has 16 ranks");
    expect_refusal("/devices/ranks/3", 18, "rank 3 has device 18, and the nodes have 18 devices, counted from 0");
    expect_refusal("/devices/ranks/3", -1, "rank 3 has device -1");
    expect_refusal("/devices/ranks/3", 4294967296, "rank 3 has device 2147483647");
    expect_refusal("/devices/ranks/3", 8, "ranks 0 and 3 both have device 8; each needs its own");
}

// Processes stand for the devices that are used, whatever their numbers are.
TEST(PlanFile, KeepsWhatIsPredicted) {
    Plan plan = unusual();
    plan.predicted =
        Prediction{.step = {0.1}, .memory = std::vector<Bytes>(static_cast<std::size_t>(plan.mesh.pipe), {7})};
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
    auto mistake = [&](const char* key, const nlohmann::json& value) {
        nlohmann::json json = nlohmann::json::parse(to_json(plan));
        json["predicted"][key] = value;
        return test::error_of([&] { parse_plan(json.dump(), "plan.json"); });
    };
    EXPECT_EQ(mistake("step_seconds", -1.5),
              "plan.json: a step is predicted to take -1.5 seconds, and should take from 1e-12 to 1000000000");
    EXPECT_EQ(mistake("step_seconds", "long"),
              "plan.json: predicted: \"step_seconds\" is \"long\", and should be a number");
    EXPECT_NE(mistake("memory_bytes_of_pipe_ranks", {1}).find("the memory of 1 pipe rank is predicted"),
              std::string::npos);
    for (const nlohmann::json& wrong :
         {nlohmann::json(3), nlohmann::json{-1}, nlohmann::json{"a"}, nlohmann::json{0.5}})
        EXPECT_NE(mistake("memory_bytes_of_pipe_ranks", wrong).find("should be a list"), std::string::npos) << wrong;
}

TEST(Plan, SaysWhichProcessTakesWhichRank) {
    EXPECT_EQ(places_of(unusual()), (std::vector{7, 8, 9, 10, 11, 12, 13, 14, 0, 1, 2, 3, 6, 5, 4, 15}));
    Plan plan = unusual();
    std::ranges::sort(plan.devices->ranks);
    EXPECT_TRUE(places_of(plan).empty());
    plan.devices.reset();
    EXPECT_TRUE(places_of(plan).empty());
}

TEST(PlanFile, MissingKeysAreNamed) {
    const nlohmann::json whole = nlohmann::json::parse(read_text(golden));
    const std::set<std::string> optional = {"parameters", "device_memory", "strategies",   "devices",
                                            "fusion",     "residency",     "timed_kernels"};
    for (const auto& [key, value] : whole.items()) {
        if (optional.contains(key)) continue;
        nlohmann::json json = whole;
        json.erase(key);
        const std::string sentence = test::error_of([&] { parse_plan(json.dump(), "plan.json"); });
        EXPECT_NE(sentence.find(key == "schedule" ? "no schedule" : key), std::string::npos) << sentence;
    }
}

// In the words of the rest of the file, not those of a library.
TEST(PlanFile, MistakesInTheScheduleAreNamed) {
    const nlohmann::json whole = nlohmann::json::parse(read_text(golden));
    auto sentence_of = [&](const nlohmann::json& schedule) {
        nlohmann::json json = whole;
        json["schedule"] = schedule;
        const std::string sentence = test::error_of([&] { parse_plan(json.dump(), "plan.json"); });
        EXPECT_TRUE(sentence.starts_with("plan.json: schedule")) << sentence;
        EXPECT_EQ(sentence.find("json.exception"), std::string::npos) << sentence;
        return sentence;
    };
    auto expect_names = [](const std::string& sentence, const std::string& key) {
        EXPECT_NE(sentence.find(key), std::string::npos) << sentence << " lacks " << key;
    };
    for (const auto& [key, value] : whole["schedule"].items()) {
        nlohmann::json schedule = whole["schedule"];
        schedule.erase(key);
        expect_names(sentence_of(schedule), key);
        schedule[key] = {{"a", {1}}};
        expect_names(sentence_of(schedule), key);
    }
    for (const auto& [key, value] : whole["schedule"]["costs"]["stages"][0].items()) {
        nlohmann::json schedule = whole["schedule"];
        schedule["costs"]["stages"][1].erase(key);
        expect_names(sentence_of(schedule), key);
    }
    expect_names(sentence_of(3), "object");
    expect_refusal("/schedule/family", 3, "plan.json: schedule: \"family\" is 3, and should be a string");
    expect_refusal("/schedule/orders", {1}, "orders should be a list of texts");
    expect_refusal("/schedule/costs/communication", {"a"}, "communication should be a list of numbers");
    expect_refusal("/schedule/placement", "around", "placement \"around\" is not known");
}

TEST(PlanFile, DamagedFilesAreRefusedOrRead) {
    const std::string whole = read_text(golden);
    test::Mutator damage(4);
    for (int trial = 0; trial < 3000; ++trial) {
        try {
            parse_plan(damage(whole), "plan.json");
        } catch (const Error&) { // anything else would end the test
        }
    }
}

TEST(Plan, NamesBlocksThatTheModelHas) {
    Plan plan = unusual();
    EXPECT_NO_THROW(check_blocks(plan, 13));
    EXPECT_ERROR(check_blocks(plan, 12), "recompute names block 12 for stage 3, which has blocks 8 to 11");
    EXPECT_ERROR(check_blocks(plan, 8), "cuts of a model of 8 blocks are growing numbers from 1 to 7, not 3, 5, 8");
    plan.cuts.clear();
    plan.recompute.clear();
    EXPECT_ERROR(check_blocks(plan, 13), "there are 0 cuts, which make 1 stage");
}

TEST(Plan, NeedsNoCutsWhereThereIsNoModel) {
    Plan plan = unusual();
    plan.cuts.clear();
    plan.recompute.clear();
    plan.devices.reset();
    EXPECT_NO_THROW(check(plan));
    plan.schedule.reset();
    plan.mesh.pipe = 1;
    EXPECT_NO_THROW(check(plan));
    plan.cuts = {4};
    EXPECT_ERROR(check(plan), "there are 2 stages, but no schedule");
}

} // namespace
} // namespace tutti
