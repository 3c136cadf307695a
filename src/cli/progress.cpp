#include "cli/progress.h"

#include "base/counted.h"
#include "cli/plan_text.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

namespace tutti::cli {
namespace {

std::string precision_text(const Precision& precision) {
    const std::string compute(name_of(precision.compute)), moments(name_of(precision.moments));
    const std::string gradients =
        size_of(precision.gradients) == 2 ? fmt::format(", {} gradients", name_of(precision.gradients)) : "";
    if (!precision.has_master())
        return (precision.compute == precision.moments ? compute
                                                       : fmt::format("{} with {} moments", compute, moments)) +
               gradients;
    return (precision.master == precision.moments
                ? fmt::format("{} with {} master weights and moments", compute, moments)
                : fmt::format("{} with {} master weights and {} moments", compute, name_of(precision.master),
                              moments)) +
           gradients;
}

// What a parameter takes, be it sharded over ranks; on average, where not all gradients lie over weights.
std::string parameter_text(const Precision& precision, const run::MemoryTable& memory) {
    const std::int64_t weight = size_of(precision.compute),
                       master = precision.has_master() ? size_of(precision.master) : 0,
                       moments = 2 * size_of(precision.moments);
    const double all = static_cast<double>((memory.gradients + memory.over_weights).count);
    const double apart = all > 0 ? static_cast<double>(memory.gradients.count) / all : 1;
    const std::string gradient = fmt::format("{:.3g}", apart * static_cast<double>(size_of(precision.gradients)));
    return fmt::format("{:.4g} bytes: {} its weight, {} gradient{}, {}{} moments",
                       static_cast<double>(weight + master + moments) +
                           apart * static_cast<double>(size_of(precision.gradients)),
                       weight, gradient,
                       apart == 0  ? " (it lies over the weight)"
                       : apart < 1 ? " (the rest lies over the weights)"
                                   : "",
                       master > 0 ? fmt::format("{} master weight, ", master) : "", moments);
}

// Whole seconds: nobody waits in milliseconds.
std::string time_left(Seconds left) { return left.count < 60 ? fmt::format("{:.0f} s", left.count) : to_string(left); }

} // namespace

std::string memory_table(const run::RunSummary& summary) {
    std::vector<std::vector<std::string>> rows;
    for (const run::MemoryRow& row : summary.memory.rows())
        if (row.bytes.count != 0) rows.push_back({row.name, to_string(row.bytes), row.what});
    const std::string table = terminal::lay_out(rows, std::array<std::size_t, 1>{1});
    const std::vector<Bytes>& ranks = summary.rank_memory;
    if (ranks.size() < 2) return "memory\n" + table;
    const auto [least, most] = std::ranges::minmax_element(ranks);
    const std::string least_text = to_string(*least), most_text = to_string(*most);
    return fmt::format("memory of rank 0\n{}  all {} ranks: {} each, {} together\n", table, ranks.size(),
                       least_text == most_text ? most_text : fmt::format("{} to {}", least_text, most_text),
                       to_string(std::accumulate(ranks.begin(), ranks.end(), Bytes{})));
}

std::string describe(const run::RunSummary& summary, const cores::Binding& binding) {
    const Workload& workload = summary.plan.workload;
    const std::int64_t micro_batches = summary.plan.micro_batches();
    std::vector<terminal::Definition> lines = {
        {"architecture",
         {fmt::format("{}, {} parameters", summary.architecture, terminal::with_commas(summary.parameters))}},
        {"data", {summary.data}},
        {"device", {fmt::format("{}, {}", summary.device, precision_text(summary.plan.precision))}},
        {"cores", {cores::describe(binding)}},
        {"a parameter takes", {parameter_text(summary.plan.precision, summary.memory)}},
        {"step",
         {fmt::format("{} of {} = {} {}, {}", counted(workload.global_batch, "sequence"),
                      counted(workload.sequence, "token"), terminal::with_commas(summary.tokens_per_step),
                      plural(summary.tokens_per_step, "token"),
                      terminal::short_number(summary.flops_per_step, "FLOP"))}},
        {"batches per step",
         {fmt::format("{} of {}{}", counted(micro_batches, "micro-batch"), counted(workload.micro_batch, "sequence"),
                      summary.plan.mesh.data > 1 ? " in every replica" : "")}},
        {"steps",
         {summary.first_step == 0 ? fmt::format("{}", summary.steps)
                                  : fmt::format("{}, going on after {}", summary.steps, summary.first_step)}},
    };
    if (const sharding::Mesh& mesh = summary.plan.mesh; mesh.ranks() > 1) {
        lines.push_back({"ranks", {fmt::format("{}: {}", mesh.ranks(), sharding::to_string(mesh))}});
    }
    if (summary.plan.schedule) {
        lines.push_back({"schedule", {schedule_text(summary.plan.schedule->schedule.parameters)}});
        lines.push_back({"stages", {stages_text(summary.plan)}});
    }
    if (!summary.plan.recompute.empty())
        lines.push_back({"recomputed", {recomputed_text(summary.plan, summary.blocks)}});
    for (const std::string& decision : summary.decided) lines.push_back({"decided here", {decision}});
    return "plan\n" + terminal::define(lines, 10000);
}

std::string per_second(double bytes) { return to_string(Bytes{static_cast<std::int64_t>(bytes)}) + "/s"; }

std::string copies_text(const CopySpeed& speed) {
    return fmt::format("{} to the device, {} back; {:.2f} times as much of both at once", per_second(speed.in),
                       per_second(speed.out), speed.together);
}

std::string describe(const run::RunSummary& summary, const run::OffloadSummary& offload) {
    const auto moved = static_cast<double>((offload.fetched + offload.returned).count);
    const auto least = static_cast<double>(offload.least.count);
    std::vector<terminal::Definition> lines = {
        {"chunks", {fmt::format("{}, {:.1f}% of them tensors", summary.chunks, 100 * summary.utilisation)}},
        {"copied per step",
         {fmt::format("{} to the device, {} back: {}", to_string(offload.fetched), to_string(offload.returned),
                      least > 0 ? fmt::format("{:.2f} times the least possible", moved / least)
                                : std::string("none of it has to be copied"))}},
        {"predicted step",
         {fmt::format("{}, of which {} waiting for copies", to_string(offload.step), to_string(offload.exposed))}},
        {"updates",
         {fmt::format(
             "{}, by the host {}{}", offload.updates, offload.updates_on_host,
             summary.plan.updates == offload::UpdateTime::backward ? "; in the backward, as gradients become final"
             : offload.updates_later > 0 ? fmt::format("; {} right before their next use", offload.updates_later)
                                         : "")}}};
    lines.push_back({"timed copies", {copies_text(offload.host)}});
    if (offload.disk) lines.push_back({"of the disk", {copies_text(*offload.disk)}});
    lines.push_back({"updates by the host", {per_second(offload.host_updates)}});
    return "residency\n" + terminal::define(lines, 10000);
}

nlohmann::ordered_json to_json(const CopySpeed& speed) {
    return {{"to_device", speed.in}, {"back", speed.out}, {"together", speed.together}};
}

nlohmann::ordered_json to_json(const cores::Binding& binding) {
    if (!binding.why_not.empty()) return {{"why_not", binding.why_not}};
    return {{"cores_of_ranks", binding.units}, {"thread_each", binding.thread_each}};
}

nlohmann::ordered_json to_json(const run::OffloadSummary& offload) {
    nlohmann::ordered_json json = {{"fetched_bytes", offload.fetched.count},
                                   {"returned_bytes", offload.returned.count},
                                   {"least_bytes", offload.least.count},
                                   {"step_seconds", offload.step.count},
                                   {"exposed_seconds", offload.exposed.count},
                                   {"updates", offload.updates},
                                   {"updates_at_home", offload.updates_on_host},
                                   {"updates_later", offload.updates_later},
                                   {"host_update_bytes_per_second", offload.host_updates},
                                   {"copy_bytes_per_second", to_json(offload.host)}};
    if (offload.disk) json["disk_bytes_per_second"] = to_json(*offload.disk);
    return json;
}

nlohmann::ordered_json to_json(const run::RunSummary& summary, const cores::Binding& binding) {
    nlohmann::ordered_json memory;
    for (const run::MemoryRow& row : summary.memory.rows()) memory[row.name] = row.bytes.count;
    std::vector<std::int64_t> of_ranks;
    for (const Bytes& bytes : summary.rank_memory) of_ranks.push_back(bytes.count);
    nlohmann::ordered_json json = {{"architecture", summary.architecture},
                                   {"parameters", summary.parameters},
                                   {"data", summary.data},
                                   {"device", summary.device},
                                   {"binding", to_json(binding)},
                                   {"steps", summary.steps},
                                   {"first_step", summary.first_step},
                                   {"batches_per_step", summary.plan.micro_batches()},
                                   {"tokens_per_step", summary.tokens_per_step},
                                   {"flops_per_step", summary.flops_per_step},
                                   {"plan", nlohmann::ordered_json::parse(tutti::to_json(summary.plan))},
                                   {"memory_bytes", memory},
                                   {"memory_bytes_of_ranks", of_ranks},
                                   {"chunks", summary.chunks},
                                   {"chunk_utilisation", summary.utilisation},
                                   {"decided", summary.decided}};
    if (const auto& offload = summary.offload) json["offload"] = to_json(*offload);
    return json;
}

std::int64_t line_stride(std::int64_t steps) {
    for (std::int64_t unit = 1;; unit *= 10)
        for (std::int64_t stride : {unit, 2 * unit, 5 * unit})
            if (steps / stride <= 20) return stride;
}

std::string step_line(const run::StepReport& step, std::int64_t steps, Seconds left, std::size_t columns) {
    const std::string total = std::to_string(steps);
    // In the order they are shown, with the order in which they give way: 0 stays.
    struct Field {
        std::string text;
        int gives_way;
    };
    std::vector<Field> fields = {
        {fmt::format("step {:>{}}/{}", step.step + 1, total.size(), total), 0},
        {fmt::format("loss {:.4f}{}", step.loss, step.skipped ? " (skipped)" : ""), 0},
        {fmt::format("norm {:.3g}", step.gradient_norm), 3},
        {fmt::format("lr {:.2e}", step.learning_rate), 2},
        {to_string(step.duration), 5},
        {terminal::short_number(step.tokens_per_second) + " tokens/s", 4},
        {to_string(step.memory), 1},
    };
    if (left.count > 0) fields.push_back({time_left(left) + " left", 0});
    auto joined = [&](std::string_view between) {
        std::string line;
        for (const Field& field : fields) line.append(line.empty() ? "" : between).append(field.text);
        return line;
    };
    std::string line = joined("  ");
    for (int next = 1; line.size() > columns && next <= 5; ++next) {
        if (line = joined(" "); line.size() <= columns) break;
        std::erase_if(fields, [&](const Field& field) { return field.gives_way == next; });
        line = joined("  ");
    }
    return line.substr(0, columns);
}

void Progress::warning(const std::string& sentence) {
    line_.clear();
    terminal::warn(sentence);
}

void Progress::waiting(const std::string& what) { line_.draw(terminal::name_to_show(what) + " ..."); }

void Progress::planned(const run::RunSummary& summary) {
    if (on_planned) on_planned(summary);
    summary_ = summary;
    stride_ = line_stride(summary.steps - summary.first_step);
    line_.say(describe(summary, binding_) + '\n' + memory_table(summary));
    if (summary.offload) line_.say(describe(summary, *summary.offload));
    started_ = Clock::now();
}

void Progress::chosen(const run::PlanChoice& choice) {
    if (quiet_) {
        nlohmann::ordered_json plans = nlohmann::ordered_json::array();
        for (const run::TriedPlan& one : choice.tried) {
            plans.push_back({{"plan", one.what}, {"predicted_seconds", one.plan.predicted->step.count}});
            if (one.measured) plans.back()["measured_seconds"] = one.measured->count;
        }
        terminal::print(terminal::json_to_show(
            {{"choice", {{"searched", choice.searched}, {"plans", plans}, {"taken", choice.taken}}}}));
        return;
    }
    std::vector<std::vector<std::string>> table = {{"plan", "predicted", "measured"}};
    for (std::size_t i = 0; i < choice.tried.size(); ++i) {
        const run::TriedPlan& one = choice.tried[i];
        table.push_back({(i == choice.taken ? "* " : "  ") + one.what, to_string(one.plan.predicted->step),
                         one.measured ? to_string(*one.measured) : "-"});
    }
    line_.say(fmt::format("{} tried, the best of them:\n{}",
                          counted(static_cast<std::int64_t>(choice.searched), "plan"),
                          terminal::lay_out(table, std::array<std::size_t, 2>{1, 2})));
}

void Progress::compared(const run::PredictionCheck& comparison) {
    const double time = comparison.measured.count / comparison.predicted.count - 1;
    const double memory = static_cast<double>(comparison.memory.count) /
                              static_cast<double>(std::max<std::int64_t>(comparison.predicted_memory.count, 1)) -
                          1;
    if (quiet_)
        terminal::print(terminal::json_to_show({{"comparison",
                                                 {{"steps", comparison.steps},
                                                  {"predicted_seconds", comparison.predicted.count},
                                                  {"measured_seconds", comparison.measured.count},
                                                  {"predicted_memory_bytes", comparison.predicted_memory.count},
                                                  {"measured_memory_bytes", comparison.memory.count}}}}));
    else
        line_.say(fmt::format("predicted {} and {}; measured {} a step ({:+.1f}%) and {} ({:+.1f}%)",
                              to_string(comparison.predicted), to_string(comparison.predicted_memory),
                              to_string(comparison.measured), 100 * time, to_string(comparison.memory), 100 * memory));
}

void Progress::stepped(const run::StepReport& step) {
    const std::int64_t steps = summary_ ? summary_->steps : step.step + 1;
    const std::int64_t first = summary_ ? summary_->first_step : 0;
    tokens_ += step.tokens;
    training_ += step.duration.count;
    // The first steps are slower than the rest, so what is recent counts more.
    recent_ = recent_ == 0 ? step.duration.count : 0.9 * recent_ + 0.1 * step.duration.count;
    last_ = step;
    const Seconds left{recent_ * static_cast<double>(steps - step.step - 1)};
    if (step.skipped)
        line_.say(fmt::format("step {}: the loss or the gradient norm is not finite; skipped", step.step + 1));
    if (terminal::output_is_terminal()) {
        if (Clock::now() - drawn_ > std::chrono::milliseconds(100)) {
            line_.draw(step_line(step, steps, left, terminal::terminal_columns() - 1));
            drawn_ = Clock::now();
        }
    } else if (step.step == first || (step.step + 1) % stride_ == 0 || step.step + 1 == steps) {
        line_.say(step_line(step, steps, left, 1000));
        printed_at_ = step.step;
    }
}

void Progress::evaluated(std::int64_t step, double loss) {
    line_.say(fmt::format("step {}  evaluation loss {:.4f}", step, loss));
}

void Progress::saved(const std::string& folder) { line_.say("saved " + terminal::name_to_show(folder)); }

void Progress::finish() {
    if (!last_ || !summary_ || printed_at_ == last_->step) return;
    line_.say(step_line(*last_, summary_->steps, {},
                        terminal::output_is_terminal() ? terminal::terminal_columns() - 1 : 1000));
}

double Progress::tokens_per_second() const { return training_ > 0 ? static_cast<double>(tokens_) / training_ : 0; }

} // namespace tutti::cli
