#include "report/run_trace.h"

#include "report/chrome_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::report {
namespace {

using Json = nlohmann::ordered_json;

// To the nanosecond, which keeps the numbers short.
double in_microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

class Writer {
  public:
    Writer(ChromeEvents& events, int process, const std::string& name) : events_(events), process_(process) {
        add_process(events, process, name);
        add_track(events, process, step_track, "steps");
        add_track(events, process, compute_track, "computation");
        add_track(events, process, waiting_track, "waiting");
    }

    void add(const RankTrace& rank, const std::string& name, const Json& step) {
        auto with = [&](const Json& more) {
            Json all = step;
            all.update(more);
            return all;
        };
        slice(step_track, name, "step", rank.start, rank.end, step);
        for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
            const TracedTask& task = rank.tasks[i];
            slice(compute_track, name_of(task), "task", task.start, task.end,
                  with({{"task", i},
                        {"kind", name_of(task.kind)},
                        {"stage", task.stage},
                        {"copy", task.replica},
                        {"micro_batch", task.micro_batch}}));
        }
        for (const TracedWait& wait : rank.waits)
            slice(waiting_track, wait.what, "wait", wait.start, wait.end, with({{"task", wait.task}}));
        for (const TracedCommunication& communication : rank.communications)
            slice(track_for(communication), communication.what, "exchange", communication.start, communication.end,
                  with({{"task", communication.task}, {"bytes", communication.bytes.count}}));
    }

  private:
    static constexpr int step_track = 0, compute_track = 1, waiting_track = 2, first_communication_track = 3;

    void slice(int track, const std::string& name, std::string_view category, double start, double end,
               const Json& arguments) {
        add_slice(events_, {.process = process_,
                            .track = track,
                            .name = name,
                            .category = category,
                            .start = in_microseconds(start),
                            .end = in_microseconds(end),
                            .arguments = arguments});
    }

    // Communications overlap, and slices of one track may not: takes the first track that is free.
    int track_for(const TracedCommunication& communication) {
        std::size_t track = 0;
        while (track < busy_until_.size() && busy_until_[track] > communication.start) ++track;
        if (track == busy_until_.size()) {
            busy_until_.push_back(0);
            add_track(events_, process_, first_communication_track + static_cast<int>(track),
                      track == 0 ? "communication" : fmt::format("communication {}", track + 1));
        }
        busy_until_[track] = communication.end;
        return first_communication_track + static_cast<int>(track);
    }

    ChromeEvents& events_;
    int process_;
    std::vector<double> busy_until_; // per communication track
};

std::string letter_of(TaskKind kind) {
    switch (kind) {
    case TaskKind::forward: return "F";
    case TaskKind::recompute: return "R";
    case TaskKind::backward: return "B";
    case TaskKind::weight_gradient: return "W";
    default: return std::string(name_of(kind));
    }
}

} // namespace

double TracedStep::start() const { return std::ranges::min_element(ranks, {}, &RankTrace::start)->start; }
double TracedStep::end() const { return std::ranges::max_element(ranks, {}, &RankTrace::end)->end; }

std::string name_of(const TracedTask& task) {
    const std::string place =
        fmt::format("{}{}{}", task.micro_batch, task.stage > 0 ? fmt::format(".{}", task.stage) : "",
                    std::string(static_cast<std::size_t>(task.replica), '\''));
    const std::string what = letter_of(task.kind);
    if (what.size() == 1) return what + place;
    const bool has_place = task.kind == TaskKind::send || task.kind == TaskKind::receive || task.kind == TaskKind::load;
    return has_place ? what + " " + place : what;
}

std::string to_chrome(const RunTrace& trace) {
    ChromeEvents events = ChromeEvents::array();
    const int ranks = trace.ranks();
    for (int r = 0; r < ranks; ++r) {
        Writer writer(events, r, fmt::format("rank {}", r));
        for (const TracedStep& step : trace.steps)
            writer.add(step.ranks[static_cast<std::size_t>(r)], fmt::format("step {}", step.step),
                       {{"step", step.step}});
    }
    for (int r = 0; r < ranks; ++r)
        Writer(events, ranks + r, fmt::format("rank {}, simulated", r))
            .add(trace.simulated[static_cast<std::size_t>(r)], "a step", Json::object());
    Json offsets = Json::array();
    for (const Seconds& offset : trace.offsets) offsets.push_back(offset.count);
    return chrome_file(std::move(events), {{"tutti_trace", 1},
                                           {"ranks", ranks},
                                           {"model", trace.model},
                                           {"mesh", trace.mesh},
                                           {"schedule", trace.schedule},
                                           {"device", trace.device},
                                           {"clock_offsets", offsets},
                                           {"flops", trace.kernels.flops},
                                           {"memory_bytes", trace.kernels.bytes},
                                           {"launch", trace.kernels.launch},
                                           {"link_latency", trace.link.latency},
                                           {"link_bytes", trace.link.bytes},
                                           {"link_reduced_bytes", trace.link.reduced_bytes},
                                           {"link_gathered_bytes", trace.link.gathered_bytes}});
}

} // namespace tutti::report
