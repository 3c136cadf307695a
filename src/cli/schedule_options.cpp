#include "cli/schedule_options.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/nearest.h"
#include "formats/json.h"
#include "schedule/families.h"
#include "terminal/words.h"

#include <algorithm>
#include <array>

namespace tutti::cli {
namespace {

constexpr std::int64_t most = 1 << 20; // of anything that is counted here
constexpr double most_tasks = 1e6;

struct CostKey {
    const char* name;
    double standard;
};
constexpr std::array<CostKey, 10> cost_keys = {{{"f", 1},
                                                {"b", 1},
                                                {"w", 1},
                                                {"r", 0},
                                                {"comm", 0},
                                                {"a", 1},
                                                {"kept", 1},
                                                {"input", 0},
                                                {"sync", 0},
                                                {"update", 0}}};

int count_of(const CLI::Option* option, std::int64_t least, int otherwise) {
    const auto number = integer_of(option, least);
    if (number && *number > most)
        fail("--{} is {}, and should be an integer from {} to {}", option->get_lnames().front(), *number, least, most);
    return number ? static_cast<int>(*number) : otherwise;
}

std::vector<double> numbers_in(const std::string& text, char separator, const std::string& where) {
    std::vector<double> numbers;
    for (const std::string& word : terminal::split(text, separator)) {
        const auto number = terminal::parse_real(word);
        if (!number || *number < 0) fail("{} is {}, and should be a number from 0", where, formats::in_quotes(word));
        numbers.push_back(*number);
    }
    return numbers;
}

std::map<std::string, std::vector<double>> parse_costs(const std::string& text) {
    std::vector<std::string> names;
    for (const CostKey& key : cost_keys) names.emplace_back(key.name);
    std::map<std::string, std::vector<double>> costs;
    for (const std::string& word : terminal::split(text, ',')) {
        const std::size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        if (equals == std::string::npos)
            fail("--costs has {}; it takes key=number, as in f=1,b=1,w=1,r=0,comm=0.1", formats::in_quotes(word));
        if (std::ranges::find(names, key) == names.end())
            fail("--costs has no {}; its keys are {}", formats::in_quotes(key), fmt::join(names, ", "));
        if (costs.contains(key)) fail("--costs gives {} twice", key);
        costs[key] = numbers_in(word.substr(equals + 1), ':', "in --costs, " + key);
    }
    return costs;
}

// "1,1,1,1.33", or "last=1.33,0=0.5".
void parse_stage_costs(const std::string& text, ScheduleRequest& request) {
    if (text.find('=') == std::string::npos) {
        request.all_factors = numbers_in(text, ',', "in --stage-costs, a stage");
        return;
    }
    for (const std::string& word : terminal::split(text, ',')) {
        const std::size_t equals = word.find('=');
        const std::string stage = word.substr(0, equals);
        const auto index = stage == "last" ? std::optional<std::int64_t>(-1) : terminal::parse_integer(stage);
        if (equals == std::string::npos || !index || *index > most || (*index < 0 && stage != "last"))
            fail("--stage-costs has {}; it takes stage=factor, as in last=1.33 or 0=0.5, or a factor for every stage",
                 formats::in_quotes(word));
        request.factors[static_cast<int>(*index)] =
            numbers_in(word.substr(equals + 1), ':', "in --stage-costs, stage " + stage).front();
    }
}

std::vector<schedule::Recompute> parse_recompute(const std::string& text) {
    std::vector<schedule::Recompute> list;
    for (const std::string& word : terminal::split(text, ',')) {
        schedule::Recompute one = schedule::Recompute::never;
        if (!schedule::parse(word, one))
            fail("--recompute has {}; it takes never, on-gradient or early, once or for every stage",
                 formats::in_quotes(word));
        list.push_back(one);
    }
    return list;
}

double value(const ScheduleRequest& request, const CostKey& key, int stage, int stages) {
    const auto found = request.costs.find(key.name);
    if (found == request.costs.end()) return key.standard;
    const std::vector<double>& list = found->second;
    if (list.size() != 1 && list.size() != static_cast<std::size_t>(stages))
        fail("--costs gives {} numbers for {}; {} stages take 1, or {} with colons between them", list.size(), key.name,
             stages, stages);
    return list.size() == 1 ? list[0] : list[static_cast<std::size_t>(stage)];
}

std::vector<double> factors_for(const ScheduleRequest& request, int stages) {
    std::vector<double> factors(static_cast<std::size_t>(stages), 1);
    if (!request.all_factors.empty() && request.all_factors.size() != factors.size())
        fail("--stage-costs gives {} factors; there are {} stages", request.all_factors.size(), stages);
    if (!request.all_factors.empty()) factors = request.all_factors;
    for (const auto& [stage, factor] : request.factors) {
        if (stage >= stages) fail("--stage-costs names stage {}; there are {}, the first being 0", stage, stages);
        factors[static_cast<std::size_t>(stage < 0 ? stages - 1 : stage)] = factor;
    }
    return factors;
}

} // namespace

const char* const cost_notes =
    "\nCosts:\n"
    "  f, b, w, r   what a rank's whole share of the model takes for one micro-batch: forward, input\n"
    "               gradient, weight gradient, recompute; each of its V stages takes 1/V of it.\n"
    "               Where no family shown splits the backward, b is the whole backward [2] and w is not\n"
    "               used. Where one does, the others take b + w, so that all do the same work\n"
    "  comm         a message between ranks; it arrives that much later, or with --blocking keeps its\n"
    "               sender that long\n"
    "  a            activations of a rank's whole share for one micro-batch [1]: the unit of --memory\n"
    "  kept, input  of these, what only the weight gradient lets go [1], and what a stage keeps to\n"
    "               recompute from [0]\n"
    "  sync, update what synchronising the gradients and the optimizer take at the end of the step [0]\n"
    "  A cost may be one number per stage, with colons between them: f=1:1:1:1.5.\n";

ScheduleFlags add_schedule_flags(CLI::App& app) {
    ScheduleFlags flags{};
    flags.pipe = add_value(app, "--pipe", "P", "ranks of the pipeline");
    flags.micro_batches =
        add_value(app, "--micro-batches", "M", "micro-batches of a step, of all model replicas together");
    flags.stages_per_rank = add_value(app, "--stages-per-rank", "V", "stages that each rank holds");
    flags.model_replicas = add_names(app, std::array<std::string, 2>{"--model-replicas", "--copies"}, "C",
                                     "replicas of the model that share the ranks");
    flags.in_flight = add_value(app, "--in-flight", "K", "most micro-batches of a model replica in flight at a time");
    flags.group = add_value(app, "--group", "N", "micro-batches that a rank takes through one stage before the next");
    flags.placement = add_value(app, "--placement", "NAME", "of stages on ranks, for greedy: loop, wave or mirrored");
    flags.split = add_flag(app, "--split-backward", "for greedy: weight gradients as tasks of their own");
    flags.deferred = add_value(app, "--deferred", "N", "for greedy: most weight gradients that a rank puts off");
    flags.costs = add_value(app, "--costs", "KEY=N,..", "see below", "f=1,b=1,w=1,r=0,comm=0");
    flags.stage_costs =
        add_value(app, "--stage-costs", "N,..", "factors of f, b, w and r for every stage, or last=1.33, or 0=0.5,3=2");
    flags.recompute = add_value(app, "--recompute", "WHEN,..",
                                "never, on-gradient or early, for all stages or each; by default what the family does");
    flags.blocking = add_flag(app, "--blocking", "a message keeps its sender from computing");
    flags.memory = add_value(app, "--memory", "CAP", "activations that a rank may hold, in those of its whole share");
    return flags;
}

ScheduleRequest read_schedule_flags(const ScheduleFlags& flags) {
    ScheduleRequest request;
    schedule::ScheduleParameters& p = request.parameters;
    if (!text_of(flags.pipe)) fail("how many ranks? as in --pipe 4");
    if (!text_of(flags.micro_batches)) fail("how many micro-batches? as in --micro-batches 8");
    p.ranks = count_of(flags.pipe, 1, 1);
    p.micro_batches = count_of(flags.micro_batches, 1, 1);
    p.stages_per_rank = count_of(flags.stages_per_rank, 1, 0);
    p.model_replicas = count_of(given_of(flags.model_replicas), 1, 0);
    p.in_flight = count_of(flags.in_flight, 1, 0);
    p.group = count_of(flags.group, 1, 0);
    p.deferred_weight_gradients = count_of(flags.deferred, 0, -1);
    p.split_backward = is_set(flags.split);
    request.chooses_split = flags.split->count() > 0;
    if (const auto name = text_of(flags.placement)) {
        if (!schedule::parse(*name, p.placement))
            fail("--placement is {}; there are loop, wave and mirrored", formats::in_quotes(*name));
        request.chooses_placement = true;
    }
    if (const auto cap = real_of(flags.memory, 0)) {
        if (*cap == 0) fail("--memory is 0; it has to be above 0, as one micro-batch takes 1");
        p.memory_cap = *cap;
    }
    if (const auto text = text_of(flags.costs)) request.costs = parse_costs(*text);
    if (const auto text = text_of(flags.stage_costs)) parse_stage_costs(*text, request);
    if (const auto text = text_of(flags.recompute)) request.recompute = parse_recompute(*text);
    request.blocking = is_set(flags.blocking);
    return request;
}

schedule::ScheduleParameters parameters_for(const ScheduleRequest& request, const std::string& family) {
    schedule::ScheduleParameters asked = request.parameters;
    asked.family = family;
    schedule::ScheduleParameters p = schedule::resolve(asked);
    if (request.chooses_placement && p.placement != asked.placement)
        fail("{} has placement {}, not {}; greedy takes any", family, schedule::name_of(p.placement),
             schedule::name_of(asked.placement));
    if (request.chooses_split && p.split_backward != asked.split_backward)
        fail("{} {} the backward; greedy does either", family, p.split_backward ? "splits" : "does not split");
    const double tasks = 3.0 * p.stages() * p.micro_batches;
    if (tasks > most_tasks)
        fail("{} and {} make up to {:.0f} tasks; {:.0f} can be shown", counted(p.stages(), "stage"),
             counted(p.micro_batches, "micro-batch"), tasks, most_tasks);
    if (request.recompute.size() == 1)
        p.recompute.assign(static_cast<std::size_t>(p.stages()), request.recompute[0]);
    else if (!request.recompute.empty() && request.recompute.size() != static_cast<std::size_t>(p.stages()))
        fail("--recompute is given for {} stages; there are {}", request.recompute.size(), p.stages());
    else
        p.recompute = request.recompute;
    return p;
}

schedule::Costs costs_for(const ScheduleRequest& request, const schedule::ScheduleParameters& resolved, bool splits) {
    const int stages = resolved.stages();
    const std::vector<double> factors = factors_for(request, stages);
    const double part = 1.0 / resolved.stages_per_rank;
    schedule::Costs costs;
    costs.blocking = request.blocking;
    for (int s = 0; s < stages; ++s) {
        std::array<double, cost_keys.size()> of{};
        for (std::size_t k = 0; k < cost_keys.size(); ++k)
            if (cost_keys[k].name != std::string_view("comm")) of[k] = value(request, cost_keys[k], s, stages);
        auto [f, b, w, r, ignored, a, kept, input, sync, update] = of;
        if (!splits) {
            b = request.gives("b") ? b : 2;
            w = 0;
        }
        const double own = part * factors[static_cast<std::size_t>(s)];
        costs.stages.push_back({.forward = f * own,
                                .backward = b * own,
                                .weight_gradient = w * own,
                                .recompute = r * own,
                                .activation = a * part,
                                .kept_after_backward = (request.gives("kept") ? kept : a) * part,
                                .boundary = input * part,
                                .synchronise = sync * part,
                                .update = update * part});
    }
    costs.communication = request.gives("comm") ? request.costs.at("comm") : std::vector<double>{0};
    schedule::check(costs, resolved);
    return costs;
}

} // namespace tutti::cli
