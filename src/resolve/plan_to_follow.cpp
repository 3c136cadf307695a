#include "resolve/plan_to_follow.h"

#include "base/error.h"
#include "base/file.h"
#include "formats/json.h"
#include "resolve/run_plan.h"
#include "run/run_folder.h"
#include "run/run_options.h"
#include "schedule/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace tutti::resolve {
namespace {

using run::RunConfig;
using run::RunOption;
using BlockLists = std::vector<std::vector<int>>; // per stage

struct PlanFile {
    std::string file;
    Plan plan;
};

// That of the run that goes on. One that cannot be read is no reason not to go on without it.
std::optional<PlanFile> plan_of_run(const RunConfig& config) {
    if (!config.resumes() || config.output.empty() || !run::is_run_folder(config.output)) return std::nullopt;
    const fs::path file = fs::path(config.output) / "plan.json";
    if (!is_file(file)) return std::nullopt;
    try {
        return PlanFile{file.string(), read_plan(file.string())};
    } catch (const Error&) {
        return std::nullopt;
    }
}

bool names_none(const BlockLists& lists) {
    return std::ranges::all_of(lists, [](const std::vector<int>& list) { return list.empty(); });
}

// Of a model whose last block is not known.
bool names_all(const BlockLists& lists, std::span<const int> cuts) {
    for (std::size_t stage = 0; stage < lists.size(); ++stage) {
        const std::vector<int>& list = lists[stage];
        const int first = stage == 0 ? 0 : cuts[stage - 1];
        if (list.empty() || list.front() != first || list.back() != first + static_cast<int>(list.size()) - 1)
            return false;
        if (stage < cuts.size() && list.back() != cuts[stage] - 1) return false;
    }
    return !lists.empty();
}

// Values that leave a decision to others: no plan contradicts them.
bool is_left_open(const RunOption& option, const RunConfig& config) {
    static const OptionKeys open = {"sequence", "global_batch", "micro_batch",     "mesh",          "schedule",
                                    "updates",  "in_flight",    "stages_per_rank", "model_replicas"};
    return open.contains(option.key) && option.get(config) == option.get(RunConfig{});
}

// What is asked for beside a plan, and what the plan says of it.
class BesidePlan {
  public:
    BesidePlan(const AskedOptions& asked, const Plan& plan)
        : asked_(asked), plan_(plan), planned_(with_plan(asked.config, plan)) {
        if (is_given("device")) planned_.device = asked.config.device; // the same plan runs on any
    }

    const RunConfig& planned() const { return planned_; }
    bool is_typed(std::string_view key) const { return asked_.typed.contains(key); }
    bool is_given(std::string_view key) const { return is_typed(key) || asked_.file.contains(key); }

    // `certainly`: not where the plan's words leave open whether it does.
    bool contradicts(const RunOption& option, bool certainly = false) const {
        const RunConfig& config = asked_.config;
        if (!is_given(option.key)) return false;
        if (option.key == "ranks") return config.ranks > 0 && config.ranks != plan_.mesh.ranks();
        if (option.key == "recompute")
            return differ(option, plan_.recompute, config.recompute.automatic,
                          config.recompute.share > 0 && config.recompute.share < 1 && certainly);
        if (option.key == "offload_activations")
            return differ(option, plan_.offload, config.offload_activations == run::ActivationOffload::automatic,
                          false);
        return option.get(config) != option.get(planned_) && !is_left_open(option, config);
    }

    // What the plan says of an option.
    std::string said(const RunOption& option) const {
        if (option.key == "ranks") return std::to_string(plan_.mesh.ranks());
        if (blocks_of(option) != nullptr) return "which blocks";
        const std::string text = to_plain(option.get(planned_));
        return text.empty() ? "none" : text;
    }
    // The same with the option's name.
    std::string sentence(const RunOption& option) const {
        const BlockLists* blocks = blocks_of(option);
        if (blocks == nullptr) return fmt::format("{} {}", option.key, said(option));
        return fmt::format("{} {}", option.key, names_none(*blocks) ? "none" : "of some blocks");
    }

    std::string asked(const RunOption& option) const {
        return fmt::format("{} {}", is_typed(option.key) ? option.flag() : option.key,
                           to_plain(option.get(asked_.config)));
    }

  private:
    // Of an option that asks for blocks in words, which the plan names one by one; else null.
    const BlockLists* blocks_of(const RunOption& option) const {
        if (option.key == "recompute") return &plan_.recompute;
        return option.key == "offload_activations" ? &plan_.offload : nullptr;
    }
    // A word for blocks beside those that the plan names. Of a file "none" may be no more than the usual.
    bool differ(const RunOption& option, const BlockLists& blocks, bool is_open, bool is_unclear) const {
        if (is_open || is_unclear) return false;
        if (option.get(asked_.config) == option.get(RunConfig{})) return is_typed(option.key) && !names_none(blocks);
        if (option.get(asked_.config) == SettingValue(std::string("full"))) return !names_all(blocks, plan_.cuts);
        return true;
    }

    const AskedOptions& asked_;
    const Plan& plan_;
    RunConfig planned_;
};

// Where `winner` is another than the plan's, these go with the plan's.
struct Followers {
    std::string_view winner;
    std::vector<std::string_view> open;
};

const std::array<Followers, 3>& followers() {
    static const std::array<Followers, 3> all = {
        {{"ranks",
          {"mesh", "micro_batch", "zero", "split_backward", "sub_pipeline", "sequence_parallel", "schedule",
           "stages_per_rank", "model_replicas", "in_flight"}},
         {"mesh", {"split_backward", "sub_pipeline", "schedule", "stages_per_rank", "model_replicas", "in_flight"}},
         {"schedule", {"split_backward", "stages_per_rank", "model_replicas", "in_flight"}}}};
    return all;
}

void leave_open(RunConfig& config, std::string_view key) {
    const RunOption& option = *run::find_run_option(key);
    option.set(config, option.get(RunConfig{}));
}

// What is asked for, and where nothing is, what the plan says, as far as that still goes with it.
RunConfig made_anew(const AskedOptions& asked, const Plan& plan, const OptionKeys& winners) {
    RunConfig config = BesidePlan(asked, plan).planned();
    config.plan.clear();
    config.places.clear();
    config.ranks = RunConfig{}.ranks;
    for (const char* key : {"chunk_elements", "updates"}) leave_open(config, key); // nobody asked for them
    if (plan.schedule) {
        schedule::ScheduleParameters usual = plan.schedule->schedule.parameters;
        usual.in_flight = 0;
        if (schedule::resolve(usual).in_flight == config.in_flight) config.in_flight = 0;
    }
    if (!names_none(plan.recompute)) config.recompute = {.automatic = true};
    if (!names_none(plan.offload)) config.offload_activations = run::ActivationOffload::automatic;
    for (const Followers& one : followers())
        if (winners.contains(one.winner))
            for (std::string_view key : one.open) leave_open(config, key);
    OptionKeys kept = winners;
    kept.insert(asked.typed.begin(), asked.typed.end());
    for (const RunOption& option : run::run_options())
        if (kept.contains(option.key) && option.key != "plan") option.set(config, option.get(asked.config));
    const std::int64_t at_once = config.workload.micro_batch * run::mesh_of(config).data;
    if (!kept.contains("micro_batch") && at_once > 0 && config.workload.global_batch % at_once != 0)
        config.workload.micro_batch = 0;
    return config;
}

std::string listed(const std::vector<std::string>& texts) {
    if (texts.size() < 2) return fmt::format("{}", fmt::join(texts, ""));
    return fmt::format("{} and {}", fmt::join(texts.begin(), texts.end() - 1, ", "), texts.back());
}

// What wins over a plan.
class Winners {
  public:
    void add(const BesidePlan& beside, const RunOption& option) {
        keys_.insert(option.key);
        said_.push_back(beside.sentence(option));
        names_.push_back(beside.asked(option));
    }
    // As many processes as mpirun or srun started, where nothing else was said of the ranks.
    void add_started(const AskedOptions& asked, const Plan& plan) {
        const int started = asked.config.comm == run::Connection::threads ? 0 : asked.started;
        if (started == 0 || started == plan.mesh.ranks() || keys_.contains("ranks") || keys_.contains("mesh")) return;
        keys_.insert("ranks");
        said_.push_back(fmt::format("ranks {}", plan.mesh.ranks()));
        names_.push_back(fmt::format("a start of {} {}", started, started == 1 ? "process" : "processes"));
    }

    const OptionKeys& keys() const { return keys_; }
    // "run/plan.json says zero 0; --zero 1 wins, and the plan is made anew"
    std::string sentence(const std::string& file) const {
        return fmt::format("{} says {}; {} {}, and the plan is made anew", file, listed(said_), listed(names_),
                           names_.size() == 1 ? "wins" : "win");
    }

  private:
    OptionKeys keys_;
    std::vector<std::string> said_, names_;
};

// A plan names an architecture.
void expect_model(const BesidePlan& beside, const Plan& plan, const std::string& file) {
    if (!beside.is_given("model"))
        fail("which model? {} is a plan for a {}, and does not hold the model: tutti train MODEL --plan {}", file,
             formats::in_quotes(plan.model), file);
}

AskedRun follow_typed(const AskedOptions& asked, const std::optional<PlanFile>& before) {
    const RunConfig& config = asked.config;
    Plan plan = read_plan(config.plan);
    const BesidePlan beside(asked, plan);
    expect_model(beside, plan, config.plan);
    RunConfig planned = beside.planned();
    std::vector<std::string> losers;
    for (const RunOption& option : run::run_options()) {
        const bool is_typed = beside.is_typed(option.key);
        if (!beside.contradicts(option) || (is_typed && option.key == "ranks")) continue; // with_layout tells
        if (is_typed)
            fail("{} is {}, but the plan {} says {}: leave {} or --plan out", option.key, to_plain(option.get(config)),
                 config.plan, beside.said(option), option.flag());
        losers.push_back(beside.asked(option));
        if (option.key == "ranks") planned.ranks = RunConfig{}.ranks;
    }
    AskedRun run{std::move(planned)};
    if (!losers.empty()) losers = {fmt::format("{} of {}", listed(losers), asked.file_name)};
    if (before && completes(before->plan, plan))
        plan = before->plan;
    else if (before)
        losers.insert(losers.begin(), before->file);
    if (!losers.empty()) run.told.push_back(fmt::format("--plan {} wins over {}", config.plan, listed(losers)));
    run.plan = std::move(plan);
    return run;
}

// Whether the run goes on by its own plan, unless something wins over that: it followed one, or nothing is said of its
// ranks.
bool goes_on_by(const AskedOptions& asked, const Plan& plan) {
    if (!asked.config.plan.empty()) return true;
    if (plan.mesh.ranks() == 1 || (asked.started > 0 && asked.started != plan.mesh.ranks())) return false;
    return std::ranges::none_of(
        std::array{"ranks", "mesh", "schedule", "stages_per_rank", "model_replicas", "in_flight"},
        [&](const char* key) {
            const RunOption& option = *run::find_run_option(key);
            return option.get(asked.config) != option.get(RunConfig{});
        });
}

AskedRun follow(const AskedOptions& asked, const PlanFile& meant) {
    AskedOptions options = asked;
    options.config.plan = meant.file;
    const BesidePlan beside(options, meant.plan);
    // A config file that names a plan has to agree with it; one that does not, asks for what it says.
    const bool file_wins = asked.config.plan.empty();
    if (!file_wins) expect_model(beside, meant.plan, meant.file);
    Winners winners;
    for (const RunOption& option : run::run_options()) {
        if (!beside.contradicts(option)) continue;
        if (file_wins || beside.is_typed(option.key))
            winners.add(beside, option);
        else if (option.key != "ranks") // with_layout tells
            fail("{} is {}, but the plan {} says {}: leave {} or plan out of {}", option.key,
                 to_plain(option.get(options.config)), meant.file, beside.said(option), option.key, asked.file_name);
    }
    winners.add_started(asked, meant.plan);
    if (!winners.keys().empty())
        return {.config = made_anew(options, meant.plan, winners.keys()), .told = {winners.sentence(meant.file)}};
    return {beside.planned(), meant.plan};
}

// A run that is laid out by its options, or left to the planner, goes on.
AskedRun go_on_without(const AskedOptions& asked, const PlanFile& before) {
    const BesidePlan beside(asked, before.plan);
    Winners winners;
    for (const RunOption& option : run::run_options()) {
        // What a file says and is the default was not asked for: files that runs leave behind say everything.
        const bool is_asked = beside.is_typed(option.key) || option.get(asked.config) != option.get(RunConfig{});
        if (is_asked && beside.contradicts(option, true)) winners.add(beside, option);
    }
    winners.add_started(asked, before.plan);
    AskedRun run{asked.config};
    if (winners.keys().empty())
        run.before = before.plan;
    else
        run.told.push_back(winners.sentence(before.file));
    return run;
}

} // namespace

AskedRun with_plan_to_follow(const AskedOptions& asked) {
    const std::optional<PlanFile> before = plan_of_run(asked.config);
    if (asked.typed.contains("plan"))
        return asked.config.plan.empty() ? AskedRun{asked.config} : follow_typed(asked, before);
    if (before && goes_on_by(asked, before->plan)) return follow(asked, *before);
    if (!asked.config.plan.empty()) return follow(asked, {asked.config.plan, read_plan(asked.config.plan)});
    return before ? go_on_without(asked, *before) : AskedRun{asked.config};
}

} // namespace tutti::resolve
