// A plan file: it is written and read again, and its schedule is walked.
#include "plan/plan.h"

#include "fuzz.h"
#include "simulate/simulate.h"

using namespace tutti;
using namespace tutti::simulate;

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        const Plan plan = parse_plan(std::string(fuzz::text_of(data, size)), "plan.json");
        check(plan);
        const std::string text = to_json(plan);
        TUTTI_CHECK(parse_plan(text, "again") == plan, "{}", text);
        const auto places = places_of(plan);
        TUTTI_CHECK(places.empty() || std::ssize(places) == plan.mesh.ranks(), "{}", places.size());
        fuzz::accepts([&] { check_blocks(plan, 4); });
        if (plan.schedule) TUTTI_CHECK(simulate::simulate(plan).time >= 0, "{}", text);
    });
    return 0;
}
