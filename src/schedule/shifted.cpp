// Shifted critical path (Merak, TPDS 2023), generated from costs. Merak's idea: where recomputing is on the critical
// path it can be moved off it. A rank that holds one micro-batch at a time need not recompute; that shifts the critical
// path to its neighbour, which then is kept busy by letting it run further ahead and by recomputing before the gradient
// comes.
//
// Here no rank is told apart by its index. Every rank recomputes early where it would wait; how many micro-batches each
// may have in flight is found by trying: from 1F1B's P-r, one more or one less on one rank at a time, for as long as
// the exact evaluation gets faster. Merak's [P, .., 3, 3, 1] is what this finds for equal stages.
#include "schedule/evaluate.h"
#include "schedule/generate.h"

#include <algorithm>

namespace tutti {
namespace {

struct Tried {
    std::vector<Recompute> recompute;
    Orders orders;
    double time = 0;
};

class Search {
  public:
    Search(const ScheduleParameters& parameters, const Costs& costs) : p_(parameters), costs_(costs) {}

    Tried run() {
        std::vector<int> limits(static_cast<std::size_t>(p_.ranks));
        for (int r = 0; r < p_.ranks; ++r) limits[r] = std::min(p_.ranks - r, p_.micro_batches);
        Tried best = attempt(limits);
        for (bool better = true; better;) {
            better = false;
            for (int r = p_.ranks - 1; r >= 0; --r) {
                for (const int change : {1, 2, -1}) {
                    std::vector<int> other = limits;
                    other[r] += change;
                    if (other[r] < 1 || other[r] > p_.micro_batches) continue;
                    Tried tried = attempt(other);
                    if (tried.time >= best.time * (1 - 1e-12)) continue;
                    best = std::move(tried);
                    limits = other;
                    better = true;
                }
            }
        }
        return best;
    }

  private:
    // A rank with one micro-batch in flight keeps its activations: it never holds more than recomputing would.
    Tried attempt(const std::vector<int>& limits) const {
        GreedyPolicy policy{.in_flight_ranks = limits, .recompute = p_.recompute};
        for (int s = 0; s < p_.stages(); ++s)
            if (limits[rank_of(p_, 0, s)] == 1) policy.recompute[s] = Recompute::never;
        Tried tried{policy.recompute, greedy(p_, costs_, policy)};
        ScheduleParameters parameters = p_;
        parameters.recompute = policy.recompute;
        tried.time = evaluate(assemble(parameters, tried.orders), costs_).time;
        return tried;
    }

    const ScheduleParameters& p_;
    const Costs& costs_;
};

} // namespace

Orders shifted_critical_path(ScheduleParameters& parameters, const Costs& costs) {
    Tried found = Search(parameters, costs).run();
    parameters.recompute = found.recompute;
    return std::move(found.orders);
}

} // namespace tutti
