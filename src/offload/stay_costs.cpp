#include "offload/stays.h"

#include <algorithm>
#include <array>

namespace tutti::offload {
namespace {

// Copies between the device and a memory below, one after the other each way.
class TwoWays {
  public:
    explicit TwoWays(const CopySpeed& speed) : speed_(speed) {}

    double bring(double ready, Bytes bytes) { return copy(0, ready, static_cast<double>(bytes.count) / speed_.in); }
    double take(double ready, Bytes bytes) { return copy(1, ready, static_cast<double>(bytes.count) / speed_.out); }

  private:
    // When a copy of so many seconds ends that may begin at `ready`. While the other way is at work it gets on more
    // slowly: the other, which was given before, was taken to go on at all of its speed.
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

double walk_stays(const ResidencyProblem& problem, const UseTable& table, const std::vector<Stay>& stays,
                  const std::vector<HomeTier>& homes) {
    const std::int32_t moments = problem.moments();
    constexpr int rounds = 3;
    // Stays by the moment, within a step, at which they are issued, and at which they end.
    std::vector<std::vector<std::int32_t>> issued(problem.seconds.size()), ended(problem.seconds.size());
    std::vector<std::vector<std::int32_t>> begun(problem.seconds.size());
    auto within = [&](std::int32_t moment) { return static_cast<std::size_t>((moment % moments + moments) % moments); };
    for (std::size_t s = 0; s < stays.size(); ++s) {
        if (stays[s].always) continue;
        issued[within(stays[s].issue)].push_back(static_cast<std::int32_t>(s));
        begun[within(stays[s].first)].push_back(static_cast<std::int32_t>(s));
        ended[within(stays[s].last)].push_back(static_cast<std::int32_t>(s));
    }
    std::vector<double> there(stays.size(), 0), gone(stays.size(), 0); // when its content had come, its place was left
    std::vector<double> at_home(problem.residents.size(), 0);          // when what lies there is the latest
    TwoWays host(problem.host), disk(problem.disk);
    auto home_of = [&](std::int32_t r) -> TwoWays& {
        return homes[static_cast<std::size_t>(r)] == HomeTier::disk ? disk : host;
    };
    double clock = 0, home = 0, before = 0;
    for (int round = 0; round < rounds; ++round) {
        before = clock;
        for (std::size_t m = 0; m < problem.seconds.size(); ++m) {
            for (std::int32_t s : issued[m]) {
                const Stay& stay = stays[static_cast<std::size_t>(s)];
                double ready = clock;
                for (std::int32_t other : stay.after) ready = std::max(ready, gone[static_cast<std::size_t>(other)]);
                if (stay.fetched)
                    ready = home_of(stay.resident)
                                .bring(std::max(ready, at_home[static_cast<std::size_t>(stay.resident)]),
                                       problem.residents[static_cast<std::size_t>(stay.resident)]);
                there[static_cast<std::size_t>(s)] = ready;
            }
            for (std::int32_t s : begun[m]) clock = std::max(clock, there[static_cast<std::size_t>(s)]);
            if (const double seconds = problem.seconds_at_home(m); seconds > 0) {
                home = std::max(home, clock);
                for (const UseTable::Use& use : table.at(static_cast<std::int32_t>(m)))
                    if (use.at_home) home = std::max(home, at_home[static_cast<std::size_t>(use.resident)]);
                home += seconds;
                for (const UseTable::Use& use : table.at(static_cast<std::int32_t>(m)))
                    if (use.at_home) at_home[static_cast<std::size_t>(use.resident)] = home;
            }
            clock += problem.seconds[m];
            for (std::int32_t s : ended[m]) {
                const Stay& stay = stays[static_cast<std::size_t>(s)];
                gone[static_cast<std::size_t>(s)] = clock;
                at_home[static_cast<std::size_t>(stay.resident)] = clock;
                if (!stay.returned) continue;
                gone[static_cast<std::size_t>(s)] = at_home[static_cast<std::size_t>(stay.resident)] =
                    home_of(stay.resident).take(clock, problem.residents[static_cast<std::size_t>(stay.resident)]);
            }
        }
    }
    return clock - before;
}

Bytes least_copies(const ResidencyProblem& problem, const UseTable& table) {
    const std::int32_t moments = problem.moments();
    // Memory times moments that is left beside what each moment itself uses.
    double room = 0;
    for (std::int32_t m = 0; m < moments; ++m) {
        double used = 0;
        for (const UseTable::Use& use : table.at(m))
            if (!use.at_home)
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
        // Whether a use, or an earlier one since the last at home, changes it.
        auto changed_before = [&](std::size_t last) {
            for (std::size_t i = last + mine.size(); i > last; --i)
                if (use_of(i).at_home || use_of(i).changes) return !use_of(i).at_home;
            return false;
        };
        // Whether it is used at home before it changes again: then it goes there anyway.
        auto goes_home = [&](std::size_t after) {
            for (std::size_t i = after + 1; i <= after + mine.size(); ++i)
                if (use_of(i).at_home || use_of(i).changes) return use_of(i).at_home && use_of(i).needs;
            return false;
        };
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const UseTable::Use& here = table.uses[static_cast<std::size_t>(mine[i])];
            const UseTable::Use& next = table.next(mine[i]);
            if (!next.needs) continue;
            const auto size = static_cast<double>(problem.residents[static_cast<std::size_t>(here.resident)].count);
            // To or from a use at home there is no choice.
            if (here.at_home || next.at_home) {
                if (here.at_home ? !next.at_home : changed_before(i)) all += size;
                continue;
            }
            std::int32_t length = next.moment - here.moment;
            if (length <= 0) length += moments;
            const double copies = here.changes && !goes_home(i) ? 2 * size : size;
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
