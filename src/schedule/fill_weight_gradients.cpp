// Weight gradients into an order of forwards and backwards: where a rank would wait anyway, and where the next forward
// would exceed what the rank may hold. Plays the step through like the greedy scheduler, but with the order given.
#include "schedule/evaluate.h"
#include "schedule/generate.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace tutti::schedule {
namespace {

class Filler {
  public:
    Filler(const ScheduleParameters& parameters, const Costs& costs, const Orders& orders, double cap)
        : p_(parameters), costs_(costs), given_(orders), cap_(cap), filled_(orders.size()), ranks_(orders.size()) {
        const std::size_t pairs = static_cast<std::size_t>(p_.stages()) * static_cast<std::size_t>(p_.micro_batches);
        forward_end_.assign(pairs, -1);
        backward_end_.assign(pairs, -1);
    }

    Orders fill() {
        for (bool any = true; any;) {
            any = false;
            for (std::size_t r = 0; r < given_.size(); ++r) any = advance(r) || any;
        }
        return std::move(filled_);
    }

  private:
    struct Rank {
        std::size_t next = 0;
        double free = 0, held = 0;
        std::deque<ScheduledTask> waiting; // weight gradients
    };

    std::size_t key(int stage, int micro_batch) const {
        return static_cast<std::size_t>(micro_batch) * static_cast<std::size_t>(p_.stages()) +
               static_cast<std::size_t>(stage);
    }

    // When what a task needs is there; negative if that is not known yet.
    double arrival(const ScheduledTask& task) const {
        const bool gradient = is_backward(task.work);
        const int other = gradient ? task.stage + 1 : task.stage - 1;
        if (other < 0) return 0;
        if (other >= p_.stages()) return forward_end_[key(task.stage, task.micro_batch)];
        const double end = (gradient ? backward_end_ : forward_end_)[key(other, task.micro_batch)];
        const bool here = rank_of(p_, task.replica, other) == rank_of(p_, task.replica, task.stage);
        return end < 0 || here ? end : end + costs_.edge(task.replica, std::min<int>(task.stage, other));
    }

    bool recomputes(const ScheduledTask& task) const {
        return !p_.recompute.empty() && p_.recompute[task.stage] != Recompute::never;
    }

    void run(Rank& rank, Order& order, const ScheduledTask& task, double start) {
        const StageCosts& stage = costs_.stages[task.stage];
        rank.free = start + duration_of(stage, task.work, recomputes(task));
        rank.held += acquired_by(stage, task.work, recomputes(task)) - released_by(stage, task.work);
        order.push_back(task);
    }

    void run_weight_gradient(Rank& rank, Order& order) {
        const ScheduledTask task = rank.waiting.front();
        rank.waiting.pop_front();
        run(rank, order, task, rank.free);
    }

    bool advance(std::size_t r) {
        Rank& rank = ranks_[r];
        bool any = false;
        while (rank.next < given_[r].size()) {
            const ScheduledTask& task = given_[r][rank.next];
            const double ready = arrival(task);
            if (ready < 0) return any;
            const StageCosts& stage = costs_.stages[task.stage];
            const double needs = acquired_by(stage, task.work, recomputes(task));
            auto fits = [&] {
                return rank.free + costs_.stages[rank.waiting.front().stage].weight_gradient <= ready + 1e-9 * ready;
            };
            while (!rank.waiting.empty() && (fits() || (needs > 0 && rank.held + needs > cap_ * (1 + 1e-9))))
                run_weight_gradient(rank, filled_[r]);
            run(rank, filled_[r], task, std::max(rank.free, ready));
            auto& ends = task.work == Work::forward ? forward_end_ : backward_end_;
            ends[key(task.stage, task.micro_batch)] = rank.free;
            if (task.work == Work::backward) {
                rank.waiting.push_back(task);
                rank.waiting.back().work = Work::weight_gradient;
            }
            ++rank.next;
            any = true;
        }
        for (; !rank.waiting.empty(); any = true) run_weight_gradient(rank, filled_[r]);
        return any;
    }

    const ScheduleParameters& p_;
    const Costs& costs_;
    const Orders& given_;
    double cap_;
    Orders filled_;
    std::vector<Rank> ranks_;
    std::vector<double> forward_end_, backward_end_;
};

} // namespace

Orders fill_weight_gradients(const ScheduleParameters& parameters, const Costs& costs, const Orders& orders,
                             double cap) {
    return Filler(parameters, costs, orders, cap).fill();
}

} // namespace tutti::schedule
