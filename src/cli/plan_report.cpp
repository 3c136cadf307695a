#include "cli/plan_report.h"

#include "cli/words.h"

#include <algorithm>

namespace tutti::cli {
namespace {

Bytes whole_bytes(double bytes) { return {static_cast<std::int64_t>(bytes)}; }

std::vector<double> terms_of(const StepTerms& terms) {
    return {terms.compute, terms.recompute, terms.tensor, terms.bubble, terms.exchange, terms.optimizer};
}

ComparedPlan compared(PlanModel& model, const RankedPlan& plan, std::string name) {
    return {.name = std::move(name),
            .what = describe(plan.point),
            .step_seconds = plan.cost.time,
            .tokens_per_second = model.tokens_per_second(plan.cost.time),
            .utilisation = model.utilisation(plan.point, plan.cost.time),
            .bubble = plan.cost.bubble,
            .memory = whole_bytes(plan.cost.tightest().total()),
            .margin = whole_bytes(plan.cost.tightest().margin()),
            .terms = terms_of(plan.cost.terms)};
}

std::vector<std::string> row_of(const ComparedPlan& plan) {
    const double exposed = plan.terms[2] + plan.terms[4];
    return {plan.name,
            to_string(Seconds{plan.step_seconds}),
            with_commas(std::llround(plan.tokens_per_second)),
            fmt::format("{:.1f}%", 100 * plan.utilisation),
            fmt::format("{:.1f}%", 100 * plan.bubble),
            fmt::format("{:.1f}%", 100 * exposed / plan.step_seconds),
            to_string(plan.memory),
            to_string(plan.margin),
            plan.what};
}

} // namespace

PlanReport report_of(const std::string& model_name, PlanModel& model, const JointResult& result) {
    const RankedPlan& best = result.best();
    PlanReport report;
    report.title = fmt::format("{} on {}", model_name,
                               model.cluster().name.empty() ? describe(model.cluster()) : model.cluster().name);
    report.terms = {"computing", "recomputing", "collectives", "bubble", "messages and gradients", "optimizer"};
    for (std::size_t i = 0; i < result.search.best.size(); ++i)
        report.plans.push_back(compared(model, result.search.best[i], i == 0 ? "joint" : fmt::format("{}", i + 1)));
    for (const auto* others : {&result.by_hand, &result.compared})
        for (const RankedPlan& plan : *others) report.plans.push_back(compared(model, plan, plan.name));
    const Plan plan = plan_of(model, best.point);
    report.facts = {
        {"model", fmt::format("{} ({} parameters)", model_name,
                              short_number(static_cast<double>(model.chain().all_parameters)))},
        {"cluster", describe(model.cluster())},
        {"step", fmt::format("{} sequences of {} tokens", model.workload().global_batch, model.workload().sequence)},
        {"plan", describe(best.point)},
        {"layout", describe(model.cluster(), best.point.layout)}};
    report.notes = reasons(model, result);
    if (plan.schedule) {
        const PlannedSchedule& planned = *plan.schedule;
        report.timeline = make_timeline(planned.schedule, planned.costs, evaluate(planned.schedule, planned.costs));
    }
    report.categories = {"weights", "gradients", "master", "moments", "activations", "buffers", "kept free"};
    for (std::size_t rank = 0; rank < best.cost.ranks.size(); ++rank) {
        const RankBytes& bytes = best.cost.ranks[rank];
        RankMemory memory{.name = fmt::format("pipe {}", rank), .capacity = whole_bytes(bytes.capacity)};
        for (double part : {bytes.weights, bytes.gradients, bytes.master, bytes.moments, bytes.activations,
                            bytes.buffers, bytes.kept_free})
            memory.parts.push_back(whole_bytes(part));
        report.memory.push_back(std::move(memory));
    }
    for (const SearchedPoint& point : result.search.searched)
        report.searched.push_back({point.time, whole_bytes(point.memory), point.family, point.what});
    report.cluster = model.cluster();
    report.assignment.resize(static_cast<std::size_t>(model.cluster().device_count()));
    const std::vector<int> devices = devices_of(model.cluster(), best.point.mesh(), best.point.layout);
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        const MeshPlace place = best.point.mesh().place_of(static_cast<int>(rank));
        report.assignment[static_cast<std::size_t>(devices[rank])] = {place.pipe, place.data, place.tensor};
    }
    return report;
}

std::string text_of(const PlanReport& report, PlanModel& model, const JointResult& result, double seconds) {
    std::string text = report.title + "\n\n";
    std::vector<std::vector<std::string>> table = {
        {"", "step", "tokens/s", "MFU", "bubble", "exposed", "memory", "left", "plan"}};
    for (const ComparedPlan& plan : report.plans) table.push_back(row_of(plan));
    constexpr std::size_t right[] = {1, 2, 3, 4, 5, 6, 7};
    text += lay_out(table, right) + '\n';
    std::vector<std::vector<std::string>> memory = {{"memory"}};
    for (const std::string& category : report.categories) memory[0].push_back(category);
    memory[0].push_back("left");
    const std::size_t ranks = report.memory.size(), step = std::max<std::size_t>(1, ranks / 8);
    for (std::size_t rank = 0; rank < ranks; rank += step) {
        const RankMemory& one = report.memory[rank];
        std::vector<std::string> row = {one.name};
        for (Bytes part : one.parts) row.push_back(to_string(part));
        row.push_back(to_string(whole_bytes(result.best().cost.ranks[rank].margin())));
        memory.push_back(std::move(row));
    }
    constexpr std::size_t all[] = {1, 2, 3, 4, 5, 6, 7, 8};
    text += lay_out(memory, all) + '\n';
    std::vector<Definition> facts;
    for (const auto& [name, value] : report.facts) facts.push_back({name, {value}});
    text += define(facts, 10000) + '\n';
    for (const std::string& note : report.notes) text += note + '\n';
    const SearchProgress& progress = result.search.progress;
    text += fmt::format("{} plans were evaluated, and {} small stages compiled, in {:.1f} s; no plan of this model can "
                        "be faster than {}.\n",
                        with_commas(static_cast<std::int64_t>(progress.plans)), model.segments().compiled(), seconds,
                        to_string(Seconds{progress.bound}));
    return text;
}

nlohmann::ordered_json json_of(const PlanReport& report, PlanModel& model, const JointResult& result, double seconds) {
    using Json = nlohmann::ordered_json;
    auto terms = [&](const std::vector<double>& values) {
        Json json = Json::object();
        for (std::size_t i = 0; i < values.size(); ++i) json[report.terms[i]] = values[i];
        return json;
    };
    Json json{{"title", report.title}};
    for (const auto& [name, value] : report.facts) json[name] = value;
    json["plans"] = Json::array();
    for (const ComparedPlan& plan : report.plans)
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
    for (const RankMemory& rank : report.memory) {
        Json one{{"rank", rank.name}};
        for (std::size_t i = 0; i < rank.parts.size(); ++i) one[report.categories[i]] = rank.parts[i].count;
        one["capacity"] = rank.capacity.count;
        json["memory"].push_back(std::move(one));
    }
    json["notes"] = report.notes;
    json["search"] = {{"plans", result.search.progress.plans},
                      {"compiled", model.segments().compiled()},
                      {"bound_seconds", result.search.progress.bound},
                      {"seconds", seconds},
                      {"stopped", result.stopped()}};
    return json;
}

} // namespace tutti::cli
