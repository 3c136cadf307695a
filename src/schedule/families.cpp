// The registry of named points: what each fixes of the parameters, and which generator makes its order.
#include "schedule/families.h"

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/evaluate.h"
#include "schedule/generate.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti {
namespace {

using Make = Orders (*)(ScheduleParameters& parameters, const Costs& costs);

struct Point {
    Family family;
    Make make;
    int stages_per_rank = 1; // what it has, or takes where none is asked for
    int copies = 1;
    StagePlacement placement = StagePlacement::loop;
    bool split_backward = false;
    bool any_stages = false, any_copies = false; // others may be asked for
    bool any_placement = false;                  // placement and splitting as well
};

// The fastest of several orders that stays within the cap; where none does, the one that holds least, for the error.
class Best {
  public:
    Best(const ScheduleParameters& parameters, const Costs& costs) : p_(parameters), costs_(costs) {}
    void consider(Orders orders) {
        const Evaluation result = evaluate(assemble(p_, orders), costs_);
        const double excess =
            p_.memory_cap > 0 ? std::max(0.0, result.peak_activations() - p_.memory_cap * (1 + 1e-9)) : 0;
        if (!orders_.empty() && std::pair(excess, result.time) >= std::pair(excess_, time_)) return;
        orders_ = std::move(orders);
        excess_ = excess;
        time_ = result.time;
    }
    Orders take() { return std::move(orders_); }

  private:
    const ScheduleParameters& p_;
    const Costs& costs_;
    Orders orders_{};
    double excess_ = 0, time_ = 0;
};

// Equal stages, for orders that do not follow the costs of the stages.
Costs nominal_costs(const ScheduleParameters& parameters, double backward = 2) {
    return uniform_costs(parameters, {.forward = 1, .backward = backward / 2, .weight_gradient = backward / 2});
}

GreedyPolicy policy_of(const ScheduleParameters& parameters) {
    return {.in_flight = parameters.in_flight,
            .split_backward = parameters.split_backward,
            .deferred_weight_gradients = parameters.deferred_weight_gradients,
            .recompute = parameters.recompute};
}

Orders make_greedy(ScheduleParameters& parameters, const Costs& costs) {
    if (parameters.memory_cap == 0) return greedy(parameters, costs, policy_of(parameters));
    Best best(parameters, costs);
    for (int k = parameters.in_flight; k >= 1; --k) {
        GreedyPolicy policy = policy_of(parameters);
        policy.in_flight = k;
        best.consider(greedy(parameters, costs, policy));
        policy.deferred_weight_gradients = 0;
        if (parameters.split_backward) best.consider(greedy(parameters, costs, policy));
    }
    return best.take();
}

// Which forwards fit between two backwards depends on whether a backward takes as long as a forward or twice as long.
Orders make_chimera(ScheduleParameters& parameters, const Costs& costs) {
    Best best(parameters, costs);
    for (const double backward : {2, 1})
        best.consider(greedy(parameters, nominal_costs(parameters, backward), policy_of(parameters)));
    return best.take();
}

Orders make_mixpipe(ScheduleParameters& parameters, const Costs& costs) {
    if (parameters.in_flight > 0) return greedy(parameters, costs, policy_of(parameters));
    Best best(parameters, costs);
    const int most = std::min(parameters.ranks, parameters.micro_batches / 2);
    for (int k = std::min(most, (parameters.ranks + 1) / 2); k <= most; ++k) {
        GreedyPolicy policy = policy_of(parameters);
        policy.in_flight = k;
        best.consider(greedy(parameters, costs, policy));
    }
    return best.take();
}

Orders make_hanayo(ScheduleParameters& parameters, const Costs&) {
    const Costs costs = nominal_costs(parameters);
    Best best(parameters, costs);
    for (const bool shallow_first : {false, true}) {
        GreedyPolicy policy = policy_of(parameters);
        policy.shallow_first = shallow_first;
        best.consider(greedy(parameters, costs, policy));
    }
    return best.take();
}

Orders make_early(ScheduleParameters& parameters, const Costs&) {
    std::fill(parameters.recompute.begin(), parameters.recompute.end(), Recompute::early);
    return one_forward_one_backward(parameters);
}

Orders make_last_without(ScheduleParameters& parameters, const Costs& costs) {
    Orders orders = make_early(parameters, costs);
    parameters.recompute.back() = Recompute::never;
    return orders;
}

Orders make_shifted(ScheduleParameters& parameters, const Costs& costs) {
    std::fill(parameters.recompute.begin(), parameters.recompute.end(), Recompute::early);
    return shifted_critical_path(parameters, costs);
}

template <Orders (*make)(const ScheduleParameters&)>
Orders from_template(ScheduleParameters& parameters, const Costs&) {
    return make(parameters);
}
template <int slack>
Orders make_zero_bubble(ScheduleParameters& parameters, const Costs&) {
    return zero_bubble(parameters, slack);
}
template <Orders (*make)(const ScheduleParameters&, const Costs&)>
Orders from_costs(ScheduleParameters& parameters, const Costs& costs) {
    return make(parameters, costs);
}

const std::vector<Point>& points() {
    constexpr auto wave = StagePlacement::wave, mirrored = StagePlacement::mirrored, loop = StagePlacement::loop;
    static const std::vector<Point> all = {
        {{"gpipe", "all forwards, then all backwards", ""}, from_template<gpipe>},
        {{"1f1b", "backwards as soon as they can be: P micro-batches in flight instead of M", ""},
         from_template<one_forward_one_backward>},
        {{"interleaved", "1f1b with V stages per rank: the bubble is V times smaller, messages are V times as many",
          "M a multiple of P"},
         from_template<interleaved>,
         2,
         1,
         loop,
         false,
         true},
        {{"chimera", "2 (or 2f) copies of the model in opposite directions fill each other's bubbles",
          "P and M multiples of the copies, which are even"},
         make_chimera,
         1,
         2,
         mirrored,
         false,
         false,
         true},
        {{"mixpipe", "two copies, with as many micro-batches in flight as is fastest", "M even"},
         make_mixpipe,
         1,
         2,
         mirrored},
        {{"hanayo", "V/2 waves of stages over the ranks and back, with one copy of the weights", "V even"},
         make_hanayo,
         2,
         1,
         wave,
         false,
         true},
        {{"zb-1p", "split backward, weight gradients where ranks would idle; holds what 1f1b holds", ""},
         make_zero_bubble<1>,
         1,
         1,
         loop,
         true},
        {{"zb-2p", "no bubble where F = B = W, for twice the activations", ""}, make_zero_bubble<2>, 1, 1, loop, true},
        {{"zb-v", "no bubble where F = B = W, with the activations of 1f1b: stages down the ranks and back", ""},
         from_template<zero_bubble_v>,
         2,
         1,
         wave,
         true},
        {{"v-half", "as zb-v with half the activations of 1f1b, for some bubble", ""},
         from_costs<half_memory>,
         2,
         1,
         wave,
         true},
        {{"v-min", "as zb-v with a third of the activations of 1f1b; sensitive to unequal F, B, W", ""},
         from_costs<least_memory>,
         2,
         1,
         wave,
         true},
        {{"dualpipe", "two copies, a forward of one beside a backward of the other", "P and M even, M at least 2P"},
         from_template<dual_pipe>,
         1,
         2,
         mirrored,
         true},
        {{"dualpipe-v", "dualpipe folded in the middle: one copy, stages down the ranks and back", "M at least 2P"},
         from_template<dual_pipe_v>,
         2,
         1,
         wave,
         true},
        {{"early-recompute", "1f1b that recomputes while it waits for the gradient", ""}, make_early},
        {{"last-stage-without-recompute", "early-recompute, and the last stage keeps its activations", ""},
         make_last_without},
        {{"shifted-critical-path", "recomputing moved off the critical path, found from the costs of the stages", ""},
         make_shifted},
        {{"greedy", "each rank starts what it can, backwards first; any V, copies, placement, K and splitting",
          "M a multiple of the copies"},
         make_greedy,
         1,
         1,
         loop,
         false,
         true,
         true,
         true},
    };
    return all;
}

const Point& find_point(std::string_view name) {
    std::string names;
    for (const Point& point : points()) {
        if (point.family.name == name) return point;
        names += (names.empty() ? "" : ", ") + std::string(point.family.name);
    }
    fail("there is no schedule family \"{}\"; there are {}", name, names);
}

void check_counts(const ScheduleParameters& p) {
    if (p.ranks < 1) fail("a pipeline of {} ranks; it takes at least 1", p.ranks);
    if (p.ranks > 4096) fail("a pipeline of {} ranks; at most 4096 work", p.ranks);
    if (p.micro_batches < 1) fail("{} micro-batches; a step takes at least 1", p.micro_batches);
    if (p.micro_batches > (1 << 20)) fail("{} micro-batches; at most {} work", p.micro_batches, 1 << 20);
    if (p.stages_per_rank < 0) fail("{} stages per rank; there has to be at least 1", p.stages_per_rank);
    if (p.copies < 0) fail("{} copies; there has to be at least 1", p.copies);
    if (p.in_flight < 0) fail("{} micro-batches in flight; there has to be at least 1", p.in_flight);
    if (p.group < 0) fail("groups of {} micro-batches; they take at least 1", p.group);
    if (!std::isfinite(p.memory_cap) || p.memory_cap < 0)
        fail("a memory cap of {}; it has to be a number above 0", p.memory_cap);
}

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// What single families ask for.
void check_family(const ScheduleParameters& p) {
    if (p.micro_batches % p.copies != 0)
        fail("{} with {} copies needs M to be a multiple of {}: {} is not, {} would be", p.family, p.copies, p.copies,
             p.micro_batches, round_up(p.micro_batches, p.copies));
    if (p.family == "interleaved" && p.micro_batches % p.group != 0)
        fail("interleaved takes micro-batches in groups of {}: {} is no multiple of it, {} would be", p.group,
             p.micro_batches, round_up(p.micro_batches, p.group));
    if (p.family == "interleaved" && p.group < p.ranks)
        fail("interleaved with {} ranks needs groups of at least {} micro-batches, not {}", p.ranks, p.ranks, p.group);
    if (p.family == "chimera" && (p.copies % 2 != 0 || p.ranks % p.copies != 0))
        fail("chimera needs an even number of copies that divides the ranks: {} copies on {} ranks do not, {} ranks "
             "would",
             p.copies, p.ranks, round_up(p.ranks, round_up(p.copies, 2)));
    if (p.family == "hanayo" && p.stages_per_rank % 2 != 0)
        fail("hanayo needs an even number of stages per rank, two per wave: {} is not, {} would be", p.stages_per_rank,
             p.stages_per_rank + 1);
    if (p.family == "dualpipe" && p.ranks % 2 != 0)
        fail("dualpipe needs an even number of ranks: {} is not, {} would be", p.ranks, p.ranks + 1);
    if ((p.family == "dualpipe" || p.family == "dualpipe-v") && p.micro_batches < 2 * p.ranks)
        fail("{} with {} ranks needs at least {} micro-batches, not {}", p.family, p.ranks, 2 * p.ranks,
             p.micro_batches);
}

} // namespace

std::span<const Family> families() {
    static const std::vector<Family> all = [] {
        std::vector<Family> list;
        for (const Point& point : points()) list.push_back(point.family);
        return list;
    }();
    return all;
}

const Family& find_family(std::string_view name) { return find_point(name).family; }

ScheduleParameters resolve(const ScheduleParameters& parameters) {
    const Point& point = find_point(parameters.family);
    check_counts(parameters);
    ScheduleParameters p = parameters;
    if (p.stages_per_rank == 0) p.stages_per_rank = point.stages_per_rank;
    if (p.copies == 0) p.copies = point.copies;
    if (p.stages_per_rank != point.stages_per_rank && !point.any_stages)
        fail("{} has {} stages per rank, not {}; interleaved, hanayo and greedy take any number", p.family,
             point.stages_per_rank, p.stages_per_rank);
    if (p.copies != point.copies && !point.any_copies)
        fail("{} has {} copies, not {}; chimera and greedy take other numbers", p.family, point.copies, p.copies);
    if (!point.any_placement) {
        p.placement = point.placement;
        p.split_backward = point.split_backward;
    }
    const std::int64_t stages = std::int64_t{p.ranks} * p.stages_per_rank;
    if (stages > 6553) fail("{} ranks with {} stages each; at most 6553 stages work", p.ranks, p.stages_per_rank);
    if (p.copies > p.micro_batches)
        fail("{} copies for {} micro-batches; each copy needs one", p.copies, p.micro_batches);
    if (p.group == 0) p.group = p.family == "interleaved" ? p.ranks : 1;
    check_family(p);
    if (!p.recompute.empty() && p.recompute.size() != static_cast<std::size_t>(stages))
        fail("recomputation is given for {} stages; there are {}", p.recompute.size(), stages);
    const int per_copy = p.micro_batches / p.copies;
    if (p.in_flight == 0 && p.family == "gpipe") p.in_flight = per_copy;
    if (p.in_flight == 0 && p.family != "mixpipe")
        p.in_flight = p.family == "chimera" ? std::max(1, p.ranks / p.copies)
                      : p.family == "zb-2p" ? 2 * p.ranks - 1
                                            : p.ranks;
    p.in_flight = std::min(p.in_flight, per_copy);
    return p;
}

Schedule make_schedule(const ScheduleParameters& parameters, const Costs& costs) {
    ScheduleParameters p = resolve(parameters);
    check(costs, p);
    if (p.recompute.empty())
        for (const StageCosts& stage : costs.stages)
            p.recompute.push_back(stage.recompute > 0 ? Recompute::on_gradient : Recompute::never);
    const Orders orders = find_point(p.family).make(p, costs);
    Schedule schedule = assemble(p, orders);
    check(schedule, costs);
    return schedule;
}

Schedule make_schedule(const ScheduleParameters& parameters, const StageCosts& share, double communication) {
    return make_schedule(parameters, uniform_costs(resolve(parameters), share, communication));
}

} // namespace tutti
