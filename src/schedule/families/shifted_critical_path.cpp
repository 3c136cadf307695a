// Shifted critical path (Merak, TPDS 2023), generated from costs. Merak's idea: where recomputing is on the critical
// path it can be moved off it. A rank that holds one micro-batch at a time need not recompute; that shifts the critical
// path to its neighbour, which then is kept busy by letting it run further ahead and by recomputing before the gradient
// comes.
//
// Here no rank is told apart by its index. Every rank recomputes early where it would wait. How many micro-batches each
// may have in flight, at most one more than in 1F1B, and whether it goes on with forwards or with backwards where it
// could do either, is found by trying: a change on one rank at a time, for as long as the exact evaluation gets faster.
// Merak's [P, .., 3, 3, 1] is what this finds for equal stages. What is tried is the beginning of a long step.
#include "schedule/evaluate.h"
#include "schedule/families.h"
#include "schedule/generate.h"

#include <algorithm>
#include <cstdlib>

namespace tutti::schedule {
namespace {

struct Choice { // per rank
    std::vector<int> in_flight;
    std::vector<bool> forward_first;
};

struct Tried {
    Choice choice;
    std::vector<Recompute> recompute;
    Orders orders;
    double time = 0;
};

class Search {
  public:
    Search(const ScheduleParameters& parameters, const Costs& costs) : p_(parameters), costs_(costs) {}

    Tried run() {
        const int all = p_.micro_batches;
        p_.micro_batches = telling_micro_batches(p_);
        Tried best = climb(true);
        auto consider = [&](Tried other) {
            if (other.time < best.time * (1 - 1e-12)) best = std::move(other);
        };
        consider(climb(false));
        if (p_.micro_batches < all) {
            p_.micro_batches = all;
            best = attempt(best.choice);
        }
        consider(unshifted(p_.recompute));
        std::vector<Recompute> recompute = p_.recompute;
        recompute.back() = Recompute::never;
        consider(unshifted(recompute));
        return best;
    }

  private:
    // In very long pipelines not to the top: changes at the end of the pipeline, which come first, matter most.
    Tried climb(bool forward_first) const {
        constexpr std::size_t most_played = 250'000; // tasks
        Choice choice{{}, std::vector<bool>(static_cast<std::size_t>(p_.ranks), forward_first)};
        for (int r = 0; r < p_.ranks; ++r) choice.in_flight.push_back(std::min(p_.ranks - r, p_.micro_batches));
        Tried best = attempt(choice);
        std::size_t played = 0;
        for (bool better = true; better;) {
            better = false;
            for (int r = p_.ranks - 1; r >= 0; --r) {
                for (const Choice& change : changes(best.choice, r)) {
                    if (played > most_played) return best;
                    Tried tried = attempt(change);
                    for (const Order& order : tried.orders) played += order.size();
                    if (tried.time >= best.time * (1 - 1e-12)) continue;
                    best = std::move(tried);
                    better = true;
                }
            }
        }
        return best;
    }

    std::vector<Choice> changes(const Choice& choice, int rank) const {
        std::vector<Choice> list;
        const int most = std::min(p_.ranks - rank + 1, p_.micro_batches);
        for (int count = 1; count <= most; ++count) {
            for (const bool forward_first : {false, true}) {
                if (count == choice.in_flight[rank] && forward_first == choice.forward_first[rank]) continue;
                if (std::abs(count - choice.in_flight[rank]) > 1) continue;
                list.push_back(choice);
                list.back().in_flight[rank] = count;
                list.back().forward_first[rank] = forward_first;
            }
        }
        return list;
    }

    // What was there before the shift: 1F1B with early recomputation, so that the search never does worse.
    Tried unshifted(const std::vector<Recompute>& recompute) const {
        Tried tried{{}, recompute, one_forward_one_backward_orders(p_)};
        tried.time = time_of(tried);
        return tried;
    }

    double time_of(const Tried& tried) const {
        ScheduleParameters parameters = p_;
        parameters.recompute = tried.recompute;
        return evaluate(assemble(parameters, tried.orders), costs_).time;
    }

    // A rank with one micro-batch in flight keeps its activations: it never holds more than recomputing would.
    Tried attempt(const Choice& choice) const {
        GreedyPolicy policy{
            .in_flight_ranks = choice.in_flight, .forward_first = choice.forward_first, .recompute = p_.recompute};
        for (int s = 0; s < p_.stages(); ++s)
            if (choice.in_flight[rank_of(p_, 0, s)] == 1) policy.recompute[s] = Recompute::never;
        Tried tried{choice, policy.recompute, greedy_orders(p_, costs_, policy)};
        tried.time = time_of(tried);
        return tried;
    }

    ScheduleParameters p_;
    const Costs& costs_;
};

Orders off_the_critical_path(ScheduleParameters& parameters, const Costs& costs) {
    recompute_early(parameters);
    Tried found = Search(parameters, costs).run();
    parameters.recompute = found.recompute;
    return std::move(found.orders);
}

} // namespace

Family shifted_critical_path() {
    return {
        .name = "shifted-critical-path",
        .description = "recomputing moved off the critical path, found from the costs of the stages",
        .make = off_the_critical_path,
        .follows_costs = true,
        .recomputes_early = true,
        .search_turn = 14,
    };
}

} // namespace tutti::schedule
