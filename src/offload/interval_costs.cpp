#include "offload/intervals.h"

#include <algorithm>
#include <array>

namespace tutti::offload {
namespace {

// Copies between the device and one backing tier: one at a time in each direction.
class CopyLink {
  public:
    explicit CopyLink(const CopySpeed& speed) : speed_(speed) {}

    double copy_in(double ready, Bytes bytes) { return copy(0, ready, static_cast<double>(bytes.count) / speed_.in); }
    double copy_out(double ready, Bytes bytes) { return copy(1, ready, static_cast<double>(bytes.count) / speed_.out); }

  private:
    // When a copy of so many seconds ends, if it may begin at `ready`. It is slower while the other direction is at
    // work. The other copy was given before and is taken to run at full speed.
    double copy(std::size_t way, double ready, double seconds) {
        Lane& mine = lanes_[way];
        const Lane& other = lanes_[1 - way];
        if (ready > mine.until) mine.since = ready;
        double now = std::max(mine.until, ready), left = speed_.latency + seconds;
        auto work = [&](double until, double speed) {
            const double time = std::max(0.0, until - now);
            const bool ends = left <= time * speed;
            now += ends ? left / speed : time;
            left = ends ? 0 : left - time * speed;
        };
        work(other.since, 1);
        if (left > 0) work(other.until, speed_.together - 1);
        return mine.until = now + left;
    }

    struct Lane {
        double since = 0, until = 0; // it is at work, without a break
    };
    CopySpeed speed_;
    std::array<Lane, 2> lanes_{};
};

} // namespace

double simulate_intervals(const ResidencyProblem& problem, const UseTable& table,
                          const std::vector<ResidencyInterval>& intervals, const std::vector<BackingTier>& tiers) {
    const std::int32_t time_points = problem.time_points();
    constexpr int rounds = 3;
    // Intervals by the time point of the step at which they are issued, begin, and end.
    std::vector<std::vector<std::int32_t>> issued(problem.seconds.size()), ended(problem.seconds.size());
    std::vector<std::vector<std::int32_t>> begun(problem.seconds.size());
    auto within = [&](std::int32_t time_point) {
        return static_cast<std::size_t>((time_point % time_points + time_points) % time_points);
    };
    for (std::size_t s = 0; s < intervals.size(); ++s) {
        if (intervals[s].always) continue;
        issued[within(intervals[s].issue)].push_back(static_cast<std::int32_t>(s));
        begun[within(intervals[s].first)].push_back(static_cast<std::int32_t>(s));
        ended[within(intervals[s].last)].push_back(static_cast<std::int32_t>(s));
    }
    std::vector<double> there(intervals.size(), 0),
        gone(intervals.size(), 0);                                // when its fetch ended; when its place was free again
    std::vector<double> latest_copy(problem.residents.size(), 0); // when the copy in the backing tier is the latest
    CopyLink host(problem.host), disk(problem.disk);
    auto link_of = [&](std::int32_t r) -> CopyLink& {
        return tiers[static_cast<std::size_t>(r)] == BackingTier::disk ? disk : host;
    };
    double clock = 0, host_clock = 0, before = 0;
    for (int round = 0; round < rounds; ++round) {
        before = clock;
        for (std::size_t m = 0; m < problem.seconds.size(); ++m) {
            for (std::int32_t s : issued[m]) {
                const ResidencyInterval& interval = intervals[static_cast<std::size_t>(s)];
                double ready = clock;
                for (std::int32_t other : interval.after)
                    ready = std::max(ready, gone[static_cast<std::size_t>(other)]);
                if (interval.fetched)
                    ready = link_of(interval.resident)
                                .copy_in(std::max(ready, latest_copy[static_cast<std::size_t>(interval.resident)]),
                                         problem.residents[static_cast<std::size_t>(interval.resident)]);
                there[static_cast<std::size_t>(s)] = ready;
            }
            for (std::int32_t s : begun[m]) clock = std::max(clock, there[static_cast<std::size_t>(s)]);
            if (const double seconds = problem.seconds_on_host(m); seconds > 0) {
                host_clock = std::max(host_clock, clock);
                for (const UseTable::Use& use : table.at(static_cast<std::int32_t>(m)))
                    if (use.on_host)
                        host_clock = std::max(host_clock, latest_copy[static_cast<std::size_t>(use.resident)]);
                host_clock += seconds;
                for (const UseTable::Use& use : table.at(static_cast<std::int32_t>(m)))
                    if (use.on_host) latest_copy[static_cast<std::size_t>(use.resident)] = host_clock;
            }
            clock += problem.seconds[m];
            for (std::int32_t s : ended[m]) {
                const ResidencyInterval& interval = intervals[static_cast<std::size_t>(s)];
                gone[static_cast<std::size_t>(s)] = clock;
                latest_copy[static_cast<std::size_t>(interval.resident)] = clock;
                if (!interval.returned) continue;
                gone[static_cast<std::size_t>(s)] = latest_copy[static_cast<std::size_t>(interval.resident)] =
                    link_of(interval.resident)
                        .copy_out(clock, problem.residents[static_cast<std::size_t>(interval.resident)]);
            }
        }
    }
    return clock - before;
}

Bytes least_copies(const ResidencyProblem& problem, const UseTable& table) {
    const std::int32_t time_points = problem.time_points();
    // Memory times time points that is left beside the residents that each time point uses.
    double room = 0;
    for (std::int32_t m = 0; m < time_points; ++m) {
        double used = 0;
        for (const UseTable::Use& use : table.at(m))
            if (!use.on_host)
                used += static_cast<double>(problem.residents[static_cast<std::size_t>(use.resident)].count);
        room += static_cast<double>(problem.capacity.count) - used;
    }
    struct Gap {
        double copies = 0, takes = 0;
    };
    std::vector<Gap> gaps;
    double all = 0;
    for (const auto& mine : table.of_resident) {
        auto use_of = [&](std::size_t i) -> const UseTable::Use& {
            return table.uses[static_cast<std::size_t>(mine[i % mine.size()])];
        };
        // Whether this use, or an earlier one since the last use by the host, changes it.
        auto changed_before = [&](std::size_t last) {
            for (std::size_t i = last + mine.size(); i > last; --i)
                if (use_of(i).on_host || use_of(i).changes) return !use_of(i).on_host;
            return false;
        };
        // Whether the host uses it before it changes again: then it is written back anyway.
        auto is_written_back = [&](std::size_t after) {
            for (std::size_t i = after + 1; i <= after + mine.size(); ++i)
                if (use_of(i).on_host || use_of(i).changes) return use_of(i).on_host && use_of(i).needs;
            return false;
        };
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const UseTable::Use& here = table.uses[static_cast<std::size_t>(mine[i])];
            const UseTable::Use& next = table.next(mine[i]);
            if (!next.needs) continue;
            const auto size = static_cast<double>(problem.residents[static_cast<std::size_t>(here.resident)].count);
            // Before and after a use by the host, a copy cannot be avoided.
            if (here.on_host || next.on_host) {
                if (here.on_host ? !next.on_host : changed_before(i)) all += size;
                continue;
            }
            std::int32_t length = next.time_point - here.time_point;
            if (length <= 0) length += time_points;
            const double copies = here.changes && !is_written_back(i) ? 2 * size : size;
            all += copies;
            gaps.push_back({copies, size * (length - 1)});
        }
    }
    std::ranges::sort(gaps, [](const Gap& a, const Gap& b) { return a.copies * b.takes > b.copies * a.takes; });
    for (const Gap& gap : gaps) {
        const double share = gap.takes <= room ? 1 : std::max(0.0, room / gap.takes);
        all -= share * gap.copies;
        room -= share * gap.takes;
    }
    return {static_cast<std::int64_t>(std::max(0.0, all) * (1 - 1e-12))};
}

} // namespace tutti::offload
