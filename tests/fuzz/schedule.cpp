// The schedule section of a plan file: it is evaluated, walked and drawn as `tutti simulate` does.
#include "plan/schedule_json.h"

#include "formats/json.h"
#include "fuzz.h"
#include "report/chrome_trace.h"
#include "report/terminal.h"
#include "schedule/check.h"
#include "schedule/evaluate.h"
#include "schedule/lower.h"
#include "simulate/simulate.h"

#include <cmath>

using namespace tutti;
using namespace tutti::formats;
using namespace tutti::report;
using namespace tutti::schedule;
using namespace tutti::simulate;

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        const PlannedSchedule planned = schedule_from_json(parse_json(fuzz::text_of(data, size), "f"), "f");
        const std::string text = schedule_to_json(planned).dump();
        TUTTI_CHECK(schedule_from_json(parse_json(text, "again"), "again") == planned, "{}", text);
        const Evaluation evaluation = evaluate(planned.schedule, planned.costs);
        TUTTI_CHECK(std::isfinite(evaluation.time) && evaluation.time >= 0, "{}", evaluation.time);
        TUTTI_CHECK(receives_posted(planned.schedule) > 0, "{}", text);
        const Simulation simulation = simulate::simulate(lower(planned.schedule, planned.costs));
        TUTTI_CHECK(std::abs(simulation.time - evaluation.time) <= 1e-9 * evaluation.time, "{} and {}", simulation.time,
                    evaluation.time);
        const Timeline timeline = make_timeline(planned.schedule, planned.costs, evaluation);
        TUTTI_CHECK(!terminal_picture(std::span(&timeline, 1), {}).empty(), "{}", text);
        TUTTI_CHECK(!chrome_trace(std::span(&timeline, 1)).empty(), "{}", text);
    });
    return 0;
}
