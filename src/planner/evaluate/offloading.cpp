#include "planner/evaluate/offloading.h"

#include "base/error.h"
#include "offload/residency.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

namespace tutti::planner {
namespace {

constexpr std::size_t most_time_points = 1024; // of which residency is planned in a few milliseconds

std::size_t time_points_of(std::span<const OffloadedRank::Pass> passes) {
    std::size_t time_points = 0;
    for (const OffloadedRank::Pass& pass : passes) time_points += static_cast<std::size_t>(pass.end - pass.first);
    return time_points;
}
std::size_t time_points_of(const OffloadedRank& rank) { return rank.blocks.size() + time_points_of(rank.passes); }

// Passes that come over and over: the steady part of a step, with a micro-batch in each.
struct Repeats {
    std::size_t begin = 0, unit = 0; // the passes of one
    std::size_t times = 0;
};

Repeats longest_repeats(const std::vector<OffloadedRank::Pass>& passes) {
    constexpr std::size_t most_passes = 16;
    Repeats longest;
    for (std::size_t unit = 1; unit <= most_passes; ++unit)
        for (std::size_t begin = 0; begin + unit < passes.size();) {
            std::size_t end = begin + unit;
            while (end < passes.size() && passes[end] == passes[end - unit]) ++end;
            const std::size_t times = (end - begin) / unit;
            if (times * unit > longest.times * longest.unit && times > 1) longest = {begin, unit, times};
            begin = end - unit + 1;
        }
    return longest;
}

void erase_repeats(OffloadedRank& rank, const Repeats& from, std::size_t times) {
    const auto begin = rank.passes.begin() + static_cast<std::ptrdiff_t>(from.begin);
    rank.passes.erase(begin, begin + static_cast<std::ptrdiff_t>(times * from.unit));
}

// Leaves some where a step is long, at least a few, and says which are left out.
std::vector<Repeats> shorten(OffloadedRank& rank) {
    constexpr std::size_t few = 3;
    std::vector<Repeats> left_out;
    while (time_points_of(rank) > most_time_points) {
        Repeats repeats = longest_repeats(rank.passes);
        if (repeats.times <= few) break;
        const std::size_t each = time_points_of(std::span(rank.passes).subspan(repeats.begin, repeats.unit));
        const std::size_t enough = (time_points_of(rank) - most_time_points + each - 1) / each;
        repeats.times = std::min(enough, repeats.times - few);
        erase_repeats(rank, repeats, repeats.times);
        for (Repeats& other : left_out)
            if (other.begin > repeats.begin) other.begin -= repeats.times * repeats.unit;
        left_out.push_back(repeats);
    }
    return left_out;
}

// So many neighbouring blocks of the same passes as one.
OffloadedRank coarser(const OffloadedRank& rank, std::size_t together) {
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
    // The first `on_host` blocks are updated by the host: the next step needs them first, but the host has begun on
    // them when the device updates the others.
    Step(const OffloadedRank& rank, std::size_t on_host) : rank_(rank) {
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
        for (std::size_t b = 0; b < rank.blocks.size(); ++b) update(b, b < on_host);
    }

    const offload::ResidencyProblem& problem() const { return problem_; }

  private:
    void use(std::int32_t block, std::int32_t kind, Access access, bool on_host = false) {
        const std::int32_t resident = kinds * block + kind;
        if (problem_.residents[static_cast<std::size_t>(resident)].count > 0)
            problem_.uses.push_back({problem_.time_points(), resident, access, on_host});
    }

    void compute(std::int32_t block, bool backward, bool first) {
        const OffloadedRank::Block& one = rank_.blocks[static_cast<std::size_t>(block)];
        use(block, weights, backward && one.over_weights ? Access::accumulate : Access::read);
        if (backward) use(block, gradients, first ? Access::write : Access::accumulate);
        problem_.seconds.push_back(backward ? one.backward : one.forward);
    }

    void update(std::size_t number, bool on_host) {
        const auto block = static_cast<std::int32_t>(number);
        const OffloadedRank::Block& one = rank_.blocks[number];
        use(block, gradients, Access::read, on_host);
        for (std::int32_t state = states; state < kinds; ++state) use(block, state, Access::accumulate, on_host);
        use(block, weights, one.over_weights ? Access::accumulate : Access::write, on_host);
        const double bytes = one.gradients + one.states + one.weights;
        problem_.on_host.resize(problem_.seconds.size() + 1);
        if (on_host) problem_.on_host.back() = bytes / rank_.host_update;
        problem_.seconds.push_back(on_host ? 0 : bytes / rank_.device_update);
    }

    const OffloadedRank& rank_;
    offload::ResidencyProblem problem_;
};

OffloadCost cost_of(const offload::ResidencyProblem& problem, const offload::ResidencyPlan& plan) {
    OffloadCost cost{.seconds = plan.seconds, .copied = static_cast<double>((plan.fetched + plan.returned).count)};
    cost.exposed = plan.seconds - std::accumulate(problem.seconds.begin(), problem.seconds.end(), 0.0);
    std::vector<bool> has_backing(problem.residents.size());
    for (const offload::ResidencyInterval& interval : plan.intervals)
        if (interval.fetched || interval.returned) has_backing[static_cast<std::size_t>(interval.resident)] = true;
    for (const offload::ResidentUse& use : problem.uses)
        if (use.on_host) has_backing[static_cast<std::size_t>(use.resident)] = true;
    for (std::size_t r = 0; r < has_backing.size(); ++r)
        if (has_backing[r]) cost.on_host += static_cast<double>(problem.residents[r].count);
    return cost;
}

std::optional<offload::ResidencyPlan> plan_if_it_fits(const offload::ResidencyProblem& problem) {
    if (offload::least_capacity(problem) > problem.capacity) return std::nullopt;
    try {
        return offload::plan_residency(problem);
    } catch (const Error&) { // memory falls into pieces too small
        return std::nullopt;
    }
}

// The cost of a step, the host updating the first blocks.
std::optional<OffloadCost> try_updates(const OffloadedRank& rank, std::size_t on_host) {
    const Step step(rank, on_host);
    const auto plan = plan_if_it_fits(step.problem());
    if (!plan) return std::nullopt;
    return cost_of(step.problem(), *plan);
}

double computing(const OffloadedRank& rank, const Repeats& repeats) {
    double seconds = 0;
    for (const OffloadedRank::Pass& pass : std::span(rank.passes).subspan(repeats.begin, repeats.unit))
        for (int b = pass.first; b < pass.end; ++b) {
            const OffloadedRank::Block& block = rank.blocks[static_cast<std::size_t>(b)];
            seconds += pass.backward ? block.backward : block.forward;
        }
    return seconds;
}

// The same with what was left out, where that takes less than `most` seconds: another time of it takes its computing,
// and waits as the last one did.
std::optional<OffloadCost> try_updates(const OffloadedRank& rank, const std::vector<Repeats>& left_out,
                                       std::size_t on_host, double most) {
    const std::optional<OffloadCost> kept = try_updates(rank, on_host);
    if (!kept || kept->on_host > rank.host) return std::nullopt;
    OffloadCost cost = *kept;
    for (const Repeats& repeats : left_out)
        cost.seconds += static_cast<double>(repeats.times) * computing(rank, repeats);
    for (const Repeats& repeats : left_out) {
        if (cost.seconds >= most) return std::nullopt;
        OffloadedRank shorter = rank;
        erase_repeats(shorter, repeats, 1);
        const std::optional<OffloadCost> less = try_updates(shorter, on_host);
        if (!less) return std::nullopt;
        const auto times = static_cast<double>(repeats.times);
        const double waiting = times * std::max(0.0, kept->exposed - less->exposed);
        cost.seconds += waiting;
        cost.exposed += waiting;
        cost.copied += times * std::max(0.0, kept->copied - less->copied);
    }
    if (cost.seconds >= most) return std::nullopt;
    return cost;
}

std::optional<OffloadCost> best_updates(const OffloadedRank& rank, const std::vector<Repeats>& left_out) {
    const std::size_t blocks = rank.blocks.size();
    std::optional<OffloadCost> best;
    for (const std::size_t quarters : {4U, 0U, 2U, 1U, 3U}) {
        const std::size_t on_host = blocks * quarters / 4;
        const double most = best ? best->seconds : std::numeric_limits<double>::infinity();
        const auto cost = try_updates(rank, left_out, on_host, most);
        if (!cost) continue;
        best = cost;
        best->host_update_share = blocks > 0 ? static_cast<double>(on_host) / static_cast<double>(blocks) : 0;
    }
    return best;
}

} // namespace

std::optional<OffloadCost> offload_cost(const OffloadedRank& whole) {
    OffloadedRank rank = whole;
    const std::vector<Repeats> left_out = shorten(rank);
    // Many blocks are taken together, as far as they fit so.
    for (std::size_t together = (time_points_of(rank) + most_time_points - 1) / most_time_points;; together /= 2) {
        const auto cost = best_updates(coarser(rank, together), left_out);
        if (cost || together <= 1) return cost;
    }
}

} // namespace tutti::planner
