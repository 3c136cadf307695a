// Any schedule that flags can ask for: it is made, or refused, and what is made reads back from its file.
#include "formats/json.h"
#include "fuzz.h"
#include "plan/schedule_json.h"
#include "schedule/evaluate.h"
#include "schedule/families.h"

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>

using namespace tutti;
using namespace tutti::formats;
using namespace tutti::schedule;

namespace {

ScheduleParameters parameters_from(FuzzedDataProvider& bytes) {
    auto up_to = [&](int most) { return bytes.ConsumeIntegralInRange(0, most); };
    ScheduleParameters p;
    p.family = families()[bytes.ConsumeIntegralInRange<std::size_t>(0, families().size() - 1)].name;
    p.ranks = up_to(4);
    p.micro_batches = up_to(8);
    p.stages_per_rank = up_to(3);
    p.model_replicas = up_to(4);
    p.placement = static_cast<StagePlacement>(up_to(2));
    p.in_flight = up_to(9);
    p.split_backward = bytes.ConsumeBool();
    p.deferred_weight_gradients = up_to(4) - 1;
    p.group = up_to(5);
    for (int left = up_to(8); left > 0; --left) p.recompute.push_back(static_cast<Recompute>(up_to(2)));
    p.memory_cap = bytes.ConsumeBool() ? bytes.ConsumeFloatingPointInRange(0.0, 40.0) : 0;
    return p;
}

// Multiples of a quarter: many tasks end at the same time.
Costs costs_from(FuzzedDataProvider& bytes, const ScheduleParameters& resolved) {
    auto cost = [&] { return bytes.ConsumeIntegralInRange(0, 12) * 0.25; };
    Costs costs;
    for (int s = 0; s < resolved.stages(); ++s) {
        StageCosts& stage = costs.stages.emplace_back();
        for (double* one :
             {&stage.forward, &stage.backward, &stage.weight_gradient, &stage.recompute, &stage.activation,
              &stage.kept_after_backward, &stage.boundary, &stage.synchronise, &stage.update})
            *one = cost();
        stage.kept_after_backward = std::min(stage.kept_after_backward, stage.activation);
        stage.boundary = std::min(stage.boundary, stage.activation);
    }
    costs.communication = {cost()};
    costs.blocking = bytes.ConsumeBool();
    return costs;
}

} // namespace

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider bytes(data, size);
    fuzz::accepts([&] {
        const ScheduleParameters resolved = resolve(parameters_from(bytes));
        const Costs costs = costs_from(bytes, resolved);
        const PlannedSchedule planned{make_schedule(resolved, costs), costs};
        const std::string text = schedule_to_json(planned).dump();
        bool same = false;
        const bool read = fuzz::accepts([&] { same = schedule_from_json(parse_json(text, "f"), "f") == planned; });
        TUTTI_CHECK(read && same, "{}", text);
        TUTTI_CHECK(evaluate(planned.schedule, costs).time >= 0, "{}", text);
    });
    return 0;
}
