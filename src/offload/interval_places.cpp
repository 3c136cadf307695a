#include "offload/intervals.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace tutti::offload {
namespace {

// The device's memory as a row of pieces, each with the interval that was there last.
class Places {
  public:
    explicit Places(std::int64_t capacity) : pieces_{{0, capacity, never, -1}} {}

    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::min();

    // The place of this size that has been free for longest before `first`, among those that `allowed` lets pass; -1
    // where there is none. Only beginnings of pieces are looked at.
    template <class Allowed>
    std::int64_t oldest(std::int64_t size, std::int64_t first, const Allowed& allowed) const {
        std::int64_t best = -1, since = std::numeric_limits<std::int64_t>::max();
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            std::int64_t until = never;
            std::size_t j = i;
            for (; j < pieces_.size() && pieces_[j].until < first; ++j) {
                until = std::max(until, pieces_[j].until);
                if (pieces_[j].end - pieces_[i].begin >= size) break;
            }
            if (j == pieces_.size() || pieces_[j].until >= first || pieces_[j].end - pieces_[i].begin < size) continue;
            if (until < since && allowed(pieces_[i].begin)) best = pieces_[i].begin, since = until;
        }
        return best;
    }

    struct Before {
        std::int64_t until = never;
        std::vector<std::int32_t> intervals{};
    };
    // Takes a place, whoever was there.
    Before take(std::int64_t offset, std::int64_t size, std::int64_t until, std::int32_t interval) {
        cut(offset);
        cut(offset + size);
        Before before;
        const auto begin = std::ranges::lower_bound(pieces_, offset, {}, &Piece::begin);
        auto end = begin;
        for (; end != pieces_.end() && end->begin < offset + size; ++end) {
            before.until = std::max(before.until, end->until);
            if (end->interval >= 0 && std::ranges::find(before.intervals, end->interval) == before.intervals.end())
                before.intervals.push_back(end->interval);
        }
        *begin = {offset, offset + size, until, interval};
        pieces_.erase(begin + 1, end);
        return before;
    }

  private:
    struct Piece {
        std::int64_t begin = 0, end = 0;
        std::int64_t until = never; // last use of the interval that was there last
        std::int32_t interval = -1;
    };
    void cut(std::int64_t at) {
        const auto above = std::ranges::upper_bound(pieces_, at, {}, &Piece::begin);
        if (above == pieces_.begin()) return;
        Piece& piece = *(above - 1);
        if (piece.begin == at || piece.end <= at) return;
        Piece rest = piece;
        rest.begin = at;
        piece.end = at;
        pieces_.insert(above, rest);
    }

    std::vector<Piece> pieces_;
};

class Placing {
  public:
    Placing(const ResidencyProblem& problem, std::vector<ResidencyInterval>& intervals)
        : intervals_(intervals), time_points_(problem.time_points()), capacity_(problem.capacity.count) {
        for (ResidencyInterval& interval : intervals)
            sizes_.push_back(round_up(problem.residents[static_cast<std::size_t>(interval.resident)].count,
                                      memory::buffer_alignment));
        for (const ResidentUse& use : problem.uses)
            if (use.on_host) on_host_[use.resident].push_back(use.time_point);
        order_.resize(intervals.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        // Intervals that are on the device when a step begins are placed before all others: those that never end, then
        // the larger ones.
        auto rank = [&](std::size_t i) { return intervals[i].always ? 0 : wraps(i) ? 1 : 2; };
        std::ranges::stable_sort(order_, [&](std::size_t a, std::size_t b) {
            if (rank(a) != rank(b)) return rank(a) < rank(b);
            if (rank(a) < 2) return sizes_[a] > sizes_[b];
            return intervals[a].first < intervals[b].first;
        });
    }

    bool place() {
        Places places(capacity_);
        std::int64_t packed = 0;
        for (std::size_t i : order_) {
            ResidencyInterval& interval = intervals_[i];
            if (interval.always || wraps(i)) {
                interval.offset = packed;
                packed += sizes_[i];
                if (packed > capacity_) return false;
                places.take(interval.offset, sizes_[i],
                            interval.always ? 2 * time_points_ : interval.last - time_points_, id(i));
                continue;
            }
            interval.offset = places.oldest(sizes_[i], interval.first, [&](std::int64_t at) { return is_free(i, at); });
            if (interval.offset < 0) return false;
            places.take(interval.offset, sizes_[i], interval.last, id(i));
        }
        link();
        return true;
    }

  private:
    static std::int32_t id(std::size_t i) { return static_cast<std::int32_t>(i); }
    bool wraps(std::size_t i) const { return intervals_[i].last >= time_points_; }

    // Whether a place is free again before the intervals return to it that are there at the end of the step.
    bool is_free(std::size_t i, std::int64_t at) const {
        for (std::size_t j : order_) {
            const ResidencyInterval& other = intervals_[j];
            if (other.always) continue;
            if (!wraps(j)) break;
            const bool meets = other.offset < at + sizes_[i] && at < other.offset + sizes_[j];
            if (meets && intervals_[i].last >= other.first) return false;
        }
        return true;
    }

    // Which interval had a place before which: the second of two replayed steps tells. A resident is fetched again only
    // after it was evicted.
    void link() {
        std::vector<std::size_t> by_time;
        for (std::size_t i : order_)
            if (!intervals_[i].always) by_time.push_back(i);
        std::ranges::stable_sort(by_time, {}, [&](std::size_t i) { return intervals_[i].first; });
        Places places(capacity_);
        std::map<std::int32_t, std::int32_t> latest; // interval of each resident
        for (std::int64_t round = 0; round < 2; ++round)
            for (std::size_t i : by_time) {
                ResidencyInterval& interval = intervals_[i];
                Places::Before before =
                    places.take(interval.offset, sizes_[i], interval.last + round * time_points_, id(i));
                const std::int32_t own = std::exchange(latest.try_emplace(interval.resident, -1).first->second, id(i));
                if (round == 0) continue;
                if (std::ranges::find(before.intervals, own) == before.intervals.end()) before.intervals.push_back(own);
                const ResidencyInterval& earlier = intervals_[static_cast<std::size_t>(own)];
                before.until = std::max(
                    before.until, earlier.last + (earlier.first < interval.first ? time_points_ : std::int64_t{0}));
                interval.after = std::move(before.intervals);
                const std::int64_t free =
                    before.until == Places::never ? interval.first - time_points_ + 1 : before.until + 1 - time_points_;
                std::int64_t issue = std::max<std::int64_t>(free, interval.first - time_points_ + 1);
                for (std::int32_t used : on_host_[interval.resident])
                    issue = std::max<std::int64_t>(issue, (used < interval.first ? used : used - time_points_) + 1);
                interval.issue = narrow<std::int32_t>(issue);
            }
    }

    std::vector<ResidencyInterval>& intervals_;
    std::int64_t time_points_, capacity_;
    std::vector<std::int64_t> sizes_;
    std::vector<std::size_t> order_;
    std::map<std::int32_t, std::vector<std::int32_t>> on_host_; // per resident, time points
};

} // namespace

bool place_intervals(const ResidencyProblem& problem, std::vector<ResidencyInterval>& intervals) {
    // Places follow from the intervals themselves, not from the order in which they were found.
    std::ranges::sort(intervals, {}, [](const ResidencyInterval& interval) {
        return std::tuple(interval.first, interval.last, interval.resident);
    });
    if (!Placing(problem, intervals).place()) return false;
    if (!problem.ahead)
        for (ResidencyInterval& interval : intervals) interval.issue = interval.first;
    // In the order in which they are issued, with the numbers of others as they are then.
    std::vector<std::size_t> order(intervals.size()), number(intervals.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        return std::pair(intervals[a].issue, intervals[a].first) < std::pair(intervals[b].issue, intervals[b].first);
    });
    std::vector<ResidencyInterval> sorted;
    for (std::size_t i = 0; i < order.size(); ++i) {
        number[order[i]] = i;
        sorted.push_back(std::move(intervals[order[i]]));
    }
    for (ResidencyInterval& interval : sorted)
        for (std::int32_t& other : interval.after)
            other = static_cast<std::int32_t>(number[static_cast<std::size_t>(other)]);
    intervals = std::move(sorted);
    return true;
}

} // namespace tutti::offload
