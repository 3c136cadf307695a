#include "profiling/kernel_timing.h"

#include "base/clock.h"
#include "comm/agree.h"
#include "comm/measure.h"
#include "profiling/kernel_bench.h"
#include "profiling/step_timing.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace tutti::profiling {
namespace {

// The kernels of a step.
std::vector<TimingRequest> kernels_of(const Program& program) {
    std::vector<TimingRequest> requests;
    for (const Task& task : program.step) {
        if (task.segment < 0) continue;
        for (const Instruction& instruction : program.segments[static_cast<std::size_t>(task.segment)].instructions)
            if (instruction.lane != Lane::communication && is_run_by(instruction, task))
                requests.push_back({&instruction, accumulates(instruction, task)});
    }
    return requests;
}

// Of a host the lower quartile: what others do on the machine makes some slower, and none faster.
double lower_quartile(std::vector<double>& samples) {
    const auto at = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 4);
    std::ranges::nth_element(samples, at);
    return *at;
}

// `round` three times, and more while there is time.
void repeat(comm::Group& all, Seconds lasting, const std::function<void()>& round) {
    constexpr int least = 3, most = 50;
    comm::barrier(all);
    const Seconds begin = steady_now();
    auto goes_on = [&](int rounds) {
        return rounds < least || (rounds < most && steady_now().count - begin.count < lasting.count);
    };
    for (int rounds = 0; goes_on(rounds); ++rounds) round();
    comm::barrier(all); // what is measured next would disturb those that are not done
}

} // namespace

TimedKernels time_kernels(std::span<const TimingRequest> requests, const backend::Device& device, comm::Group& all,
                          Bytes apart, Seconds lasting, Bytes most_memory, const TimingListener& listener) {
    if (const auto memory = device.memory()) most_memory = std::min(most_memory, Bytes{memory->free.count / 8 + 1});
    TimedStep kernels = prepare_timing(requests, device, most_memory);
    // Addresses, too, are looked up in caches: a device reaches far more memory than theirs in a step.
    const Bytes most_apart = device.asynchronous() ? most_memory : std::min(beyond_caches, most_memory);
    KernelBench bench(kernels.kernels, device, std::clamp(apart, Bytes{1}, most_apart), most_memory);
    auto each = [&](const std::function<void(TimedKernel&)>& work) {
        for (std::size_t k = 0; k < kernels.kernels.size(); ++k) {
            if (listener) listener(k, kernels.kernels.size());
            work(kernels.kernels[k]);
        }
    };
    each([&](TimedKernel& one) { bench.time(one); }); // the first time, libraries load what they need
    std::vector<double> seconds;
    if (device.asynchronous()) {
        StepTiming timing(kernels, bench);
        repeat(all, lasting, [&] {
            if (listener) listener(0, kernels.kernels.size());
            timing.round();
        });
        seconds = timing.result();
    } else {
        repeat(all, lasting, [&] { each([&](TimedKernel& one) { one.samples.push_back(bench.time(one)); }); });
        for (TimedKernel& one : kernels.kernels) seconds.push_back(lower_quartile(one.samples));
    }
    TimedKernels timed;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        timed.times.seconds.emplace(kernels.kernels[i].key, seconds[i]);
        timed.workspace.emplace(kernels.kernels[i].key, kernels.kernels[i].kernel->workspace());
    }
    return timed;
}

costs::KernelTimes time_kernels(const Program& program, const backend::Device& device, comm::Group& all,
                                Seconds lasting, Bytes most_memory) {
    const Bytes apart = chunk_bytes(program, Region::weights) + chunk_bytes(program, Region::gradients);
    return time_kernels(kernels_of(program), device, all, apart, lasting, most_memory).times;
}

} // namespace tutti::profiling
