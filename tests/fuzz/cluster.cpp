// A cluster file: it is written and read again, and asked what things take on it.
#include "costs/cluster_file.h"
#include "costs/cost_model.h"
#include "fuzz.h"
#include "ops/operators.h"

#include <cmath>

using namespace tutti;
using namespace tutti::costs;
using namespace tutti::ops;

namespace {

void ask(const Cluster& cluster) {
    const RooflineCost cost(cluster, all_operators());
    const int levels = static_cast<int>(cluster.levels.size());
    auto check = [&](double seconds) { TUTTI_CHECK(std::isfinite(seconds) && seconds >= 0, "{}", seconds); };
    for (int kind = 0; kind < static_cast<int>(cluster.kinds.size()); ++kind) {
        for (const Collective what : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast})
            check(cost.collective_seconds(what, {1 << 20}, {{cluster.kinds[static_cast<std::size_t>(kind)].devices}},
                                          kind));
        for (int level = 0; level < levels; ++level) check(cost.message_seconds({1 << 20}, level, 0, kind));
        check(cost.host_copy_seconds({1 << 20}, kind));
        check(cost.optimizer_seconds(1 << 20, 16, kind));
    }
    const std::vector<ClusterDevice> devices = cluster.devices();
    TUTTI_CHECK(std::ssize(devices) == cluster.device_count(), "{}", devices.size());
    TUTTI_CHECK(cluster.level_between(devices.front(), devices.back()) < levels, "{} levels", levels);
    TUTTI_CHECK(!describe(cluster).empty(), "no words");
}

} // namespace

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        const Cluster cluster = parse_cluster(fuzz::text_of(data, size), "cluster.toml");
        const std::string text = to_toml(cluster);
        bool same = false;
        const bool read = fuzz::accepts([&] { same = parse_cluster(text, "again") == cluster; });
        TUTTI_CHECK(read && same, "{}", text);
        ask(cluster);
    });
    return 0;
}
