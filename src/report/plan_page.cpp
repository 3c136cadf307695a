#include "report/plan_page.h"

#include "report/html.h"
#include "report/page_data.h"

#include <algorithm>
#include <numeric>

namespace tutti::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_points = 5000; // that a page shows of what was searched

Json json_of(const ComparedPlan& plan) {
    return {{"name", plan.name},
            {"what", plan.what},
            {"fits", plan.fits},
            {"step", plan.step_seconds},
            {"tokens", plan.tokens_per_second},
            {"utilisation", plan.utilisation},
            {"bubble", plan.bubble},
            {"memory", plan.memory.count},
            {"margin", plan.margin.count},
            {"terms", plan.terms}};
}

Json json_of(const RankMemory& rank) {
    Json parts = Json::array();
    for (Bytes part : rank.parts) parts.push_back(part.count);
    return {{"name", rank.name}, {"parts", parts}, {"capacity", rank.capacity.count}};
}

// Which to show: the frontier, and of the others every n-th, so that as many are left as can be told apart.
std::vector<std::size_t> shown_of(const std::vector<SearchedPlan>& searched, const std::vector<std::size_t>& frontier) {
    std::vector<bool> shown(searched.size(), searched.size() <= most_points);
    const std::size_t step = searched.size() / most_points + 1;
    for (std::size_t i = 0; i < searched.size(); i += step) shown[i] = true;
    for (std::size_t index : frontier) shown[index] = true;
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < searched.size(); ++i)
        if (shown[i]) indices.push_back(i);
    return indices;
}

Json searched_json(const PlanReport& report) {
    const std::vector<SearchedPlan>& searched = report.searched;
    const std::vector<std::size_t> frontier = frontier_of(searched);
    std::vector<std::string> families;
    Json points = Json::array();
    for (std::size_t index : shown_of(searched, frontier)) {
        const SearchedPlan& plan = searched[index];
        auto family = std::ranges::find(families, plan.family);
        if (family == families.end()) family = families.insert(family, plan.family);
        points.push_back(Json::array({plan.step_seconds, plan.memory.count, family - families.begin(), plan.what}));
    }
    Json line = Json::array();
    for (std::size_t index : frontier)
        line.push_back(Json::array({searched[index].step_seconds, searched[index].memory.count}));
    return {{"evaluated", report.evaluated},
            {"count", searched.size()},
            {"families", families},
            {"points", points},
            {"frontier", line}};
}

Json cluster_json(const costs::Cluster& cluster, const std::vector<AssignedRank>& assignment) {
    Json nodes = Json::array(), kinds = Json::array(), levels = Json::array(), ranks = Json::array();
    for (const costs::NodeKind& kind : cluster.kinds)
        kinds.push_back(
            {{"device", kind.device.name}, {"devices", kind.devices}, {"memory", kind.device.memory.count}});
    for (std::size_t i = 1; i < cluster.levels.size(); ++i)
        levels.push_back({{"name", cluster.levels[i].name}, {"nodes", cluster.nodes_per_unit(static_cast<int>(i))}});
    for (const AssignedRank& rank : assignment) ranks.push_back(Json::array({rank.pipe, rank.data, rank.tensor}));
    return {{"text", cluster.nodes.empty() ? "" : costs::describe(cluster)},
            {"kinds", kinds},
            {"nodes", cluster.nodes},
            {"levels", levels},
            {"ranks", ranks}};
}

} // namespace

std::vector<std::size_t> frontier_of(std::span<const SearchedPlan> searched) {
    std::vector<std::size_t> order(searched.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        if (searched[a].step_seconds != searched[b].step_seconds)
            return searched[a].step_seconds < searched[b].step_seconds;
        return searched[a].memory < searched[b].memory;
    });
    std::vector<std::size_t> frontier;
    for (std::size_t index : order)
        if (frontier.empty() || searched[index].memory < searched[frontier.back()].memory) frontier.push_back(index);
    return frontier;
}

std::string plan_page(const PlanReport& report) {
    Json timelines = Json::array(), facts = Json::array(), plans = Json::array(), memory = Json::array(),
         scaling = Json::array();
    if (!report.timeline.rows.empty()) timelines.push_back(json_of(report.timeline));
    for (const auto& [name, value] : report.facts) facts.push_back(Json::array({name, value}));
    for (const ComparedPlan& plan : report.plans) plans.push_back(json_of(plan));
    for (const RankMemory& rank : report.memory) memory.push_back(json_of(rank));
    for (const ScalingPoint& point : report.scaling)
        scaling.push_back({{"devices", point.devices}, {"tokens", point.tokens_per_second}, {"what", point.what}});
    const Json plan = {{"title", report.title},
                       {"facts", facts},
                       {"notes", report.notes},
                       {"terms", report.terms},
                       {"plans", plans},
                       {"categories", report.categories},
                       {"memory", memory},
                       {"searched", searched_json(report)},
                       {"cluster", cluster_json(report.cluster, report.assignment)},
                       {"scaling", scaling}};
    return make_page(Json{{"timelines", timelines}, {"plan", plan}}, plan_template);
}

} // namespace tutti::report
