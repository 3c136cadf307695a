// The list of schedule families, and what holds for all of them.
#include "schedule/families.h"

#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/generate.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tutti::schedule {

// Each in a file of families/.
Family gpipe();
Family one_forward_one_backward();
Family interleaved();
Family chimera();
Family mixpipe();
Family hanayo();
Family zb_1p();
Family zb_2p();
Family zb_v();
Family v_half();
Family v_min();
Family dualpipe();
Family dualpipe_v();
Family early_recompute();
Family last_stage_without_recompute();
Family shifted_critical_path();
Family greedy();

std::span<const Family> families() {
    static const std::vector<Family> all = {gpipe(),
                                            one_forward_one_backward(),
                                            interleaved(),
                                            chimera(),
                                            mixpipe(),
                                            hanayo(),
                                            zb_1p(),
                                            zb_2p(),
                                            zb_v(),
                                            v_half(),
                                            v_min(),
                                            dualpipe(),
                                            dualpipe_v(),
                                            early_recompute(),
                                            last_stage_without_recompute(),
                                            shifted_critical_path(),
                                            greedy()};
    return all;
}

const Family& find_family(std::string_view name) {
    for (const Family& family : families())
        if (family.name == name) return family;
    std::vector<std::string_view> names;
    for (const Family& family : families()) names.push_back(family.name);
    fail("there is no schedule family \"{}\"; there are {}", name, fmt::join(names, ", "));
}

std::string counted_replicas(int model_replicas) {
    return model_replicas == 1 ? "1 model replica" : fmt::format("{} model replicas", model_replicas);
}

void check_equal_shares(const ScheduleParameters& p) {
    if (p.micro_batches % p.model_replicas != 0)
        fail("{} with {} needs M to be a multiple of {}: {} is not, {} would be", p.family,
             counted_replicas(p.model_replicas), p.model_replicas, p.micro_batches,
             round_up(p.micro_batches, p.model_replicas));
}

std::vector<ScheduleParameters> with_stages(const ScheduleParameters& plain, std::initializer_list<int> counts) {
    std::vector<ScheduleParameters> list;
    for (const int stages : counts) list.emplace_back(plain).stages_per_rank = stages;
    return list;
}

std::vector<ScheduleParameters> schedules_to_try(int ranks, int micro_batches, bool following_costs) {
    static const std::vector<const Family*> by_turn = [] {
        std::vector<const Family*> list;
        for (const Family& family : families()) list.push_back(&family);
        std::ranges::stable_sort(list, {}, &Family::search_turn);
        return list;
    }();
    std::vector<ScheduleParameters> all;
    for (const Family* family : by_turn) {
        if (family->follows_costs != following_costs) continue;
        const ScheduleParameters plain{
            .family = std::string(family->name), .ranks = ranks, .micro_batches = micro_batches};
        if (ranks == 1 && plain.family != ScheduleParameters{}.family) continue;
        if (!family->variants)
            all.push_back(plain);
        else
            std::ranges::move(family->variants(plain), std::back_inserter(all));
    }
    return all;
}

namespace {

constexpr int largest_count = 1 << 20;

void check_counts(const ScheduleParameters& p) {
    if (p.ranks < 1) fail("a pipeline of {} ranks; it takes at least 1", p.ranks);
    if (p.ranks > 4096) fail("a pipeline of {} ranks; at most 4096 work", p.ranks);
    if (p.micro_batches < 1) fail("{} micro-batches; a step takes at least 1", p.micro_batches);
    if (p.micro_batches > largest_count) fail("{} micro-batches; at most {} work", p.micro_batches, largest_count);
    if (p.stages_per_rank < 0) fail("{} stages per rank; there has to be at least 1", p.stages_per_rank);
    if (p.model_replicas < 0) fail("{} model replicas; there has to be at least 1", p.model_replicas);
    if (p.in_flight < 0) fail("{} micro-batches in flight; there has to be at least 1", p.in_flight);
    if (p.group < 0) fail("groups of {} micro-batches; they take at least 1", p.group);
    for (auto [name, value] : {std::pair{"micro-batches in flight", p.in_flight},
                               {"micro-batches in a group", p.group},
                               {"weight gradients that wait", p.deferred_weight_gradients}})
        if (value > largest_count) fail("{} {}; at most {} work", value, name, largest_count);
    if (!std::isfinite(p.memory_cap) || p.memory_cap < 0)
        fail("a memory cap of {}; it has to be a number above 0", p.memory_cap);
}

// "interleaved, hanayo and greedy"
std::string names_of_free(bool FamilyFreedom::*what) {
    std::vector<std::string_view> names;
    for (const Family& family : families())
        if (family.free.*what) names.push_back(family.name);
    const std::string_view last = names.back();
    names.pop_back();
    return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

// What a family does not leave to choose.
void check_shape(const ScheduleParameters& p, const Family& family) {
    if (p.stages_per_rank != family.shape.stages_per_rank && !family.free.stages)
        fail("{} has {} per rank, not {}; {} take any number", p.family, counted(family.shape.stages_per_rank, "stage"),
             p.stages_per_rank, names_of_free(&FamilyFreedom::stages));
    if (p.model_replicas != family.shape.model_replicas && !family.free.model_replicas)
        fail("{} has {}, not {}; {} take other numbers", p.family, counted_replicas(family.shape.model_replicas),
             p.model_replicas, names_of_free(&FamilyFreedom::model_replicas));
    if (family.free.placement) return;
    if (p.placement != StagePlacement::loop && p.placement != family.shape.placement)
        fail("{} has its stages placed as a {}, not {}; greedy takes any placement", p.family,
             name_of(family.shape.placement), name_of(p.placement));
    if (p.split_backward && !family.shape.split_backward)
        fail("{} does not split its backward; greedy, zb-1p, zb-2p and zb-v do", p.family);
    if (p.deferred_weight_gradients >= 0)
        fail("{} decides itself which weight gradients wait; greedy takes a number", p.family);
}

} // namespace

ScheduleParameters resolve(const ScheduleParameters& parameters) {
    const Family& family = find_family(parameters.family);
    check_counts(parameters);
    ScheduleParameters p = parameters;
    if (p.stages_per_rank == 0) p.stages_per_rank = family.shape.stages_per_rank;
    if (p.model_replicas == 0) p.model_replicas = family.shape.model_replicas;
    check_shape(p, family);
    if (!family.free.placement) {
        p.placement = family.shape.placement;
        p.split_backward = family.shape.split_backward;
    }
    const std::int64_t stages = std::int64_t{p.ranks} * p.stages_per_rank;
    if (stages > 6553)
        fail("{} with {} each; at most 6553 stages work", counted(p.ranks, "pipe rank"),
             counted(p.stages_per_rank, "stage"));
    if (p.model_replicas > p.micro_batches)
        fail("{} for {}; each replica needs one", counted_replicas(p.model_replicas),
             counted(p.micro_batches, "micro-batch"));
    if (p.group > 1 && !family.free.groups)
        fail("{} takes micro-batches one by one, not in groups of {}; interleaved takes groups", p.family, p.group);
    if (p.group == 0) p.group = family.free.groups ? p.ranks : 1;
    if (family.check) family.check(p);
    check_equal_shares(p);
    if (!p.recompute.empty() && p.recompute.size() != static_cast<std::size_t>(stages))
        fail("recomputation is given for {}; there are {}", counted(p.recompute.size(), "stage"), stages);
    const int per_replica = p.micro_batches / p.model_replicas;
    const int own = family.in_flight ? std::min(family.in_flight(p), per_replica) : 0;
    p.in_flight = p.in_flight == 0 ? own : std::min(p.in_flight, per_replica);
    if (p.in_flight != own && !family.free.in_flight)
        fail("{} decides itself how many micro-batches are in flight, and {} was asked for; greedy, chimera, mixpipe "
             "and "
             "hanayo take any number",
             p.family, parameters.in_flight);
    return p;
}

int telling_micro_batches(const ScheduleParameters& p) {
    const auto few = narrow<int>(round_up(std::max(4 * p.ranks, 32), std::max({1, p.group, p.model_replicas})));
    return 2 * p.micro_batches >= 3 * few && p.in_flight <= 2 * p.ranks ? few : p.micro_batches;
}

Schedule make_schedule(const ScheduleParameters& parameters, const Costs& costs) {
    ScheduleParameters p = resolve(parameters);
    check(costs, p);
    if (p.recompute.empty())
        for (const StageCosts& stage : costs.stages)
            p.recompute.push_back(stage.recompute > 0 ? Recompute::on_gradient : Recompute::never);
    const Orders orders = find_family(p.family).make(p, costs);
    Schedule schedule = assemble(p, orders);
    check(schedule, costs);
    return schedule;
}

Schedule make_schedule(const ScheduleParameters& parameters, const StageCosts& share, double communication) {
    return make_schedule(parameters, uniform_costs(resolve(parameters), share, communication));
}

} // namespace tutti::schedule
