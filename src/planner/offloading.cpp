#include "planner/offloading.h"

#include "base/error.h"
#include "memory/residency.h"

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

constexpr std::size_t most_moments = 1024; // more blocks than that make are taken together

// Neighbouring blocks of the same passes as one, so that there are few moments.
OffloadedRank coarser(const OffloadedRank& rank) {
    std::size_t moments = rank.blocks.size();
    for (const OffloadedRank::Pass& pass : rank.passes) moments += static_cast<std::size_t>(pass.end - pass.first);
    const std::size_t together = (moments + most_moments - 1) / most_moments;
    if (together <= 1) return rank;
    std::vector<bool> begins(rank.blocks.size() + 1); // a stage
    for (const OffloadedRank::Pass& pass : rank.passes)
        begins[static_cast<std::size_t>(pass.first)] = begins[static_cast<std::size_t>(pass.end)] = true;
    OffloadedRank result = rank;
    result.blocks.clear();
    std::vector<int> number(rank.blocks.size() + 1); // of the group that begins here
    std::size_t size = 0;
    for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
        if (begins[b] || size == together || result.blocks.empty()) {
            number[b] = static_cast<int>(result.blocks.size());
            result.blocks.emplace_back();
            size = 0;
        }
        OffloadedRank::Block& group = result.blocks.back();
        const OffloadedRank::Block& block = rank.blocks[b];
        group.weights += block.weights;
        group.gradients += block.gradients;
        group.over_weights |= block.over_weights;
        group.states += block.states;
        group.forward += block.forward;
        group.backward += block.backward;
        ++size;
    }
    number.back() = static_cast<int>(result.blocks.size());
    for (OffloadedRank::Pass& pass : result.passes)
        pass = {number[static_cast<std::size_t>(pass.first)], number[static_cast<std::size_t>(pass.end)],
                pass.backward};
    return result;
}

// Of a block. The states are three chunks, as in the runtime: the master and the two moments.
enum BlockData : std::int32_t { weights, gradients, states, kinds = states + 3 };

class Step {
  public:
    // The first `at_home` blocks are updated by the host: the next step needs them first, but the host has begun on
    // them when the device updates the others.
    Step(const OffloadedRank& rank, std::size_t at_home) : rank_(rank) {
        problem_.capacity = {static_cast<std::int64_t>(rank.device)};
        problem_.host = {.latency = rank.copy.latency, .in = rank.copy.bytes, .out = rank.copy.bytes};
        for (const OffloadedRank::Block& block : rank.blocks)
            for (double bytes : {block.weights, block.gradients, block.states / 3, block.states / 3, block.states / 3})
                problem_.residents.push_back({static_cast<std::int64_t>(bytes)});
        std::vector<bool> written(rank.blocks.size());
        for (const OffloadedRank::Pass& pass : rank.passes) {
            if (!pass.backward)
                for (int b = pass.first; b < pass.end; ++b) compute(b, false, false);
            else
                for (int b = pass.end; b-- > pass.first;) {
                    compute(b, true, !written[static_cast<std::size_t>(b)]);
                    written[static_cast<std::size_t>(b)] = true;
                }
        }
        for (std::size_t b = 0; b < rank.blocks.size(); ++b) update(b, b < at_home);
    }

    const ResidencyProblem& problem() const { return problem_; }

  private:
    void use(std::int32_t block, std::int32_t kind, Access access, bool at_home = false) {
        const std::int32_t resident = kinds * block + kind;
        if (problem_.residents[static_cast<std::size_t>(resident)].count > 0)
            problem_.uses.push_back({problem_.moments(), resident, access, at_home});
    }

    void compute(std::int32_t block, bool backward, bool first) {
        const OffloadedRank::Block& one = rank_.blocks[static_cast<std::size_t>(block)];
        use(block, weights, backward && one.over_weights ? Access::accumulate : Access::read);
        if (backward) use(block, gradients, first ? Access::write : Access::accumulate);
        problem_.seconds.push_back(backward ? one.backward : one.forward);
    }

    void update(std::size_t number, bool at_home) {
        const auto block = static_cast<std::int32_t>(number);
        const OffloadedRank::Block& one = rank_.blocks[number];
        use(block, gradients, Access::read, at_home);
        for (std::int32_t state = states; state < kinds; ++state) use(block, state, Access::accumulate, at_home);
        use(block, weights, one.over_weights ? Access::accumulate : Access::write, at_home);
        const double bytes = one.gradients + one.states + one.weights;
        problem_.at_home.resize(problem_.seconds.size() + 1);
        if (at_home) problem_.at_home.back() = bytes / rank_.host_update;
        problem_.seconds.push_back(at_home ? 0 : bytes / rank_.device_update);
    }

    const OffloadedRank& rank_;
    ResidencyProblem problem_;
};

OffloadCost cost_of(const ResidencyProblem& problem, const ResidencyPlan& plan) {
    OffloadCost cost{.copied = static_cast<double>((plan.fetched + plan.returned).count)};
    cost.exposed = plan.seconds - std::accumulate(problem.seconds.begin(), problem.seconds.end(), 0.0);
    std::vector<bool> has_home(problem.residents.size());
    for (const Stay& stay : plan.stays)
        if (stay.fetched || stay.returned) has_home[static_cast<std::size_t>(stay.resident)] = true;
    for (const ResidentUse& use : problem.uses)
        if (use.at_home) has_home[static_cast<std::size_t>(use.resident)] = true;
    for (std::size_t r = 0; r < has_home.size(); ++r)
        if (has_home[r]) cost.at_home += static_cast<double>(problem.residents[r].count);
    return cost;
}

std::optional<ResidencyPlan> plan_if_it_fits(const ResidencyProblem& problem) {
    if (least_capacity(problem) > problem.capacity) return std::nullopt;
    try {
        return plan_residency(problem);
    } catch (const Error&) { // memory falls into pieces too small
        return std::nullopt;
    }
}

} // namespace

std::optional<OffloadCost> offload_cost(const OffloadedRank& whole) {
    const OffloadedRank rank = coarser(whole);
    const std::size_t blocks = rank.blocks.size();
    std::optional<OffloadCost> best;
    double least = 0;
    for (const std::size_t quarters : {4U, 0U, 2U, 1U, 3U}) {
        const std::size_t at_home = blocks * quarters / 4;
        const Step step(rank, at_home);
        const auto plan = plan_if_it_fits(step.problem());
        if (!plan || (best && plan->seconds >= least)) continue;
        const OffloadCost cost = cost_of(step.problem(), *plan);
        if (cost.at_home > rank.host) continue;
        least = plan->seconds;
        best = cost;
        best->home_updates = blocks > 0 ? static_cast<double>(at_home) / static_cast<double>(blocks) : 0;
    }
    return best;
}

} // namespace tutti
