#include "profiling/measuring_cost.h"

#include "base/clock.h"
#include "comm/agree.h"
#include "costs/operator_cost.h"
#include "ops/operators.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tutti::profiling {
namespace {

costs::KernelSample sample_of(const Instruction& one, double seconds, Bytes workspace) {
    const Cost cost = costs::cost_of(ops::all_operators(), one.op, costs::types_of(one.inputs),
                                     costs::types_of(one.outputs), one.attributes);
    return {one.op, cost.flops.count, static_cast<double>(cost.bytes.count), seconds, workspace};
}

struct Together {
    std::map<std::string, costs::KernelSample> kernels{}; // each with the mean of the ranks that timed it
    double slowdown = 1;                                  // of the slowest rank, in kernels that all have
};

Together merged(comm::Group& all, const std::map<std::string, costs::KernelSample>& mine) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [key, sample] : mine)
        list.push_back({key, sample.op, sample.flops, sample.bytes, sample.seconds, sample.workspace.count});
    Together together;
    std::vector<costs::KernelTimes> ranks;
    for (const std::string& text : comm::gather_texts(all, list.dump())) {
        costs::KernelTimes& times = ranks.emplace_back();
        for (const nlohmann::json& one : nlohmann::json::parse(text)) {
            const std::string key = one.at(0);
            times.seconds.emplace(key, one.at(4).get<double>());
            together.kernels.try_emplace(
                key, costs::KernelSample{one.at(1), one.at(2), one.at(3), 0, {one.at(5).get<std::int64_t>()}});
        }
    }
    for (auto& [key, sample] : together.kernels) {
        int count = 0;
        for (const costs::KernelTimes& times : ranks)
            if (const auto found = times.seconds.find(key); found != times.seconds.end()) {
                sample.seconds += found->second;
                ++count;
            }
        sample.seconds /= count;
    }
    const std::vector<double> slowdowns = costs::pooled(ranks).slowdowns;
    together.slowdown = *std::ranges::max_element(slowdowns);
    return together;
}

// What an update does to a chunk takes in proportion to its size, so that one of about that size is enough.
bool is_of_chunks(const Instruction& instruction) {
    return instruction.kind == InstructionKind::update || instruction.kind == InstructionKind::squared_norm;
}

} // namespace

MeasuringCost::MeasuringCost(costs::CostProfile profile, const backend::Device& device, comm::World& world,
                             const MeasuringOptions& options)
    : costs::MeasuredCost(std::move(profile), ops::all_operators()), device_(device), world_(world), options_(options),
      sensitivity_(device.asynchronous() ? costs::CacheSensitivity::insensitive : costs::CacheSensitivity::sensitive) {}

bool MeasuringCost::is_known(const Instruction& instruction, bool accumulate) const {
    if (profile().kernels.contains(costs::kernel_key(instruction, accumulate, sensitivity_))) return true;
    if (!is_of_chunks(instruction)) return false;
    const double bytes = sample_of(instruction, 0, {}).bytes;
    return std::ranges::any_of(profile().kernels, [&](const auto& entry) {
        const costs::KernelSample& sample = entry.second;
        return sample.op == instruction.op && sample.bytes <= 2 * bytes && bytes <= 2 * sample.bytes;
    });
}

TimingListener MeasuringCost::listener() const {
    if (!options_.tell) return {};
    return [this, told = Seconds{-1}](std::size_t timed, std::size_t all) mutable {
        if (const Seconds now = steady_now(); now.count - told.count > 0.2) {
            told = now;
            options_.tell(fmt::format("timing kernels: {} of {}{}", timed, all,
                                      measured_ > 0 ? fmt::format(", {} before", measured_) : ""));
        }
    };
}

void MeasuringCost::expect(const Program& program) const {
    std::vector<TimingRequest> all_kernels, requests;
    for (const Segment& segment : program.segments)
        for (const Instruction& one : segment.instructions) {
            if (one.lane != Lane::compute) continue;
            for (bool accumulate : {false, true}) {
                if (accumulate && !adds(one)) continue;
                all_kernels.push_back({&one, accumulate});
                if (!is_known(one, accumulate)) requests.push_back({&one, accumulate});
            }
        }
    // Ranks of a tensor group may differ in what they hold; all measure where one of them has to.
    comm::Group& all = world_.all();
    const std::vector<std::size_t> missing = comm::gather_values(all, requests.size());
    if (std::ranges::max(missing) == 0) return;
    const double lasting =
        std::min(options_.lasting.count * static_cast<double>(std::ranges::max(missing)), options_.most_at_once.count);
    const auto own = device_.memory();
    Bytes most{own ? own->free.count / 4 : std::int64_t{512} << 20};
    if (options_.most_memory.count > 0) most = std::min(most, options_.most_memory);
    const TimedKernels timed = time_kernels(device_.asynchronous() ? all_kernels : requests, device_, all,
                                            options_.apart, {lasting}, most, listener());
    std::map<std::string, costs::KernelSample> mine;
    for (const TimingRequest& request : requests) {
        const std::string key = costs::kernel_key(*request.instruction, request.accumulate);
        if (const auto found = timed.times.seconds.find(key); found != timed.times.seconds.end())
            mine.emplace(costs::kernel_key(*request.instruction, request.accumulate, sensitivity_),
                         sample_of(*request.instruction, found->second, timed.workspace.at(key)));
    }
    const Together together = merged(all, mine);
    measured_ += together.kernels.size();
    add(together.kernels, together.slowdown);
}

} // namespace tutti::profiling
