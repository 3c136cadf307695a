// A profile: it is written and read again, and asked what things take on its machine.
#include "costs/profile.h"

#include "fuzz.h"
#include "ops/operators.h"

#include <cmath>

using namespace tutti;
using namespace tutti::costs;
using namespace tutti::ops;

namespace {

void ask(const CostProfile& profile) {
    const MeasuredCost cost(profile, all_operators());
    auto check = [&](double seconds) { TUTTI_CHECK(std::isfinite(seconds) && seconds >= 0, "{}", seconds); };
    for (const int ranks : {1, 2, 3, profile.ranks}) {
        if (ranks > profile.ranks) continue;
        for (const Collective what : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast})
            check(cost.collective_seconds(what, {1 << 20}, {{ranks}}, 0));
        TUTTI_CHECK(cost.group_room(ranks).count >= 0, "{} ranks", ranks);
    }
    check(cost.message_seconds({1 << 20}, 0, 0, 0));
    check(cost.host_copy_seconds({1 << 20}, 0));
    check(cost.optimizer_seconds(1 << 20, 16, 0));
    check(cost.norm_seconds(1 << 20, 4, 0));
}

} // namespace

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        const CostProfile profile = parse_profile(fuzz::text_of(data, size), "profile.json");
        const std::string text = to_json(profile);
        TUTTI_CHECK(parse_profile(text, "again") == profile, "{}", text);
        ask(profile);
    });
    return 0;
}
