// Every family of schedules runs, and trains as one process does, with and without recomputation.
#include "run_ranks.h"

#include "schedule/families.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace run;
using namespace schedule;
using namespace sharding;
using namespace train;
namespace {

const Recorder& one_process() {
    static const Recorder recorder = [] {
        RunConfig config = small_run("llama");
        config.steps = 2;
        Recorder result;
        const std::atomic<bool> stop = false;
        train::train(config, result, stop);
        return result;
    }();
    return recorder;
}

class EverySchedule : public testing::TestWithParam<std::tuple<std::string, double>> {};

TEST_P(EverySchedule, TrainsAsOneProcessDoes) {
    RunConfig config = small_run("llama");
    config.steps = 2;
    config.schedule = std::get<0>(GetParam());
    config.recompute.share = std::get<1>(GetParam());
    config.mesh = Mesh{.pipe = 4};
    expect_same_training(one_process(), train_on_ranks(config).listeners[0]);
}

std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const Family& family : families()) all.emplace_back(family.name);
    return all;
}

INSTANTIATE_TEST_SUITE_P(Families, EverySchedule,
                         testing::Combine(testing::ValuesIn(names()), testing::Values(0.0, 1.0)), [](const auto& one) {
                             std::string name = std::get<0>(one.param) + (std::get<1>(one.param) > 0 ? "Again" : "");
                             std::erase(name, '-');
                             return name;
                         });

} // namespace
} // namespace tutti::test
