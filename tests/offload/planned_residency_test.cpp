// What a plan records of a residency is enough to lay it out again, and a record that does not fit is refused.
#include "offload/planned_residency.h"

#include "base/error.h"
#include "compile/compile.h"
#include "models/model.h"
#include "offload/model_data_size.h"
#include "offload/offload_plan.h"
#include "program/update_places.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti {

using namespace models;
using namespace offload;
namespace {

struct Programs {
    Program training, evaluation;
};

Programs programs(std::int64_t chunk_elements) {
    Plan plan;
    plan.workload = {.sequence = 16, .global_batch = 4, .micro_batch = 2};
    plan.precision = {.compute = DType::bfloat16};
    plan.chunk_elements = chunk_elements;
    const Model model = open_model("llama-tiny").build({2, 16, DType::bfloat16});
    const compile::Compiled compiled = compile::compile(model.graph, plan, 0);
    return {compiled.program, compile::compile_evaluation(model.graph, plan, 0, compiled.ownership)};
}

OffloadSpeed speed(double host_updates) {
    return {.seconds = [=](const Instruction& one,
                           const Task&) { return one.lane == Lane::host ? 1 / host_updates : 1e-6; },
            .host = {.latency = 1e-5, .in = 1e9, .out = 1e9},
            .disk = CopySpeed{.in = 1e9, .out = 1e9}};
}

// The program with its updates where the record wants them, as compile() has it.
Program placed(Program program, const PlannedResidency& record) {
    UpdatePlaces(program).place({record.host_updates.begin(), record.host_updates.end()}, record.later_updates);
    return program;
}

TEST(PlannedResidency, IsLaidOutAgainAsItWas) {
    std::mt19937 random(19);
    int with_host_updates = 0, later = 0, on_disk = 0;
    for (int i = 0; i < 24; ++i) {
        const Programs all = programs(20'000 + static_cast<std::int64_t>(random() % 60'000));
        const Bytes data = model_data(all.training);
        const Bytes device{data.count * static_cast<std::int64_t>(35 + random() % 60) / 100};
        const bool disk = random() % 2 == 0;
        const OffloadLimits limits{.device = device,
                                   .host = disk ? Bytes{data.count / 3} : data,
                                   .free = data,
                                   .has_disk = disk,
                                   .prefetch = random() % 4 != 0};
        const OffloadPlan plan =
            plan_offload(all.training, &all.evaluation, limits, speed(random() % 2 == 0 ? 1e4 : 1e8));
        const PlannedResidency record = recorded(plan);
        const OffloadPlan again =
            follow(record, placed(all.training, record), &all.evaluation, {.prefetch = limits.prefetch});
        EXPECT_TRUE(again.training.residency == plan.training.residency) << i;
        EXPECT_TRUE(again.evaluation->residency == plan.evaluation->residency) << i;
        EXPECT_TRUE(again.backing == plan.backing) << i;
        EXPECT_EQ(again.device, plan.device);
        EXPECT_EQ(again.always, plan.always);
        EXPECT_EQ(again.updates, plan.updates);
        EXPECT_EQ(again.updates_later, plan.updates_later);
        EXPECT_EQ(recorded(again), record);
        with_host_updates += !record.host_updates.empty();
        later += record.later_updates;
        on_disk += plan.backing.disk.count > 0;
    }
    EXPECT_GT(with_host_updates, 0);
    EXPECT_GT(later, 0);
    EXPECT_GT(on_disk, 0);
}

TEST(PlannedResidency, IsTextAndComesBack) {
    const ResidentIntervals several{{Region::moments2, 7}, BackingTier::disk, false, {{0, 3}, {12, 40}}},
        always{{Region::weights, 0}, BackingTier::device, true, {}},
        none{{Region::offloaded, 2}, BackingTier::host, false, {}};
    EXPECT_EQ(to_text(several), "moments2 7 in disk: 0-3 12-40");
    EXPECT_EQ(to_text(always), "weights 0 in device: always");
    for (const ResidentIntervals& one : {several, always, none}) EXPECT_EQ(parse_resident(to_text(one)), one);
    for (const char* text :
         {"", "weights", "weights 1", "weights 1 in", "weights 1 in host", "stash 1 in host:", "weights -1 in host:",
          "weights 1 on host:", "weights 1 in attic:", "weights 1 in host: 1", "weights 1 in host: 1-",
          "weights 1 in host: -1", "weights 1 in host: 1-2-3", "weights 1 in host: always 1-2",
          "weights 1 in host: 1-99999999999", "weights 1x in host: 1-2"})
        EXPECT_FALSE(parse_resident(text)) << text;
}

// What somebody has edited by hand, or what was made for another model.
TEST(PlannedResidency, ThatDoesNotFitIsRefused) {
    const Programs all = programs(50'000);
    const Bytes data = model_data(all.training);
    const OffloadLimits limits{.device = {data.count / 2}, .host = data, .free = data};
    const PlannedResidency record = recorded(plan_offload(all.training, nullptr, limits, speed(1e8)));
    const Program training = placed(all.training, record);
    auto refusal = [&](auto change) {
        PlannedResidency changed = record;
        change(changed.training);
        return test::error_of([&] { follow(changed, training, nullptr, {}); });
    };
    auto first_with = [](PlannedStep& step, auto is_wanted) -> ResidentIntervals& {
        return *std::ranges::find_if(step.residents, is_wanted);
    };
    auto comes = [](const ResidentIntervals& one) { return one.tier == BackingTier::host && !one.intervals.empty(); };
    EXPECT_NE(refusal([](PlannedStep& step) { step.residents.pop_back(); }), "(no error)");
    EXPECT_NE(refusal([](PlannedStep& step) { std::swap(step.residents[0], step.residents[1]); }), "(no error)");
    EXPECT_NE(refusal([](PlannedStep& step) { step.capacity = {step.capacity.count / 4}; }), "(no error)");
    EXPECT_NE(refusal([&](PlannedStep& step) { first_with(step, comes).intervals.pop_back(); }), "(no error)");
    EXPECT_NE(refusal([&](PlannedStep& step) { first_with(step, comes).tier = BackingTier::device; }), "(no error)");
    EXPECT_NE(refusal([&](PlannedStep& step) { first_with(step, comes).intervals[0].first += 100000; }), "(no error)");
    EXPECT_NE(refusal([&](PlannedStep& step) {
                  std::vector<Interval>& all = first_with(step, comes).intervals;
                  all.resize(1000, all.front());
              }),
              "(no error)");
    // Random damage never gets past: an Error, or a plan that holds.
    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) {
        PlannedResidency changed = record;
        ResidentIntervals& one = changed.training.residents[random() % changed.training.residents.size()];
        switch (random() % 4) {
        case 0: one.always = !one.always; break;
        case 1: one.tier = static_cast<BackingTier>(random() % 3); break;
        case 2:
            if (!one.intervals.empty())
                one.intervals[random() % one.intervals.size()].last = static_cast<int>(random() % 200);
            break;
        default:
            if (!one.intervals.empty()) one.intervals.erase(one.intervals.begin());
        }
        try {
            const OffloadPlan plan = follow(changed, training, nullptr, {});
            verify(plan.training.step.problem, plan.training.residency);
        } catch (const Error&) {
        }
    }
}

} // namespace
} // namespace tutti
