#include "offload/intervals.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"

#include <algorithm>
#include <limits>
#include <set>

namespace tutti::offload {

UseTable::UseTable(const ResidencyProblem& problem) : of_resident(problem.residents.size()) {
    std::vector<std::int32_t> latest(problem.residents.size(), -1); // use of the time point under way
    std::int32_t time_point = -1;
    for (const ResidentUse& use : problem.uses) {
        TUTTI_CHECK(use.time_point >= time_point && use.time_point < problem.time_points() && use.resident >= 0 &&
                        use.resident < static_cast<std::int32_t>(problem.residents.size()),
                    "use of resident {} at time point {} after time point {}", use.resident, use.time_point,
                    time_point);
        for (; time_point < use.time_point; ++time_point) first.push_back(static_cast<std::int32_t>(uses.size()));
        std::int32_t& known = latest[static_cast<std::size_t>(use.resident)];
        if (known >= 0 && uses[static_cast<std::size_t>(known)].time_point == use.time_point) {
            Use& same = uses[static_cast<std::size_t>(known)];
            same.needs |= use.needs_content() && !same.changes;
            same.changes |= use.changes_content();
            TUTTI_CHECK(same.on_host == use.on_host,
                        "resident {} is used by the host and by the device at time point {}", use.resident,
                        use.time_point);
            continue;
        }
        known = static_cast<std::int32_t>(uses.size());
        uses.push_back({use.time_point, use.resident, use.needs_content(), use.changes_content(), use.on_host});
        auto& mine = of_resident[static_cast<std::size_t>(use.resident)];
        place.push_back(static_cast<std::int32_t>(mine.size()));
        mine.push_back(known);
    }
    for (; time_point < problem.time_points(); ++time_point) first.push_back(static_cast<std::int32_t>(uses.size()));
}

std::span<const UseTable::Use> UseTable::at(std::int32_t time_point) const {
    const auto m = static_cast<std::size_t>(time_point);
    return std::span(uses).subspan(static_cast<std::size_t>(first[m]),
                                   static_cast<std::size_t>(first[m + 1] - first[m]));
}

const UseTable::Use& UseTable::next(std::int32_t use) const {
    const auto& mine = of_resident[static_cast<std::size_t>(uses[static_cast<std::size_t>(use)].resident)];
    const auto after = static_cast<std::size_t>(place[static_cast<std::size_t>(use)]) + 1;
    return uses[static_cast<std::size_t>(mine[after < mine.size() ? after : 0])];
}

ResidencyInterval interval_between(const ResidencyProblem& problem, const UseTable& table, std::int32_t resident,
                                   std::int32_t begin, std::int32_t end) {
    const auto& mine = table.of_resident[static_cast<std::size_t>(resident)];
    const auto count = static_cast<std::int32_t>(mine.size());
    auto use = [&](std::int32_t i) -> const UseTable::Use& {
        return table.uses[static_cast<std::size_t>(mine[static_cast<std::size_t>(i % count)])];
    };
    bool changes = false;
    for (std::int32_t i = begin; i <= end; ++i) changes |= use(i).changes;
    return {.resident = resident,
            .first = use(begin).time_point,
            .last = use(end).time_point + (end >= count ? problem.time_points() : 0),
            .fetched = use(begin).needs,
            .returned = changes && use(end + 1).needs};
}

namespace {

class Game {
  public:
    Game(const ResidencyProblem& problem, const UseTable& table, Bytes memory)
        : problem_(problem), table_(table), memory_(memory), residents_(problem.residents.size()) {
        double clock = 0;
        for (double seconds : problem.seconds) {
            starts_.push_back(clock);
            clock += seconds + least_seconds;
        }
        circle_ = clock;
    }

    // Two steps to run in; the third is the plan. It may be repeated whatever follows: who is there when it begins and
    // not when it ends simply comes at its first use.
    std::vector<ResidencyInterval> play() {
        for (int round = 0; round < 3; ++round) {
            recorded_ = round == 2;
            for (Presence& one : residents_) {
                one.carried = one.present;
                one.tail_first = one.tail_last = -1;
            }
            for (std::int32_t m = 0; m < problem_.time_points(); ++m) play(m);
        }
        for (std::size_t r = 0; r < residents_.size(); ++r) end(static_cast<std::int32_t>(r));
        return std::move(intervals_);
    }

  private:
    struct Presence {
        bool present = false;
        bool changed = false;                         // since it came
        bool carried = false;                         // it is there since before this round
        std::int32_t first = -1;                      // use with which it came, in this round
        std::int32_t last = -1;                       // its latest use
        std::int64_t arrival = 0;                     // counts
        std::int64_t recent = 0;                      // counts
        std::int32_t tail_first = -1, tail_last = -1; // of an interval carried into this round: uses here
    };

    void play(std::int32_t time_point) {
        for (std::int32_t u = table_.first[static_cast<std::size_t>(time_point)];
             u < table_.first[static_cast<std::size_t>(time_point) + 1]; ++u) {
            const UseTable::Use& use = table_.uses[static_cast<std::size_t>(u)];
            Presence& one = residents_[static_cast<std::size_t>(use.resident)];
            if (use.on_host) {
                if (one.present) evict(use.resident);
                continue;
            }
            if (!one.present) {
                make_room(size_of(use.resident), time_point);
                one.present = true;
                one.carried = one.changed = false;
                one.first = u;
                one.arrival = ++count_;
                used_ += size_of(use.resident);
            }
            if (one.carried) {
                if (one.tail_first < 0) one.tail_first = u;
                one.tail_last = u;
            }
            one.last = u;
            one.recent = ++count_;
            one.changed |= use.changes;
        }
    }

    std::int64_t size_of(std::int32_t resident) const {
        return round_up(problem_.residents[static_cast<std::size_t>(resident)].count, memory::buffer_alignment);
    }

    void make_room(std::int64_t bytes, std::int32_t time_point) {
        while (used_ + bytes > memory_.count) {
            std::int32_t worst = -1;
            double highest = -1;
            for (std::size_t r = 0; r < residents_.size(); ++r) {
                const Presence& one = residents_[r];
                if (!one.present || is_used_at(static_cast<std::int32_t>(r), time_point)) continue;
                if (const double score = score_of(static_cast<std::int32_t>(r), time_point); score > highest)
                    worst = static_cast<std::int32_t>(r), highest = score;
            }
            TUTTI_CHECK(worst >= 0, "nothing can be evicted at time point {}", time_point);
            evict(worst);
        }
    }

    bool is_used_at(std::int32_t resident, std::int32_t time_point) const {
        return std::ranges::any_of(table_.at(time_point), [&](const auto& use) { return use.resident == resident; });
    }

    // The larger, the better a resident is to evict.
    double score_of(std::int32_t resident, std::int32_t time_point) const {
        const Presence& one = residents_[static_cast<std::size_t>(resident)];
        if (problem_.eviction == Eviction::least_recent) return static_cast<double>(count_ - one.recent);
        if (problem_.eviction == Eviction::first_in) return static_cast<double>(count_ - one.arrival);
        const UseTable::Use& next = table_.next(one.last);
        if (!next.needs || next.on_host) return std::numeric_limits<double>::max(); // it has to go anyway
        double distance =
            starts_[static_cast<std::size_t>(next.time_point)] - starts_[static_cast<std::size_t>(time_point)];
        if (distance <= 0) distance += circle_;
        return one.changed ? distance / 2 : distance;
    }

    void evict(std::int32_t resident) {
        Presence& one = residents_[static_cast<std::size_t>(resident)];
        if (recorded_ && !one.carried) add(resident, one.first, one.last, false);
        one.present = one.carried = false;
        used_ -= size_of(resident);
    }

    // After the last time point: joins what is there with what was carried into the round.
    void end(std::int32_t resident) {
        const Presence& one = residents_[static_cast<std::size_t>(resident)];
        if (one.present && one.carried) {
            intervals_.push_back({.resident = resident, .last = problem_.time_points() - 1, .always = true});
        } else if (one.present && one.tail_last >= 0) {
            add(resident, one.first, one.tail_last, true);
        } else {
            if (one.present) add(resident, one.first, one.last, false);
            if (one.tail_last >= 0) add(resident, one.tail_first, one.tail_last, false);
        }
    }

    void add(std::int32_t resident, std::int32_t first, std::int32_t last, bool into_next_step) {
        std::int32_t end = table_.place[static_cast<std::size_t>(last)];
        if (into_next_step)
            end += static_cast<std::int32_t>(table_.of_resident[static_cast<std::size_t>(resident)].size());
        intervals_.push_back(
            interval_between(problem_, table_, resident, table_.place[static_cast<std::size_t>(first)], end));
    }

    static constexpr double least_seconds = 1e-9; // so that distances count where costs are unknown

    const ResidencyProblem& problem_;
    const UseTable& table_;
    Bytes memory_;
    std::vector<Presence> residents_;
    std::vector<double> starts_; // of time points
    double circle_ = 0;
    std::int64_t used_ = 0, count_ = 0;
    bool recorded_ = false;
    std::vector<ResidencyInterval> intervals_;
};

} // namespace

std::vector<ResidencyInterval> choose_intervals(const ResidencyProblem& problem, const UseTable& table, Bytes memory) {
    return Game(problem, table, memory).play();
}

} // namespace tutti::offload
