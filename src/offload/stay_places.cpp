#include "offload/stays.h"

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

// The device's memory as a row of pieces, each with the stay that was there last.
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
        std::vector<std::int32_t> stays{};
    };
    // Takes a place, whoever was there.
    Before take(std::int64_t offset, std::int64_t size, std::int64_t until, std::int32_t stay) {
        cut(offset);
        cut(offset + size);
        Before before;
        const auto begin = std::ranges::lower_bound(pieces_, offset, {}, &Piece::begin);
        auto end = begin;
        for (; end != pieces_.end() && end->begin < offset + size; ++end) {
            before.until = std::max(before.until, end->until);
            if (end->stay >= 0 && std::ranges::find(before.stays, end->stay) == before.stays.end())
                before.stays.push_back(end->stay);
        }
        *begin = {offset, offset + size, until, stay};
        pieces_.erase(begin + 1, end);
        return before;
    }

  private:
    struct Piece {
        std::int64_t begin = 0, end = 0;
        std::int64_t until = never; // last use of the stay that was there last
        std::int32_t stay = -1;
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
    Placing(const ResidencyProblem& problem, std::vector<Stay>& stays)
        : stays_(stays), moments_(problem.moments()), capacity_(problem.capacity.count) {
        for (Stay& stay : stays)
            sizes_.push_back(
                round_up(problem.residents[static_cast<std::size_t>(stay.resident)].count, memory::buffer_alignment));
        for (const ResidentUse& use : problem.uses)
            if (use.at_home) at_home_[use.resident].push_back(use.moment);
        order_.resize(stays.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        // Those that are there when a step begins have their place before all others: those that never leave, then
        // the larger ones.
        auto rank = [&](std::size_t i) { return stays[i].always ? 0 : wraps(i) ? 1 : 2; };
        std::ranges::stable_sort(order_, [&](std::size_t a, std::size_t b) {
            if (rank(a) != rank(b)) return rank(a) < rank(b);
            if (rank(a) < 2) return sizes_[a] > sizes_[b];
            return stays[a].first < stays[b].first;
        });
    }

    bool place() {
        Places places(capacity_);
        std::int64_t packed = 0;
        for (std::size_t i : order_) {
            Stay& stay = stays_[i];
            if (stay.always || wraps(i)) {
                stay.offset = packed;
                packed += sizes_[i];
                if (packed > capacity_) return false;
                places.take(stay.offset, sizes_[i], stay.always ? 2 * moments_ : stay.last - moments_, id(i));
                continue;
            }
            stay.offset = places.oldest(sizes_[i], stay.first, [&](std::int64_t at) { return is_free(i, at); });
            if (stay.offset < 0) return false;
            places.take(stay.offset, sizes_[i], stay.last, id(i));
        }
        link();
        return true;
    }

  private:
    static std::int32_t id(std::size_t i) { return static_cast<std::int32_t>(i); }
    bool wraps(std::size_t i) const { return stays_[i].last >= moments_; }

    // Whether a place is left before those come back to it that are there at the end of the step.
    bool is_free(std::size_t i, std::int64_t at) const {
        for (std::size_t j : order_) {
            const Stay& other = stays_[j];
            if (other.always) continue;
            if (!wraps(j)) break;
            const bool meets = other.offset < at + sizes_[i] && at < other.offset + sizes_[j];
            if (meets && stays_[i].last >= other.first) return false;
        }
        return true;
    }

    // Who was where before whom: the second of two steps tells. A resident comes again only after it has gone.
    void link() {
        std::vector<std::size_t> by_time;
        for (std::size_t i : order_)
            if (!stays_[i].always) by_time.push_back(i);
        std::ranges::stable_sort(by_time, {}, [&](std::size_t i) { return stays_[i].first; });
        Places places(capacity_);
        std::map<std::int32_t, std::int32_t> latest; // stay of each resident
        for (std::int64_t round = 0; round < 2; ++round)
            for (std::size_t i : by_time) {
                Stay& stay = stays_[i];
                Places::Before before = places.take(stay.offset, sizes_[i], stay.last + round * moments_, id(i));
                const std::int32_t own = std::exchange(latest.try_emplace(stay.resident, -1).first->second, id(i));
                if (round == 0) continue;
                if (std::ranges::find(before.stays, own) == before.stays.end()) before.stays.push_back(own);
                const Stay& earlier = stays_[static_cast<std::size_t>(own)];
                before.until =
                    std::max(before.until, earlier.last + (earlier.first < stay.first ? moments_ : std::int64_t{0}));
                stay.after = std::move(before.stays);
                const std::int64_t free =
                    before.until == Places::never ? stay.first - moments_ + 1 : before.until + 1 - moments_;
                std::int64_t issue = std::max<std::int64_t>(free, stay.first - moments_ + 1);
                for (std::int32_t used : at_home_[stay.resident])
                    issue = std::max<std::int64_t>(issue, (used < stay.first ? used : used - moments_) + 1);
                stay.issue = narrow<std::int32_t>(issue);
            }
    }

    std::vector<Stay>& stays_;
    std::int64_t moments_, capacity_;
    std::vector<std::int64_t> sizes_;
    std::vector<std::size_t> order_;
    std::map<std::int32_t, std::vector<std::int32_t>> at_home_; // per resident, moments
};

} // namespace

bool place_stays(const ResidencyProblem& problem, std::vector<Stay>& stays) {
    // Places follow from the stays themselves, not from the order in which they were found.
    std::ranges::sort(stays, {}, [](const Stay& stay) { return std::tuple(stay.first, stay.last, stay.resident); });
    if (!Placing(problem, stays).place()) return false;
    if (!problem.ahead)
        for (Stay& stay : stays) stay.issue = stay.first;
    // In the order in which they are issued, with the numbers of others as they are then.
    std::vector<std::size_t> order(stays.size()), number(stays.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        return std::pair(stays[a].issue, stays[a].first) < std::pair(stays[b].issue, stays[b].first);
    });
    std::vector<Stay> sorted;
    for (std::size_t i = 0; i < order.size(); ++i) {
        number[order[i]] = i;
        sorted.push_back(std::move(stays[order[i]]));
    }
    for (Stay& stay : sorted)
        for (std::int32_t& other : stay.after)
            other = static_cast<std::int32_t>(number[static_cast<std::size_t>(other)]);
    stays = std::move(sorted);
    return true;
}

} // namespace tutti::offload
