// Greedy orders: a list scheduler that plays the step through with the given costs. Each rank, when it is free, starts
// of what it could start first the task that ranks highest: backwards, then forwards, then early recomputes, then
// weight gradients. Micro-batches are admitted at stage 0 only, K of a replica at a time: a limit per rank would let
// early stages fill it while late ones starve.
#include "schedule/evaluate.h"
#include "schedule/generate.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace tutti::schedule {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// One stage of one replica. Micro-batches pass in order, so a count per kind says which is next; what has ended when is
// what neighbours and later tasks wait for.
struct Place {
    int replica = 0, stage = 0, rank = 0;
    bool early = false; // recomputes as a task of its own
    bool recomputes = false;
    int forwards = 0, recomputed = 0, backwards = 0, weight_gradients = 0;
    std::vector<double> forward_end{}, backward_end{};
};

struct Candidate {
    double start = never;
    int priority = 0; // the smallest goes first
    int tie = 0;
    Work work = Work::forward;
    int place = -1;
};

class Player {
  public:
    Player(const ScheduleParameters& parameters, const Costs& costs, const GreedyPolicy& policy)
        : p_(parameters), costs_(costs), policy_(policy), orders_(static_cast<std::size_t>(p_.ranks)),
          free_(static_cast<std::size_t>(p_.ranks), 0.0), of_rank_(static_cast<std::size_t>(p_.ranks)),
          best_(static_cast<std::size_t>(p_.ranks)), leaves_(std::bit_ceil(static_cast<std::size_t>(p_.ranks))),
          starts_(leaves_, never), first_(2 * leaves_, 0), in_flight_(static_cast<std::size_t>(p_.ranks), 0),
          waiting_(static_cast<std::size_t>(p_.ranks), 0) {
        for (int replica = 0; replica < p_.model_replicas; ++replica) {
            for (int stage = 0; stage < p_.stages(); ++stage) {
                const Recompute recompute = policy_.recompute.empty() ? Recompute::never : policy_.recompute[stage];
                const int rank = rank_of(p_, replica, stage);
                of_rank_[rank].push_back(static_cast<int>(places_.size()));
                places_.push_back(
                    {replica, stage, rank, recompute == Recompute::early, recompute == Recompute::on_gradient});
            }
        }
    }

    Orders play() {
        for (std::size_t leaf = 0; leaf < leaves_; ++leaf) first_[leaves_ + leaf] = static_cast<int>(leaf);
        for (std::size_t n = leaves_; n-- > 1;) first_[n] = first_[2 * n];
        for (int r = 0; r < p_.ranks; ++r) choose(r);
        const auto passes = static_cast<std::size_t>(per_replica());
        for (Place& place : places_) {
            place.forward_end.reserve(passes);
            place.backward_end.reserve(passes);
        }
        for (int r = 0; r < p_.ranks; ++r) orders_[r].reserve(of_rank_[r].size() * passes * 3);
        while (true) {
            const int next = first_[1];
            if (starts_[next] == never) break;
            start(next, best_[next]);
        }
        return std::move(orders_);
    }

  private:
    int per_replica() const { return p_.micro_batches / p_.model_replicas; }

    // When the input of the next forward, or the gradient of the next backward, is there.
    double arrival(const Place& place, bool gradient) const {
        const int number = gradient ? place.backwards : place.forwards;
        const int other = gradient ? place.stage + 1 : place.stage - 1;
        if (other < 0) return 0;
        if (other >= p_.stages()) return place.forward_end[number];
        const Place& from = places_[place.replica * p_.stages() + other];
        const std::vector<double>& ends = gradient ? from.backward_end : from.forward_end;
        if (static_cast<std::size_t>(number) >= ends.size()) return never;
        const double message = from.rank == place.rank ? 0 : costs_.edge(place.replica, std::min(place.stage, other));
        return ends[number] + message;
    }

    bool admits(const Place& place) const {
        if (place.forwards == per_replica()) return false;
        if (place.stage == 0 && policy_.in_flight > 0 && place.forwards - place.backwards >= policy_.in_flight)
            return false;
        return policy_.in_flight_ranks.empty() || in_flight_[place.rank] < policy_.in_flight_ranks[place.rank];
    }

    template <class Visit>
    void candidates(int rank, const Visit& visit) const {
        const double now = free_[rank];
        for (const int index : of_rank_[rank]) {
            const Place& place = places_[index];
            if (admits(place)) {
                const int depth = policy_.shallow_first ? place.stage : p_.stages() - place.stage;
                const bool first = !policy_.forward_first.empty() && policy_.forward_first[rank];
                visit(Candidate{std::max(now, arrival(place, false)), first ? 1 : 3, depth, Work::forward, index});
            }
            if (place.backwards < place.forwards) {
                const double gradient = arrival(place, true);
                const bool ready = !place.early || place.recomputed > place.backwards;
                const int age = place.backwards * p_.stages() + p_.stages() - place.stage;
                const Work work = policy_.split_backward ? Work::backward : Work::full_backward;
                if (ready) visit(Candidate{std::max(now, gradient), 2, age, work, index});
                if (!ready) visit(Candidate{now, gradient <= now ? 2 : 4, age, Work::recompute, index});
            }
            if (policy_.split_backward && place.weight_gradients < place.backwards) {
                const bool urgent =
                    policy_.deferred_weight_gradients >= 0 && waiting_[rank] > policy_.deferred_weight_gradients;
                visit(Candidate{now, urgent ? 0 : 5, place.weight_gradients, Work::weight_gradient, index});
            }
        }
    }

    // Of what could start first, what ranks highest.
    void choose(int rank) {
        Candidate best;
        candidates(rank, [&](const Candidate& c) {
            if (c.start > best.start || c.start == never) return;
            if (c.start < best.start || std::pair(c.priority, c.tie) < std::pair(best.priority, best.tie)) best = c;
        });
        best_[rank] = best;
        starts_[rank] = best.start;
        for (std::size_t n = (leaves_ + static_cast<std::size_t>(rank)) / 2; n > 0; n /= 2) {
            const int left = first_[2 * n], right = first_[2 * n + 1];
            first_[n] = starts_[right] < starts_[left] ? right : left;
        }
    }

    void start(int rank, const Candidate chosen) {
        Place& place = places_[chosen.place];
        const bool recomputes = place.recomputes && is_backward(chosen.work);
        const double end = chosen.start + duration_of(costs_.stages[place.stage], chosen.work, recomputes);
        int number = 0;
        switch (chosen.work) {
        case Work::forward:
            number = place.forwards++;
            place.forward_end.push_back(end);
            ++in_flight_[rank];
            break;
        case Work::recompute: number = place.recomputed++; break;
        case Work::backward:
        case Work::full_backward:
            number = place.backwards++;
            place.backward_end.push_back(end);
            --in_flight_[rank];
            if (chosen.work == Work::backward) ++waiting_[rank];
            break;
        case Work::weight_gradient:
            number = place.weight_gradients++;
            --waiting_[rank];
            break;
        }
        orders_[rank].push_back({chosen.work, false, static_cast<std::uint16_t>(place.replica),
                                 static_cast<std::uint16_t>(place.stage), place.replica + number * p_.model_replicas});
        const bool blocks = costs_.blocking && sends_to(place, chosen.work) >= 0;
        free_[rank] = end;
        if (blocks)
            free_[rank] += costs_.edge(place.replica, chosen.work == Work::forward ? place.stage : place.stage - 1);
        choose(rank);
        if (const int peer = sends_to(place, chosen.work); peer >= 0) choose(peer);
    }

    // The other rank that waits for what this task makes, or -1.
    int sends_to(const Place& place, Work work) const {
        if (work != Work::forward && !is_backward(work)) return -1;
        const int next = work == Work::forward ? place.stage + 1 : place.stage - 1;
        if (next < 0 || next >= p_.stages()) return -1;
        const int rank = places_[place.replica * p_.stages() + next].rank;
        return rank == place.rank ? -1 : rank;
    }

    const ScheduleParameters& p_;
    const Costs& costs_;
    const GreedyPolicy& policy_;
    std::vector<Place> places_;
    Orders orders_;
    std::vector<double> free_;
    std::vector<std::vector<int>> of_rank_; // places
    std::vector<Candidate> best_;           // per rank
    std::size_t leaves_;
    std::vector<double> starts_; // of these
    std::vector<int> first_;     // a tree over the ranks: which of those below starts first, of equal ones the lowest
    std::vector<int> in_flight_, waiting_; // per rank: forwards without backward, weight gradients left
};

} // namespace

GreedyPolicy policy_of(const ScheduleParameters& parameters) {
    return {.in_flight = parameters.in_flight,
            .split_backward = parameters.split_backward,
            .deferred_weight_gradients = parameters.deferred_weight_gradients,
            .recompute = parameters.recompute};
}

Orders greedy_orders(const ScheduleParameters& parameters, const Costs& costs, const GreedyPolicy& policy) {
    return Player(parameters, costs, policy).play();
}

} // namespace tutti::schedule
