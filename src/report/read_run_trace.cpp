// A trace of a run read from a file, which may be anything.

#include "report/run_trace.h"

#include "base/error.h"
#include "base/limits.h"
#include "formats/json.h"
#include "formats/text_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace tutti::report {
namespace {

constexpr std::uint64_t largest_file = 1ull << 30;
constexpr std::int64_t most_ranks = 1 << 16;

TaskKind kind_in(const formats::JsonObject& arguments) {
    static constexpr std::array kinds = {TaskKind::load,     TaskKind::clear,           TaskKind::forward,
                                         TaskKind::backward, TaskKind::weight_gradient, TaskKind::norm,
                                         TaskKind::update,   TaskKind::recompute,       TaskKind::send,
                                         TaskKind::receive,  TaskKind::gather,          TaskKind::reduce};
    const std::string name = arguments.string("kind");
    const auto found = std::ranges::find_if(kinds, [&](TaskKind kind) { return name_of(kind) == name; });
    if (found == kinds.end())
        fail("{} has a task of kind {}; there is none", arguments.where(), formats::in_quotes(name));
    return *found;
}

std::int32_t number_in(const formats::JsonObject& object, std::string_view key, std::int64_t least, std::int64_t most) {
    const std::int64_t number = object.integer(key);
    if (number < least || number > most)
        fail("{}: {} is {}; it has to be from {} to {}", object.where(), key, number, least, most);
    return static_cast<std::int32_t>(number);
}

// Microseconds in the file, seconds here.
double time_in(const formats::JsonObject& object, std::string_view key, double least) {
    const double most = limits::duration.most * 1e6, time = object.number(key);
    if (!(time >= least && time <= most))
        fail("{}: {} is {}; it has to be from {} to {} microseconds", object.where(), key, time, least, most);
    return time * 1e-6;
}

double positive(const formats::JsonObject& object, std::string_view key, bool may_be_zero) {
    const double number = object.number(key);
    if (!std::isfinite(number) || number < 0 || (number == 0 && !may_be_zero))
        fail("{}: {} is {}; it has to be {}", object.where(), key, number, may_be_zero ? "at least 0" : "above 0");
    return number;
}

class Reader {
  public:
    Reader(const nlohmann::json& json, const std::string& where) : file_(json, where) {
        const nlohmann::json* events = file_.find("traceEvents");
        if (!events || !events->is_array()) fail("{} is no trace: it has no list traceEvents", where);
        const nlohmann::json* other = file_.find("otherData");
        if (!other || !other->is_object() || !other->contains("tutti_trace"))
            fail("{} is not the trace of a run; tutti train --trace FILE writes one", where);
        read_header(formats::JsonObject(*other, where));
        limit_ = static_cast<std::int64_t>(events->size());
        for (const nlohmann::json& event : *events) read_event(formats::JsonObject(event, where));
    }

    RunTrace take() {
        for (auto& [number, ranks] : steps_) {
            TracedStep& step = trace_.steps.emplace_back();
            step.step = number;
            for (int r = 0; r < ranks_; ++r) step.ranks.push_back(checked(ranks, r, fmt::format("step {}", number)));
        }
        if (trace_.steps.empty()) fail("{} holds no step", file_.where());
        for (int r = 0; r < ranks_; ++r) trace_.simulated.push_back(checked(simulated_, r, "the simulated step"));
        for (const TracedStep& step : trace_.steps) {
            if (!(step.duration() > 0)) fail("{}: step {} takes no time", file_.where(), step.step);
            for (int r = 0; r < ranks_; ++r) compare(step, r);
        }
        return std::move(trace_);
    }

  private:
    struct Rank {
        bool has_step = false;
        RankTrace trace;
        std::vector<std::pair<std::int32_t, TracedTask>> tasks; // with their places, as they come
    };
    using Ranks = std::vector<Rank>;

    void read_header(const formats::JsonObject& other) {
        if (other.integer("tutti_trace") != 1)
            fail("{} is a trace of version {}; this program reads version 1", other.where(),
                 other.integer("tutti_trace"));
        ranks_ = number_in(other, "ranks", 1, most_ranks);
        trace_.model = other.string("model");
        trace_.mesh = other.string("mesh");
        trace_.schedule = other.string("schedule");
        trace_.device = other.string("device");
        trace_.kernels = {positive(other, "flops", false), positive(other, "memory_bytes", false),
                          positive(other, "launch", true)};
        trace_.link = {positive(other, "link_latency", true), positive(other, "link_bytes", false),
                       positive(other, "link_reduced_bytes", false), positive(other, "link_gathered_bytes", false)};
        const nlohmann::json* offsets = other.find("clock_offsets");
        if (!offsets || !offsets->is_array() || offsets->size() != static_cast<std::size_t>(ranks_) ||
            !std::ranges::all_of(*offsets, [](const nlohmann::json& one) { return one.is_number(); }))
            fail("{}: clock_offsets has to be a list of {} numbers", other.where(), ranks_);
        for (const nlohmann::json& offset : *offsets) trace_.offsets.push_back({offset.get<double>()});
    }

    void read_event(const formats::JsonObject& event) {
        if (event.find_string("ph") != "X") return;
        const std::string category = event.find_string("cat").value_or("");
        if (category != "step" && category != "task" && category != "wait" && category != "exchange") return;
        const formats::JsonObject arguments = event.object("args");
        const int process = number_in(event, "pid", 0, 2 * ranks_ - 1);
        Rank& rank = rank_of(process, arguments);
        const double least = process < ranks_ ? -limits::duration.most * 1e6 : 0; // clocks may differ
        const double start = time_in(event, "ts", least), end = start + time_in(event, "dur", 0);
        if (category == "step") {
            if (std::exchange(rank.has_step, true))
                fail("{}: a step of process {} is there twice", file_.where(), process);
            rank.trace.start = start;
            rank.trace.end = end;
        } else if (category == "task") {
            add_task(rank, arguments, start, end);
        } else if (category == "wait") {
            rank.trace.waits.push_back({number_in(arguments, "task", -1, limit_), event.string("name"), start, end});
        } else {
            const std::int64_t bytes = arguments.integer("bytes");
            if (bytes < 0) fail("{}: a communication of {} bytes", file_.where(), bytes);
            rank.trace.communications.push_back(
                {number_in(arguments, "task", -1, limit_), event.string("name"), {bytes}, start, end});
        }
    }

    Rank& rank_of(int process, const formats::JsonObject& arguments) {
        const bool measured = process < ranks_;
        Ranks& ranks = measured ? steps_[arguments.integer("step")] : simulated_;
        // Every step of every rank is an event: a short file cannot ask for much memory.
        if (static_cast<std::int64_t>(steps_.size() + 1) * ranks_ > limit_)
            fail("{} lacks steps of ranks: there are {} events for {} ranks", file_.where(), limit_, ranks_);
        ranks.resize(static_cast<std::size_t>(ranks_));
        return ranks[static_cast<std::size_t>(measured ? process : process - ranks_)];
    }

    void add_task(Rank& rank, const formats::JsonObject& arguments, double start, double end) {
        constexpr std::int64_t most = 1 << 30;
        rank.tasks.push_back(
            {number_in(arguments, "task", 0, most),
             {kind_in(arguments), number_in(arguments, "stage", 0, most), number_in(arguments, "copy", 0, 1 << 10),
              number_in(arguments, "micro_batch", 0, most), start, end}});
    }

    RankTrace checked(Ranks& ranks, int r, const std::string& step) const {
        if (ranks.empty() || !ranks[static_cast<std::size_t>(r)].has_step)
            fail("{} lacks {} of rank {}", file_.where(), step, r);
        Rank& rank = ranks[static_cast<std::size_t>(r)];
        std::ranges::stable_sort(rank.tasks, {}, [](const auto& one) { return one.first; });
        for (const auto& [place, task] : rank.tasks) {
            if (place != static_cast<std::int32_t>(rank.trace.tasks.size()))
                fail("{} does not hold every task of {} of rank {} once: {} comes where {} should", file_.where(), step,
                     r, place, rank.trace.tasks.size());
            rank.trace.tasks.push_back(task);
        }
        // As long again before and after the step: what was asked for later may end later.
        const double slack = 1e-6 + rank.trace.end - rank.trace.start;
        for (const auto& [place, task] : rank.tasks)
            if (task.start < rank.trace.start - slack || task.end > rank.trace.end + slack)
                fail("{}: task {} of {} of rank {} is from {:g} s to {:g} s, and the step from {:g} s to {:g} s",
                     file_.where(), place, step, r, task.start, task.end, rank.trace.start, rank.trace.end);
        const auto tasks = static_cast<std::int32_t>(rank.trace.tasks.size());
        for (const auto& part : rank.trace.waits) check_task(part.task, tasks);
        for (const auto& part : rank.trace.communications) check_task(part.task, tasks);
        return std::move(rank.trace);
    }

    void check_task(std::int32_t task, std::int32_t tasks) const {
        if (task >= tasks) fail("{} speaks of task {} of {}", file_.where(), task, tasks);
    }

    // Both are of one program.
    void compare(const TracedStep& step, int r) const {
        const auto& measured = step.ranks[static_cast<std::size_t>(r)].tasks;
        const auto& simulated = trace_.simulated[static_cast<std::size_t>(r)].tasks;
        if (measured.size() != simulated.size())
            fail("{}: rank {} ran {} tasks in step {}, and {} were simulated", file_.where(), r, measured.size(),
                 step.step, simulated.size());
        for (std::size_t i = 0; i < measured.size(); ++i)
            if (name_of(measured[i]) != name_of(simulated[i]))
                fail("{}: task {} of rank {} is {} in step {}, and {} in the simulation", file_.where(), i, r,
                     name_of(measured[i]), step.step, name_of(simulated[i]));
    }

    formats::JsonObject file_;
    int ranks_ = 0;
    std::int64_t limit_ = 0; // the number of events
    std::map<std::int64_t, Ranks> steps_;
    Ranks simulated_;
    RunTrace trace_;
};

} // namespace

RunTrace parse_run_trace(std::string_view text, const std::string& where) {
    // An event takes about ten times its text, and long runs have many.
    const nlohmann::json json =
        formats::parse_json(text, where, std::max<std::uint64_t>(formats::json_memory, 12 * text.size()));
    return Reader(json, where).take();
}

RunTrace read_run_trace(const std::string& place) {
    fs::path file = place;
    if (is_folder(file)) {
        file /= "trace.json";
        if (!is_there(file))
            fail("{} has no trace.json: tutti train --trace {} writes one; a trace elsewhere is given by its own name",
                 place, file.string());
    }
    return parse_run_trace(formats::read_text_file(file, "a trace", largest_file), file.string());
}

} // namespace tutti::report
