// Chunks of the shapes of real models: laid out without weights.
#include "offload/chunk_size.h"

#include "base/error.h"
#include "base/file.h"
#include "models/builtin.h"
#include "models/model.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti {

using namespace memory;
using namespace models;
using namespace offload;
namespace {

struct SmallModel {
    std::string name;
    std::int64_t hidden, layers;
};

Graph graph_of(const ModelSource& source) { return source.build({1, 8, DType::bfloat16}).graph; }

Graph gpt_of(const test::TemporaryFolder& folder, const SmallModel& shape) {
    nlohmann::json config = find_builtin("gpt2")->config;
    config["n_embd"] = shape.hidden;
    config["n_layer"] = shape.layers;
    config["n_head"] = shape.hidden / 64;
    fs::create_directories(folder / shape.name);
    write_text_atomically(folder / shape.name / "config.json", config.dump());
    return graph_of(open_model((folder / shape.name).string()));
}

void expect_good(const std::string& name, const Graph& graph) {
    const std::vector<Block> blocks = find_blocks(graph);
    const ChunkFit fit = best_chunk_fit(graph);
    std::int64_t all = 0;
    for (const StoredTensor& stored : graph.stored()) all += stored.type.elements();
    EXPECT_GE(fit.utilisation, 0.97) << name;
    EXPECT_LE(fit.touched, 1.02) << name << ": chunks end where blocks do";
    EXPECT_LE(fit.even, name.ends_with('B') ? 1.03 : 1.7) << name; // the former's layers are three times 4 h²
    EXPECT_GE(all, fit.capacity * static_cast<std::int64_t>(blocks.size()) / 4)
        << name << ": chunks are parts of layers";
}

// Hidden size and layers of the models of the PatrickStar paper.
TEST(ChunkSize, FitsPatrickStarsModels) {
    test::TemporaryFolder folder;
    for (const SmallModel& shape : {SmallModel{"1B", 2048, 20},
                                    {"2B", 2048, 40},
                                    {"4B", 2304, 64},
                                    {"6B", 3072, 53},
                                    {"8B", 3072, 72},
                                    {"10B", 4096, 50},
                                    {"12B", 4096, 60},
                                    {"13B", 4096, 65},
                                    {"15B", 4096, 78},
                                    {"18B", 4096, 90},
                                    {"20B", 8192, 25},
                                    {"40B", 8192, 50},
                                    {"50B", 8192, 62},
                                    {"60B", 8192, 75},
                                    {"68B", 9216, 66},
                                    {"175B", 12288, 96}})
        expect_good(shape.name, gpt_of(folder, shape));
}

TEST(ChunkSize, FitsModelsOfToday) {
    for (const char* name : {"llama2-7b", "qwen2.5-7b", "qwen2.5-0.5b", "gpt2", "gpt2-xl"})
        expect_good(name, graph_of(open_model(name)));
    // Llama 3 8B
    test::TemporaryFolder folder;
    nlohmann::json config = find_builtin("llama2-7b")->config;
    config["vocab_size"] = 128256;
    config["intermediate_size"] = 14336;
    config["num_key_value_heads"] = 8;
    write_text_atomically(folder / "config.json", config.dump());
    expect_good("llama3-8b", graph_of(open_model((folder / ".").string())));
}

TEST(ChunkSize, EndsWhereTensorsDo) {
    // Two layers of 3 + 1 and 4 units: chunks of four hold one block each.
    constexpr std::int64_t unit = chunk_alignment << 18;
    std::vector<ChunkTensor> tensors;
    int number = 0;
    for (std::int64_t size : {3, 1, 4, 3, 1, 4})
        tensors.push_back(
            {.elements = size * unit, .block = std::array{0, 0, 1, 2, 2, 3}[static_cast<std::size_t>(number++)]});
    std::vector<Block> blocks;
    for (const std::vector<std::int32_t>& stored : {std::vector<std::int32_t>{0, 1}, {2}, {3, 4}, {5}}) {
        Block& block = blocks.emplace_back();
        block.stored = stored;
        block.parameters = 4 * unit;
    }
    const ChunkFit fit = best_chunk_fit(tensors, blocks);
    EXPECT_EQ(fit.capacity, 4 * unit);
    EXPECT_EQ(fit.touched, 1);
    EXPECT_EQ(fit.even, 1);
    EXPECT_GT(chunk_fit(tensors, blocks, 3 * unit).even, 1);
    EXPECT_EQ(chunk_fit(tensors, blocks, 5 * unit).touched, 1); // blocks do not begin where they would not fit
}

} // namespace
} // namespace tutti
