// How fast schedules are evaluated: ns per task and plans per second on one core, the two sizes a planner meets.
#include "schedule/evaluate.h"
#include "schedule/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

using namespace tutti;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void measure(const char* family, int ranks, int stages_per_rank, int micro_batches) {
    const tutti::schedule::ScheduleParameters parameters{
        .family = family, .ranks = ranks, .micro_batches = micro_batches, .stages_per_rank = stages_per_rank};
    const tutti::schedule::Costs costs = tutti::schedule::uniform_costs(
        tutti::schedule::resolve(parameters), {.forward = 1, .backward = 1.2, .weight_gradient = 0.8}, 0.05);
    double begin = seconds();
    const tutti::schedule::Schedule schedule = tutti::schedule::make_schedule(parameters, costs);
    const double making = seconds() - begin;
    begin = seconds();
    tutti::schedule::Evaluator evaluator(schedule);
    const double preparing = seconds() - begin;
    tutti::schedule::Evaluation result;
    const auto tasks = static_cast<double>(evaluator.tasks());
    const int repeats = static_cast<int>(std::max(10.0, 2e6 / tasks));
    double best = 1e9, total = 0;
    for (int round = 0; round < 20; ++round) {
        begin = seconds();
        for (int i = 0; i < repeats; ++i) evaluator.evaluate(costs, result);
        const double each = (seconds() - begin) / repeats;
        best = std::min(best, each);
        total += each;
    }
    const double mean = total / 20;
    fmt::print("{:12} P={:2} V={} M={:3}  {:6.0f} tasks  {:5.2f} ns per task (mean {:5.2f})  {:8.2f} us per plan  "
               "{:7.0f} plans/s  prepare {:.0f} us  generate {:.0f} us  bubble {:.4f}\n",
               family, ranks, stages_per_rank, micro_batches, tasks, best / tasks * 1e9, mean / tasks * 1e9, best * 1e6,
               1 / best, preparing * 1e6, making * 1e6, result.bubble);
}

} // namespace

int main() {
    measure("interleaved", 8, 2, 32);
    measure("zb-v", 8, 2, 32);
    measure("interleaved", 32, 2, 128);
    measure("zb-v", 32, 2, 128);
}
