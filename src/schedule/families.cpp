// The registry of named points: what each fixes of the parameters, and which generator makes its order.
#include "schedule/families.h"

#include "base/counted.h"
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/generate.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tutti::schedule {
namespace {

using Make = Orders (*)(ScheduleParameters& parameters, const Costs& costs);

// What a family has, or takes where nothing else is asked for.
struct Shape {
    int stages_per_rank;
    int copies;
    StagePlacement placement;
    bool split_backward;
};
constexpr Shape plain{1, 1, StagePlacement::loop, false};
constexpr Shape split{1, 1, StagePlacement::loop, true};
constexpr Shape looped{2, 1, StagePlacement::loop, false};
constexpr Shape waves{2, 1, StagePlacement::wave, false};
constexpr Shape down_and_back{2, 1, StagePlacement::wave, true};
constexpr Shape two_ways{1, 2, StagePlacement::mirrored, false};
constexpr Shape two_ways_split{1, 2, StagePlacement::mirrored, true};

// What else may be asked for.
struct Free {
    bool stages = false, copies = false, in_flight = false;
    bool placement = false; // and splitting, and deferred weight gradients
};

struct Point {
    Family family;
    Make make;
    Shape shape = plain;
    Free free{};
};

template <Orders (*make)(const ScheduleParameters&)>
Orders from_template(ScheduleParameters& parameters, const Costs&) {
    return make(parameters);
}
template <int slack>
Orders zero_bubble_with(ScheduleParameters& parameters, const Costs&) {
    return zero_bubble(parameters, slack);
}
template <Orders (*make)(const ScheduleParameters&, const Costs&)>
Orders from_costs(ScheduleParameters& parameters, const Costs& costs) {
    return make(parameters, costs);
}

const std::vector<Point>& points() {
    static const std::vector<Point> all = {
        {{"gpipe", "all forwards, then all backwards", ""}, from_template<gpipe>},
        {{"1f1b", "backwards as soon as they can be: P micro-batches in flight instead of M", ""},
         from_template<one_forward_one_backward>},
        {{"interleaved", "1f1b with V stages per rank: the bubble is V times smaller, messages are V times as many",
          "M a multiple of P"},
         from_template<interleaved>,
         looped,
         {.stages = true}},
        {{"chimera", "2 (or 2f) copies of the model in opposite directions fill each other's bubbles",
          "P and M multiples of the copies, which are even"},
         chimera,
         two_ways,
         {.copies = true, .in_flight = true}},
        {{"mixpipe", "two copies, with as many micro-batches in flight as is fastest", "M even"},
         mixpipe,
         two_ways,
         {.in_flight = true}},
        {{"hanayo", "V/2 waves of stages over the ranks and back, with one copy of the weights", "V even"},
         hanayo,
         waves,
         {.stages = true, .in_flight = true}},
        {{"zb-1p", "split backward, weight gradients where ranks would idle; holds what 1f1b holds", ""},
         zero_bubble_with<1>,
         split},
        {{"zb-2p", "no bubble where F = B = W, for twice the activations", ""}, zero_bubble_with<2>, split},
        {{"zb-v", "no bubble where F = B = W, with the activations of 1f1b: stages down the ranks and back", ""},
         from_template<zero_bubble_v>,
         down_and_back},
        {{"v-half", "as zb-v with half the activations of 1f1b, for some bubble", ""},
         from_costs<half_memory>,
         down_and_back},
        {{"v-min", "as zb-v with a third of the activations of 1f1b; sensitive to unequal F, B, W", ""},
         from_costs<least_memory>,
         down_and_back},
        {{"dualpipe", "two copies, a forward of one beside a backward of the other", "P and M even, M at least 2P"},
         from_template<dual_pipe>,
         two_ways_split},
        {{"dualpipe-v", "dualpipe folded in the middle: one copy, stages down the ranks and back", "M at least 2P"},
         from_template<dual_pipe_v>,
         down_and_back},
        {{"early-recompute", "1f1b that recomputes while it waits for the gradient", ""}, early_recompute},
        {{"last-stage-without-recompute", "early-recompute, and the last stage keeps its activations", ""},
         last_stage_without_recompute},
        {{"shifted-critical-path", "recomputing moved off the critical path, found from the costs of the stages", ""},
         shifted_critical_path},
        {{"greedy", "each rank starts what it can, backwards first; any V, copies, placement, K and splitting",
          "M a multiple of the copies"},
         greedy_within_cap,
         plain,
         {.stages = true, .copies = true, .in_flight = true, .placement = true}},
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

constexpr int largest_count = 1 << 20;

std::string counted_copies(int copies) { return copies == 1 ? "1 copy" : fmt::format("{} copies", copies); }

void check_counts(const ScheduleParameters& p) {
    if (p.ranks < 1) fail("a pipeline of {} ranks; it takes at least 1", p.ranks);
    if (p.ranks > 4096) fail("a pipeline of {} ranks; at most 4096 work", p.ranks);
    if (p.micro_batches < 1) fail("{} micro-batches; a step takes at least 1", p.micro_batches);
    if (p.micro_batches > largest_count) fail("{} micro-batches; at most {} work", p.micro_batches, largest_count);
    if (p.stages_per_rank < 0) fail("{} stages per rank; there has to be at least 1", p.stages_per_rank);
    if (p.copies < 0) fail("{} copies; there has to be at least 1", p.copies);
    if (p.in_flight < 0) fail("{} micro-batches in flight; there has to be at least 1", p.in_flight);
    if (p.group < 0) fail("groups of {} micro-batches; they take at least 1", p.group);
    for (auto [name, value] : {std::pair{"micro-batches in flight", p.in_flight},
                               {"micro-batches in a group", p.group},
                               {"weight gradients that wait", p.deferred_weight_gradients}})
        if (value > largest_count) fail("{} {}; at most {} work", value, name, largest_count);
    if (!std::isfinite(p.memory_cap) || p.memory_cap < 0)
        fail("a memory cap of {}; it has to be a number above 0", p.memory_cap);
}

// What a family does not leave to choose.
void check_fixed(const ScheduleParameters& p, const Point& point) {
    if (point.free.placement) return;
    if (p.placement != StagePlacement::loop && p.placement != point.shape.placement)
        fail("{} has its stages placed as a {}, not {}; greedy takes any placement", p.family,
             name_of(point.shape.placement), name_of(p.placement));
    if (p.split_backward && !point.shape.split_backward)
        fail("{} does not split its backward; greedy, zb-1p, zb-2p and zb-v do", p.family);
    if (p.deferred_weight_gradients >= 0)
        fail("{} decides itself which weight gradients wait; greedy takes a number", p.family);
}

// Micro-batches in flight where none are asked for; 0: no one number, the order decides.
int own_in_flight(const ScheduleParameters& p) {
    if (p.family == "gpipe") return p.micro_batches;
    if (p.family == "chimera") return std::max(1, p.ranks / p.copies);
    if (p.family == "zb-2p") return 2 * p.ranks - 1;
    for (const char* family : {"1f1b", "early-recompute", "last-stage-without-recompute", "zb-1p", "hanayo", "greedy"})
        if (p.family == family) return p.ranks;
    return 0;
}

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// What single families ask for.
void check_family(const ScheduleParameters& p) {
    if (p.family == "chimera" && p.copies % 2 != 0)
        fail("chimera needs an even number of copies, half of them in each direction: {} is odd, {} would do", p.copies,
             p.copies + 1);
    if (p.micro_batches % p.copies != 0)
        fail("{} with {} needs M to be a multiple of {}: {} is not, {} would be", p.family, counted_copies(p.copies),
             p.copies, p.micro_batches, round_up(p.micro_batches, p.copies));
    if (p.family == "interleaved" && p.group < p.ranks)
        fail("interleaved with {} needs groups of at least {}, not {}", counted(p.ranks, "pipe rank"),
             counted(p.ranks, "micro-batch"), p.group);
    if (p.family == "interleaved" && p.micro_batches % p.group != 0)
        fail("interleaved takes micro-batches in groups of {}: {} is no multiple of it, {} would be", p.group,
             p.micro_batches, round_up(p.micro_batches, p.group));
    if (p.family == "chimera" && p.ranks % p.copies != 0)
        fail("chimera needs copies that divide the pipe ranks: {} on {} do not, {} pipe ranks would",
             counted_copies(p.copies), counted(p.ranks, "pipe rank"), round_up(p.ranks, p.copies));
    if (p.family == "hanayo" && p.stages_per_rank % 2 != 0)
        fail("hanayo needs an even number of stages per rank, two per wave: {} is not, {} would be", p.stages_per_rank,
             p.stages_per_rank + 1);
    if (p.family == "dualpipe" && p.ranks % 2 != 0)
        fail("dualpipe needs an even number of pipe ranks: {} is not, {} would be", p.ranks, p.ranks + 1);
    if ((p.family == "dualpipe" || p.family == "dualpipe-v") && p.micro_batches < 2 * p.ranks)
        fail("{} with {} needs at least {} micro-batches, not {}", p.family, counted(p.ranks, "pipe rank"), 2 * p.ranks,
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
    if (p.stages_per_rank == 0) p.stages_per_rank = point.shape.stages_per_rank;
    if (p.copies == 0) p.copies = point.shape.copies;
    if (p.stages_per_rank != point.shape.stages_per_rank && !point.free.stages)
        fail("{} has {} per rank, not {}; interleaved, hanayo and greedy take any number", p.family,
             counted(point.shape.stages_per_rank, "stage"), p.stages_per_rank);
    if (p.copies != point.shape.copies && !point.free.copies)
        fail("{} has {}, not {}; chimera and greedy take other numbers", p.family, counted_copies(point.shape.copies),
             p.copies);
    check_fixed(p, point);
    if (!point.free.placement) {
        p.placement = point.shape.placement;
        p.split_backward = point.shape.split_backward;
    }
    const std::int64_t stages = std::int64_t{p.ranks} * p.stages_per_rank;
    if (stages > 6553)
        fail("{} with {} each; at most 6553 stages work", counted(p.ranks, "pipe rank"),
             counted(p.stages_per_rank, "stage"));
    if (p.copies > p.micro_batches)
        fail("{} for {}; each copy needs one", counted_copies(p.copies), counted(p.micro_batches, "micro-batch"));
    if (p.group > 1 && p.family != "interleaved")
        fail("{} takes micro-batches one by one, not in groups of {}; interleaved takes groups", p.family, p.group);
    if (p.group == 0) p.group = p.family == "interleaved" ? p.ranks : 1;
    check_family(p);
    if (!p.recompute.empty() && p.recompute.size() != static_cast<std::size_t>(stages))
        fail("recomputation is given for {}; there are {}", counted(p.recompute.size(), "stage"), stages);
    const int per_copy = p.micro_batches / p.copies;
    const int own = std::min(own_in_flight(p), per_copy);
    p.in_flight = p.in_flight == 0 ? own : std::min(p.in_flight, per_copy);
    if (p.in_flight != own && !point.free.in_flight)
        fail("{} decides itself how many micro-batches are in flight, and {} was asked for; greedy, chimera, mixpipe "
             "and "
             "hanayo take any number",
             p.family, parameters.in_flight);
    return p;
}

int telling_micro_batches(const ScheduleParameters& p) {
    const int few = round_up(std::max(4 * p.ranks, 32), std::max({1, p.group, p.copies}));
    return 2 * p.micro_batches >= 3 * few && p.in_flight <= 2 * p.ranks ? few : p.micro_batches;
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

} // namespace tutti::schedule
