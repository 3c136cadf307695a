// Every family of models, sharded over the tensor axis by default, gives the loss and the gradients of one device.
#include "formats/json.h"
#include "mesh/compare.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::testing {
namespace {

const fs::path references = fs::path(TUTTI_TEST_DATA) / "references";

std::vector<std::string> families() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(references))
        if (fs::exists(entry.path() / "config.json")) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

Model build(const std::string& family, const ModelShape& shape) {
    return ModelSource(read_json(references / family / "config.json"), family).build(shape);
}

class Families : public ::testing::TestWithParam<std::string> {};

TEST_P(Families, GiveTheNumbersOfOneDevice) {
    const Graph step = step_graph(build(GetParam(), {2, 7, DType::float64}));
    for (bool sequence_parallel : {false, true})
        for (int size : {2}) {
            SCOPED_TRACE(fmt::format("{} ranks, sequence {}", size, sequence_parallel ? "split" : "whole"));
            const ShardedMesh mesh =
                shard_mesh(step, {{"tensor", 0, size}}, [&](const Graph& graph, const AxisPlace& place) {
                    return default_assignment(graph, place, {sequence_parallel, {}});
                });
            EXPECT_EQ(differences(step, mesh), std::vector<std::string>{});
        }
}

INSTANTIATE_TEST_SUITE_P(Default, Families, ::testing::ValuesIn(families()), [](const auto& one) {
    std::string name = one.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

} // namespace
} // namespace tutti::testing
