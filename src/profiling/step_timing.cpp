#include "profiling/step_timing.h"

#include "base/clock.h"
#include "profiling/median.h"

#include <algorithm>
#include <utility>

namespace tutti::profiling {

StepTiming::StepTiming(TimedStep& step, KernelBench& bench) : step_(step), bench_(bench) {
    constexpr double of_row = 5e-3, of_piece = 12e-3, of_step = 0.4; // seconds
    std::vector<double> seconds;
    for (const TimedKernel& one : step.kernels) seconds.push_back(std::max(bench.time(one), 1e-6));
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        const auto length = static_cast<std::size_t>(std::clamp(of_row / seconds[i], 2.0, 512.0));
        rows_.push_back(recorded(std::vector(length, i)));
    }
    double whole = 0;
    while (!step.order.empty() && whole < of_piece) { // once or, if it is short, again
        std::vector<std::size_t> piece;
        double sum = 0;
        for (const std::size_t kernel : step.order) {
            piece.push_back(kernel);
            sum += seconds[kernel];
            if (sum < of_piece) continue;
            pieces_.push_back(recorded(std::exchange(piece, {})));
            whole += std::exchange(sum, 0);
            if (whole > of_step) break;
        }
        if (!piece.empty()) pieces_.push_back(recorded(std::move(piece)));
        whole += sum;
    }
    heat();
}

void StepTiming::round() {
    steps_.push_back(time_step());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        const double row = time([&] { give(rows_[i]); });
        step_.kernels[i].samples.push_back(row / static_cast<double>(rows_[i].kernels.size()));
    }
}

std::vector<double> StepTiming::result() {
    std::vector<double> seconds;
    for (TimedKernel& one : step_.kernels) seconds.push_back(median(one.samples));
    double rows = 0;
    for (const Recorded& piece : pieces_)
        for (const std::size_t kernel : piece.kernels) rows += seconds[kernel];
    if (rows > 0)
        for (const double factor = median(steps_) / rows; double& one : seconds) one *= factor;
    return seconds;
}

StepTiming::Recorded StepTiming::recorded(std::vector<std::size_t> kernels) {
    return {kernels, bench_.queue().record([&] { run(kernels); })};
}

void StepTiming::run(std::span<const std::size_t> kernels) {
    for (const std::size_t kernel : kernels) bench_.run(step_.kernels[kernel]);
}

void StepTiming::give(const Recorded& one) {
    if (!one.recording) return run(one.kernels);
    bench_.queue().replay(*one.recording);
}

void StepTiming::give_piece() {
    if (!pieces_.empty()) give(pieces_[next_++ % pieces_.size()]);
}

// Until the step takes no longer than it did before: a device that has been idle is faster.
void StepTiming::heat() {
    if (pieces_.empty()) return;
    constexpr double stretch = 0.25, at_most = 3; // seconds
    const Seconds start = steady_now();
    for (double before = 0;;) {
        double now = 0;
        int count = 0;
        for (const Seconds begin = steady_now(); steady_now().count - begin.count < stretch; ++count)
            now += time_step();
        now /= count;
        if (now < 1.003 * before || steady_now().count - start.count > at_most) return;
        before = now;
    }
}

double StepTiming::time_step() {
    return time([&] {
        for (std::size_t i = 0; i < pieces_.size(); ++i) give_piece();
    });
}

// Right behind a piece of the step.
double StepTiming::time(const std::function<void()>& work) {
    Seconds begin, end;
    bench_.reset_scalars();
    give_piece();
    bench_.queue().note_time(begin);
    work();
    bench_.queue().note_time(end);
    bench_.queue().synchronize();
    return end.count - begin.count;
}

} // namespace tutti::profiling
