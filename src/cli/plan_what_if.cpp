#include "cli/plan_what_if.h"

#include "base/counted.h"
#include "base/error.h"
#include "cli/plan_report.h"
#include "formats/json.h"
#include "models/depth.h"
#include "planner/cluster_sizes.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <algorithm>

namespace tutti::cli {
namespace {

struct Row {
    std::string what;
    int devices = 0;
    std::int64_t global_batch = 0, layers = 0, parameters = 0;
    double tokens_per_second = 0, seconds = 0, utilisation = 0; // 0: nothing fits
    std::string plan = "nothing fits";

    bool fits() const { return seconds > 0; }
};

// One search after the other. What is known stays when it is to end early.
class Rows {
  public:
    // `searches`: how many there will be, where that is known.
    Rows(PlanWatch& watch, std::vector<Row>& rows, std::size_t searches = 0)
        : watch_(watch), rows_(rows), searches_(searches) {}

    // SearchStopped where it is to end before this one is known.
    Row& add(std::string what, const PlanRequest& request, const costs::Cluster& cluster) {
        const std::string number =
            searches_ > 0 ? fmt::format("{} of {}", rows_.size() + 1, searches_) : fmt::format("{}", rows_.size() + 1);
        Planned planned(request, cluster,
                        {.kept = 1, .listener = watch_.listener(fmt::format("{}, {}: ", number, what))});
        if (planned.result.stopped()) throw planner::SearchStopped{};
        Row& row = rows_.emplace_back(Row{
            .what = std::move(what), .devices = cluster.device_count(), .global_batch = request.workload.global_batch});
        row.layers = models::layers_of(request.source);
        row.parameters = planned.chain.all_parameters;
        if (!planned.result.fits()) return row;
        const planner::RankedPlan& best = planned.result.best();
        row.tokens_per_second = planned.model.tokens_per_second(best.cost.time);
        row.seconds = best.cost.time;
        row.utilisation = planned.model.utilisation(best.decisions, best.cost.time);
        row.plan = planner::describe(best.decisions, planned.chain.blocks());
        return row;
    }

  private:
    PlanWatch& watch_;
    std::vector<Row>& rows_;
    std::size_t searches_;
};

void add_clusters(const PlanRequest& request, const costs::Cluster& cluster, bool nodes, PlanWatch& watch,
                  std::vector<Row>& rows) {
    std::vector<costs::Cluster> sizes = planner::sizes_around(cluster);
    if (nodes && cluster.nodes.size() == 1) // Error where no link would join them
        sizes = {cluster, planner::with_node_count(cluster, 2), planner::with_node_count(cluster, 4)};
    Rows searched(watch, rows, sizes.size());
    for (const costs::Cluster& size : sizes) searched.add(counted(size.device_count(), "device"), request, size);
}

void add_batches(const PlanRequest& request, const costs::Cluster& cluster, PlanWatch& watch, std::vector<Row>& rows) {
    const std::int64_t batch = request.workload.global_batch;
    std::vector<std::int64_t> sizes;
    for (std::int64_t size = std::max<std::int64_t>(1, batch / 4); size <= 4 * batch; size *= 2) sizes.push_back(size);
    Rows searched(watch, rows, sizes.size());
    for (const std::int64_t size : sizes) {
        PlanRequest other = request;
        other.workload.global_batch = size;
        searched.add(fmt::format("global batch {}", size), other, cluster);
    }
}

// Twice as many layers until nothing fits, or half as many until something does; then the middle of what is between.
void add_depths(const PlanRequest& request, const costs::Cluster& cluster, PlanWatch& watch, std::vector<Row>& rows) {
    constexpr std::int64_t most = 1024;
    const std::int64_t layers = models::layers_of(request.source);
    if (layers < 1) fail("{} does not say how many layers it has", request.name);
    Rows searched(watch, rows);
    auto fits = [&](std::int64_t count) {
        PlanRequest other = request;
        other.source = models::with_layers(request.source, count);
        Row& row = searched.add(counted(count, "layer"), other, cluster);
        row.what += fmt::format(", {} parameters", terminal::in_words(static_cast<double>(row.parameters)));
        return row.fits();
    };
    std::int64_t low = layers, high = layers;
    if (fits(layers)) {
        do {
            low = high;
            high *= 2;
        } while (high <= most && fits(high));
    } else {
        do {
            high = low;
            low /= 2;
        } while (low >= 1 && !fits(low));
    }
    while (low >= 1 && high - low > 1 && high <= most) {
        const std::int64_t middle = low + (high - low) / 2;
        (fits(middle) ? low : high) = middle;
    }
}

void add_rows(const PlanRequest& request, const costs::Cluster& cluster, const std::string& what, PlanWatch& watch,
              std::vector<Row>& rows) {
    if (what == "nodes" || what == "devices")
        add_clusters(request, cluster, what == "nodes", watch, rows);
    else if (what == "global-batch")
        add_batches(request, cluster, watch, rows);
    else if (what == "layers")
        add_depths(request, cluster, watch, rows);
    else
        fail("--what-if is {}; it varies nodes, devices, global-batch or layers", formats::in_quotes(what));
}

std::string table_of(const std::vector<Row>& rows) {
    std::vector<std::vector<std::string>> table = {{"", "tokens/s", "step", "MFU", "", "plan"}};
    std::vector<Seconds> times;
    double most = 0;
    for (const Row& row : rows) {
        times.push_back({row.seconds});
        most = std::max(most, row.tokens_per_second);
    }
    const std::vector<std::string> steps = terminal::in_one_unit(times);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Row& row = rows[i];
        if (row.fits())
            table.push_back({row.what, terminal::with_commas(std::llround(row.tokens_per_second)), steps[i],
                             fmt::format("{:.1f}%", 100 * row.utilisation), bar(row.tokens_per_second, most),
                             row.plan});
        else
            table.push_back({row.what, "-", "-", "-", "", row.plan});
    }
    constexpr std::size_t right[] = {1, 2, 3};
    return terminal::lay_out(table, right);
}

std::string json_of(const std::vector<Row>& rows) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
        json.push_back({{"what", row.what},
                        {"fits", row.fits()},
                        {"devices", row.devices},
                        {"global_batch", row.global_batch},
                        {"layers", row.layers},
                        {"parameters", row.parameters}});
        if (!row.fits()) continue;
        json.back()["tokens_per_second"] = row.tokens_per_second;
        json.back()["step_seconds"] = row.seconds;
        json.back()["utilisation"] = row.utilisation;
        json.back()["plan"] = row.plan;
    }
    return json.dump(2) + '\n';
}

} // namespace

int what_if(const PlanRequest& request, const costs::Cluster& cluster, const std::string& what, bool as_json,
            PlanWatch& watch) {
    std::vector<Row> rows;
    std::string left_out;
    try {
        add_rows(request, cluster, what, watch, rows);
    } catch (const planner::SearchStopped&) {
        left_out = fmt::format("--what-if {} after {:.1f} s: what was not known by then is left out", watch.how(),
                               watch.seconds());
    }
    watch.clear();
    if (rows.empty()) fail("--what-if {} after {:.1f} s, before anything was known", watch.how(), watch.seconds());
    std::ranges::stable_sort(rows, {}, &Row::layers); // those of other depths come in the order of a bisection
    terminal::print(as_json ? json_of(rows) : table_of(rows));
    if (!left_out.empty()) terminal::warn(left_out);
    return 0;
}

std::vector<report::ScalingPoint> scaling_curve(const PlanRequest& request, Planned& chosen, PlanWatch& watch) {
    std::vector<report::ScalingPoint> curve;
    auto add = [&](Planned& planned) {
        report::ScalingPoint point{.devices = planned.cluster.device_count(), .what = "nothing fits"};
        if (planned.result.fits()) {
            point.tokens_per_second = planned.model.tokens_per_second(planned.result.best().cost.time);
            point.what = planner::describe(planned.result.best().decisions, planned.chain.blocks());
        }
        curve.push_back(std::move(point));
    };
    const std::vector<costs::Cluster> sizes = planner::sizes_around(chosen.cluster);
    for (const costs::Cluster& size : sizes) {
        if (watch.is_over()) break;
        if (size == chosen.cluster) {
            add(chosen);
            continue;
        }
        const std::string doing = fmt::format("curve over devices, {} of {}, {}: ", curve.size() + 1, sizes.size(),
                                              counted(size.device_count(), "device"));
        Planned planned(request, size, {.kept = 1, .listener = watch.listener(doing)});
        if (planned.result.stopped()) break;
        add(planned);
    }
    return curve;
}

} // namespace tutti::cli
