#include "cli/plan_report.h"

#include "planner/evaluate/activations.h"
#include "planner/explanation.h"
#include "terminal/shown.h"
#include "terminal/words.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tutti::cli {
namespace {

Bytes whole_bytes(double bytes) { return {static_cast<std::int64_t>(bytes)}; }

std::vector<double> terms_of(const planner::StepTerms& terms) {
    std::vector<double> values;
    for (const auto& [name, seconds] : named_terms(terms)) values.push_back(seconds);
    return values;
}

// What is in host memory most of the time: the optimizer's states first, since they are used least.
planner::RankBytes on_device(planner::RankBytes bytes) {
    for (double* part : {&bytes.moments, &bytes.master, &bytes.gradients, &bytes.weights}) {
        const double taken = std::min(*part, bytes.elsewhere);
        *part -= taken;
        bytes.elsewhere -= taken;
    }
    return bytes;
}

report::ComparedPlan compared(planner::PlanModel& model, const planner::RankedPlan& plan, std::string name) {
    return {.name = std::move(name),
            .what = planner::describe(plan.decisions, model.chain().blocks()),
            .step_seconds = plan.cost.time,
            .tokens_per_second = model.tokens_per_second(plan.cost.time),
            .utilisation = model.utilisation(plan.decisions, plan.cost.time),
            .bubble = plan.cost.bubble,
            .memory = whole_bytes(plan.cost.tightest().total()),
            .margin = whole_bytes(plan.cost.tightest().margin()),
            .terms = terms_of(plan.cost.terms)};
}

std::string plans_table(const std::vector<report::ComparedPlan>& plans) {
    std::vector<std::vector<std::string>> table = {
        {"", "step", "tokens/s", "MFU", "bubble", "exposed", "memory", "left", "plan"}};
    std::vector<Seconds> steps;
    std::vector<Bytes> memory, margins;
    for (const report::ComparedPlan& plan : plans) {
        steps.push_back({plan.step_seconds});
        memory.push_back(plan.memory);
        margins.push_back(plan.margin);
    }
    const auto step_texts = terminal::in_one_unit(steps);
    const auto memory_texts = terminal::in_one_unit(memory), margin_texts = terminal::in_one_unit(margins);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const report::ComparedPlan& plan = plans[i];
        const double exposed = plan.terms[2] + plan.terms[4] + plan.terms[6];
        table.push_back({plan.name, step_texts[i], terminal::with_commas(std::llround(plan.tokens_per_second)),
                         fmt::format("{:.1f}%", 100 * plan.utilisation), fmt::format("{:.1f}%", 100 * plan.bubble),
                         fmt::format("{:.1f}%", 100 * exposed / plan.step_seconds), memory_texts[i], margin_texts[i],
                         plan.what});
    }
    constexpr std::size_t right[] = {1, 2, 3, 4, 5, 6, 7};
    return terminal::lay_out(table, right);
}

// Of many ranks some; a category that nobody has is left out.
std::string memory_table(const report::PlanReport& report) {
    std::vector<const report::RankMemory*> ranks;
    const std::size_t step = std::max<std::size_t>(1, report.memory.size() / 8);
    for (std::size_t rank = 0; rank < report.memory.size(); rank += step) ranks.push_back(&report.memory[rank]);
    std::vector<std::vector<std::string>> table = {{"memory"}};
    for (const report::RankMemory* rank : ranks) table.push_back({rank->name});
    std::vector<Bytes> left;
    for (const report::RankMemory* rank : ranks) left.push_back(rank->capacity);
    auto add = [&](const std::string& name, const std::vector<Bytes>& amounts) {
        table[0].push_back(name);
        const auto texts = terminal::in_one_unit(amounts);
        for (std::size_t i = 0; i < texts.size(); ++i) table[i + 1].push_back(texts[i]);
    };
    for (std::size_t category = 0; category < report.categories.size(); ++category) {
        std::vector<Bytes> amounts;
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            amounts.push_back(ranks[i]->parts[category]);
            left[i] = left[i] - amounts.back();
        }
        if (std::ranges::any_of(amounts, [](Bytes amount) { return amount.count > 0; }))
            add(report.categories[category], amounts);
    }
    add("left", left);
    std::vector<std::size_t> right(table[0].size() - 1);
    std::iota(right.begin(), right.end(), 1);
    return terminal::lay_out(table, right);
}

// Throughput over devices, with a bar for each.
std::string scaling_table(const std::vector<report::ScalingPoint>& scaling) {
    std::vector<std::vector<std::string>> table = {{"devices", "tokens/s", "per device", "", "plan"}};
    double most = 0;
    for (const report::ScalingPoint& point : scaling) most = std::max(most, point.tokens_per_second);
    for (const report::ScalingPoint& point : scaling) {
        const bool fits = point.tokens_per_second > 0;
        table.push_back({terminal::with_commas(point.devices),
                         fits ? terminal::with_commas(std::llround(point.tokens_per_second)) : "-",
                         fits ? terminal::with_commas(std::llround(point.tokens_per_second / point.devices)) : "-",
                         bar(point.tokens_per_second, most), point.what});
    }
    constexpr std::size_t right[] = {0, 1, 2};
    return terminal::lay_out(table, right);
}

// The picture of the chosen plan, with the table's own numbers: its bubble, and the activations that its memory has
// room for.
report::Timeline timeline_of(planner::PlanModel& model, const planner::RankedPlan& best,
                             const PlannedSchedule& planned) {
    const schedule::Evaluation evaluation = schedule::evaluate(planned.schedule, planned.costs);
    report::Timeline timeline = report::make_timeline(planned.schedule, planned.costs, evaluation);
    timeline.bubble = best.cost.bubble;
    timeline.facts.emplace_back("waiting for messages and gradients",
                                fmt::format("{:.1f}%", 100 * best.cost.terms.communication / best.cost.time));
    const auto held = planner::activations_held(model, best.decisions, planned.schedule, evaluation);
    timeline.peak = 0;
    for (std::size_t rank = 0; rank < held.size(); ++rank) {
        report::TimelineRow& row = timeline.rows[rank];
        row.held.clear();
        for (const planner::HeldFrom& point : held[rank]) row.held.push_back({point.time, point.bytes});
        row.held.push_back({timeline.time, held[rank].back().bytes});
        row.peak = static_cast<double>(whole_bytes(best.cost.ranks[rank].activations).count);
        timeline.peak = std::max(timeline.peak, row.peak);
    }
    return timeline;
}

// What a plan came to with the order that its file has, in the place of what led the search to it.
void settle(std::vector<report::SearchedPlan>& searched, report::SearchedPlan plan) {
    report::SearchedPlan* nearest = nullptr;
    for (report::SearchedPlan& one : searched)
        if (one.what == plan.what && one.family == plan.family &&
            (nearest == nullptr ||
             std::abs(one.step_seconds - plan.step_seconds) < std::abs(nearest->step_seconds - plan.step_seconds)))
            nearest = &one;
    if (nearest != nullptr)
        *nearest = std::move(plan);
    else
        searched.push_back(std::move(plan));
}

} // namespace

std::string bar(double value, double most) {
    std::string text;
    for (long n = 0; most > 0 && n < std::lround(24 * value / most); ++n) text += "█";
    return text;
}

std::vector<std::pair<const char*, double>> named_terms(const planner::StepTerms& terms) {
    return {{"computing", terms.compute},
            {"recomputing", terms.recompute},
            {"collectives", terms.tensor},
            {"bubble", terms.bubble},
            {"messages and gradients", terms.communication},
            {"optimizer", terms.optimizer},
            {"model data", terms.offloading}};
}

std::string host_memory_text(const planner::PlanCost& cost) {
    return fmt::format("{} for model data of the rank with most of it; a tenth of a host's is left to others",
                       to_string(whole_bytes(cost.most_on_host())));
}

std::vector<std::pair<const char*, Bytes>> named_parts(const planner::RankBytes& all) {
    const planner::RankBytes bytes = on_device(all);
    return {{"weights", whole_bytes(bytes.weights)},         {"gradients", whole_bytes(bytes.gradients)},
            {"master", whole_bytes(bytes.master)},           {"moments", whole_bytes(bytes.moments)},
            {"activations", whole_bytes(bytes.activations)}, {"buffers", whole_bytes(bytes.buffers)},
            {"kept free", whole_bytes(bytes.kept_free)}};
}

report::PlanReport report_of(const std::string& model_name, planner::PlanModel& model,
                             const planner::JointResult& result) {
    const planner::RankedPlan& best = result.best();
    report::PlanReport report;
    report.title = fmt::format("{} on {}", model_name,
                               model.cluster().name.empty() ? costs::describe(model.cluster()) : model.cluster().name);
    for (const auto& [name, seconds] : named_terms(best.cost.terms)) report.terms.emplace_back(name);
    auto is_by_hand = [&](const planner::RankedPlan& plan) {
        return std::ranges::any_of(result.by_hand,
                                   [&](const planner::RankedPlan& one) { return one.decisions == plan.decisions; });
    };
    for (std::size_t i = 0; i < result.search.best.size(); ++i)
        if (i == 0 || !is_by_hand(result.search.best[i])) // those follow with their names
            report.plans.push_back(compared(model, result.search.best[i],
                                            i > 0              ? fmt::format("{}", report.plans.size() + 1)
                                            : result.stopped() ? "best so far" // it may be one by hand
                                                               : "joint"));
    for (const auto* others : {&result.by_hand, &result.compared})
        for (const planner::RankedPlan& plan : *others) report.plans.push_back(compared(model, plan, plan.name));
    const Plan plan = planner::plan_of(model, best.decisions);
    report.facts = {
        {"model", fmt::format("{} ({} parameters)", model_name,
                              terminal::in_words(static_cast<double>(model.chain().all_parameters)))},
        {"cluster", costs::describe(model.cluster())},
        {"step", fmt::format("{} sequences of {} tokens", model.workload().global_batch, model.workload().sequence)},
        {"plan", planner::describe(best.decisions, model.chain().blocks())},
        {"layout", planner::describe(model.cluster(), best.decisions.layout)}};
    if (best.decisions.offload) report.facts.push_back({"host memory", host_memory_text(best.cost)});
    report.notes = planner::reasons(model, result);
    if (plan.schedule) report.timeline = timeline_of(model, best, *plan.schedule);
    for (const auto& [name, bytes] : named_parts({})) report.categories.emplace_back(name);
    for (std::size_t rank = 0; rank < best.cost.ranks.size(); ++rank) {
        const planner::RankBytes& bytes = best.cost.ranks[rank];
        report::RankMemory memory{.name = fmt::format("pipe {}", rank), .capacity = whole_bytes(bytes.capacity)};
        for (const auto& [name, part] : named_parts(bytes)) memory.parts.push_back(part);
        report.memory.push_back(std::move(memory));
    }
    report.evaluated = result.search.progress.plans;
    for (const planner::SearchedPlan& point : result.search.searched)
        report.searched.push_back({point.time, whole_bytes(point.memory), point.family, point.what});
    for (const auto* others : {&result.by_hand, &result.compared, &result.search.best})
        for (const planner::RankedPlan& one : *others)
            settle(report.searched,
                   {one.cost.time, whole_bytes(one.cost.tightest().total()), one.decisions.schedule.family,
                    planner::describe(one.decisions, model.chain().blocks())});
    report.cluster = model.cluster();
    report.assignment.resize(static_cast<std::size_t>(model.cluster().device_count()));
    const std::vector<int> devices = planner::devices_of(model.cluster(), best.decisions.mesh(), best.decisions.layout);
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        const sharding::MeshPlace place = best.decisions.mesh().place_of(static_cast<int>(rank));
        report.assignment[static_cast<std::size_t>(devices[rank])] = {place.pipe, place.data, place.tensor};
    }
    return report;
}

std::string text_of(const report::PlanReport& report, planner::PlanModel& model, const planner::JointResult& result,
                    const PlanSeconds& seconds) {
    std::string text = terminal::name_to_show(report.title) + "\n\n";
    text += plans_table(report.plans) + '\n' + memory_table(report) + '\n';
    if (!report.scaling.empty()) text += scaling_table(report.scaling) + '\n';
    std::vector<terminal::Definition> facts;
    for (const auto& [name, value] : report.facts) facts.push_back({name, {value}});
    text += terminal::define(facts, 10000) + '\n';
    for (const std::string& note : report.notes) text += terminal::name_to_show(note) + '\n';
    const planner::SearchProgress& progress = result.search.progress;
    text += fmt::format("{} plans were evaluated, and {} small stages compiled, in {:.1f} s",
                        terminal::with_commas(static_cast<std::int64_t>(report.evaluated)), model.segments().compiled(),
                        seconds.search);
    if (seconds.curve > 0) text += fmt::format(", and the curve over devices took {:.1f} s more", seconds.curve);
    if (progress.bound > 0) // a search that was stopped early has none
        text += fmt::format("; no plan of this model can be faster than {}", to_string(Seconds{progress.bound}));
    text += ".\n";
    return text;
}

nlohmann::ordered_json json_of(const report::PlanReport& report, planner::PlanModel& model,
                               const planner::JointResult& result, const PlanSeconds& seconds) {
    using Json = nlohmann::ordered_json;
    auto terms = [&](const std::vector<double>& values) {
        Json json = Json::object();
        for (std::size_t i = 0; i < values.size(); ++i) json[report.terms[i]] = values[i];
        return json;
    };
    Json json{{"title", report.title}};
    for (const auto& [name, value] : report.facts) json[name] = value;
    json["plans"] = Json::array();
    for (const report::ComparedPlan& plan : report.plans)
        json["plans"].push_back({{"name", plan.name},
                                 {"plan", plan.what},
                                 {"step_seconds", plan.step_seconds},
                                 {"tokens_per_second", plan.tokens_per_second},
                                 {"utilisation", plan.utilisation},
                                 {"bubble", plan.bubble},
                                 {"memory", plan.memory.count},
                                 {"margin", plan.margin.count},
                                 {"terms", terms(plan.terms)}});
    json["memory"] = Json::array();
    for (const report::RankMemory& rank : report.memory) {
        Json one{{"rank", rank.name}};
        for (std::size_t i = 0; i < rank.parts.size(); ++i) one[report.categories[i]] = rank.parts[i].count;
        one["capacity"] = rank.capacity.count;
        json["memory"].push_back(std::move(one));
    }
    if (!report.scaling.empty()) {
        json["scaling"] = Json::array();
        for (const report::ScalingPoint& point : report.scaling)
            json["scaling"].push_back(
                {{"devices", point.devices}, {"tokens_per_second", point.tokens_per_second}, {"plan", point.what}});
    }
    json["notes"] = report.notes;
    json["search"] = {{"plans", report.evaluated},
                      {"compiled", model.segments().compiled()},
                      {"bound_seconds", result.search.progress.bound},
                      {"seconds", seconds.search},
                      {"stopped", result.stopped()}};
    if (seconds.curve > 0) json["search"]["curve_seconds"] = seconds.curve;
    return json;
}

} // namespace tutti::cli
