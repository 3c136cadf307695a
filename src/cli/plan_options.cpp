#include "cli/plan_options.h"

#include "base/error.h"
#include "costs/quantity.h"
#include "formats/json.h"

#include <algorithm>
#include <array>

namespace tutti::cli {
namespace {

using Modes = unsigned; // a bit each
constexpr Modes bit(PlanMode mode) { return 1u << static_cast<unsigned>(mode); }
constexpr Modes searches = bit(PlanMode::search), what_ifs = bit(PlanMode::what_if),
                evaluates = bit(PlanMode::evaluate), intra_ops = bit(PlanMode::intra_op),
                all_modes = searches | what_ifs | evaluates | intra_ops;

struct ModeName {
    PlanMode mode;
    const char* name; // the option that asks for it, if one does
};
constexpr std::array mode_names = {ModeName{PlanMode::search, "a search"}, ModeName{PlanMode::what_if, "--what-if"},
                                   ModeName{PlanMode::evaluate, "--evaluate"},
                                   ModeName{PlanMode::intra_op, "--intra-op"}};

struct PlanOption {
    const char* name;
    Modes modes;
    const char* operand; // empty: a flag
    const char* help;
    const char* shown = ""; // a default, in help
};
constexpr PlanOption table[] = {
    {"--cluster", all_modes, "FILE", "the machines: a cluster.toml"},
    {"--sequence", all_modes, "N", "tokens per sequence", "the model's"},
    {"--dtype", all_modes, "TYPE", "bf16 or float32", "bf16, or the profile's"},
    {"--memory-cap", all_modes, "SIZE", "the most that a rank may need, such as 60GiB"},
    {"--json", all_modes, "", "JSON instead of tables"},
    {"--what-if", what_ifs, "WHAT", "vary nodes, devices, global-batch or layers, as a table and a curve"},
    {"--evaluate", evaluates, "FILE", "only what a plan.json would take, in time and memory"},
    {"--intra-op", intra_ops, "", "only the strategies of operators on the tensor axis"},
    {"--global-batch", searches | what_ifs | evaluates, "N", "sequences per step"},
    {"--profile", searches | what_ifs | evaluates, "FILE",
     "costs as tutti profile measured them; without --cluster: on that machine; with neither, the profile that was "
     "kept of this one"},
    {"--master", searches | what_ifs | evaluates, "TYPE", "of the weights as the optimizer keeps them", "float32"},
    {"--moments", searches | what_ifs | evaluates, "TYPE", "of AdamW's moments", "float32"},
    {"--gradients", searches | what_ifs | evaluates, "TYPE", "of parameters' gradients", "float32"},
    {"--time-limit", searches | what_ifs | intra_ops, "SECONDS",
     "end with the best so far, as Ctrl-C does; where nothing fits: of asking what would, else 10; with --intra-op: of "
     "an integer program, else 60"},
    {"--output", searches | intra_ops, "FILE", "write the best plan there, for tutti train --plan"},
    {"--report", searches, "FILE", "write a page: timeline, memory, all that was searched"},
    {"--compare", searches, "",
     "compare with choosing one thing after the other, and without each of the four choices"},
    {"--mesh", intra_ops, "tensor=N", "the ranks that share every operator"},
    {"--tensor-mesh", intra_ops, "AxB", "these ranks as several axes, such as 2x4"},
    {"--micro-batch", intra_ops, "N", "sequences per forward", "1"},
    {"--device", intra_ops, "NAME", "instead of --cluster: a device by name, eight to a node", "h100"},
    {"--in-flight", intra_ops, "N", "micro-batches whose activations are held", "1"},
    {"--epsilon", intra_ops, "E",
     "from 0, the plan that takes the least memory once it is compiled, however slow, to 1, the fastest", "0"},
    {"--solver", intra_ops, "NAME", "any, elimination or program", "any"},
    {"--picture", intra_ops, "FILE.html", "write a picture of one layer"},
};

const char* name_of(PlanMode mode) { return mode_names[static_cast<std::size_t>(mode)].name; }

// "a search, --what-if and --evaluate"
std::string names_of(Modes modes, std::string_view last) {
    std::vector<std::string> names;
    for (const ModeName& one : mode_names)
        if (modes & bit(one.mode)) names.emplace_back(one.name);
    std::string text = names.front();
    for (std::size_t i = 1; i < names.size(); ++i) text.append(i + 1 == names.size() ? last : ", ").append(names[i]);
    return text;
}

bool asks_for_mode(const PlanOption& option) {
    return std::ranges::any_of(mode_names,
                               [&](const ModeName& one) { return one.name == std::string_view(option.name); });
}

std::string group_of(const PlanOption& option) {
    if (option.modes == all_modes) return "Options";
    return asks_for_mode(option) ? "Instead of a search" : "With " + names_of(option.modes, " and ");
}

bool is_given(const CLI::Option* option) {
    const bool is_flag = option->get_items_expected_max() == 0;
    return is_flag ? is_set(option) : text_of(option).has_value();
}

} // namespace

PlanOptions::PlanOptions(CLI::App& app) {
    for (const PlanOption& one : table) {
        CLI::Option* added = *one.operand == '\0' ? add_flag(app, one.name, one.help)
                                                  : add_value(app, one.name, one.operand, one.help, one.shown);
        options_.push_back(added->group(group_of(one)));
    }
}

const CLI::Option* PlanOptions::operator[](std::string_view name) const {
    const auto* const found = std::ranges::find(table, name, &PlanOption::name);
    return options_.at(static_cast<std::size_t>(found - std::begin(table)));
}

PlanMode PlanOptions::mode() const {
    PlanMode asked = PlanMode::search;
    for (const ModeName& one : mode_names) {
        if (one.mode == PlanMode::search || !is_given((*this)[one.name])) continue;
        if (asked != PlanMode::search) fail("{} and {} ask for different things; give one", name_of(asked), one.name);
        asked = one.mode;
    }
    for (std::size_t i = 0; i < options_.size(); ++i)
        if (is_given(options_[i]) && !(table[i].modes & bit(asked)))
            fail("{} goes with {}{}", table[i].name, names_of(table[i].modes, " or "),
                 asked == PlanMode::search ? "" : fmt::format(", not with {}", name_of(asked)));
    return asked;
}

std::optional<Bytes> PlanOptions::memory_cap() const {
    const auto cap = text_of((*this)["--memory-cap"]);
    if (!cap) return std::nullopt;
    const auto bytes = costs::parse_quantity(*cap, costs::Measure::bytes);
    if (!bytes || *bytes < 1)
        fail("--memory-cap is {}, not a size such as {}", formats::in_quotes(*cap),
             costs::example_of(costs::Measure::bytes));
    return Bytes{static_cast<std::int64_t>(std::min(*bytes, 1e18))};
}

std::optional<double> PlanOptions::time_limit() const { return real_of((*this)["--time-limit"], 0.01); }

} // namespace tutti::cli
