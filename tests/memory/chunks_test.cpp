#include "memory/chunks.h"

#include "ops/operators.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace memory;
using namespace ops;
namespace {

// Two small tensors, a large one, a tied one with two contributions, and one that nothing trains.
Graph example() {
    Graph graph(all_operators());
    std::vector<ValueId> parameters;
    for (const Shape& shape : {Shape{10}, Shape{3, 5}, Shape{40, 50}, Shape{8, 8}, Shape{7}})
        parameters.push_back(graph.add_parameter(graph.add_stored(to_string(shape), {DType::float32, shape})));
    for (std::size_t i : {0u, 1u, 2u, 3u, 3u})
        graph.add_output({"gradient", graph.add("negate", {parameters[i]}), parameters[i]});
    return graph;
}

TEST(Chunks, EveryTensorLiesAlignedInsideExactlyOneChunk) {
    const Graph graph = example();
    const ChunkLayout layout = lay_out_chunks(chunk_tensors(graph), 500);
    std::vector<int> seen(graph.stored().size(), 0);
    for (const Chunk& chunk : layout.chunks) {
        std::int64_t end = 0;
        for (std::int32_t stored : chunk.tensors) {
            const ChunkTensor& tensor = layout.tensor(stored);
            EXPECT_EQ(&layout.chunks[static_cast<std::size_t>(tensor.chunk)], &chunk);
            EXPECT_EQ(tensor.offset % chunk_alignment, 0);
            EXPECT_GE(tensor.offset, end);
            end = tensor.range().end;
            EXPECT_EQ(tensor.range().size(), graph.stored()[static_cast<std::size_t>(stored)].type.elements());
            ++seen[static_cast<std::size_t>(stored)];
        }
        EXPECT_LE(end, chunk.elements);
    }
    EXPECT_EQ(seen, std::vector<int>(5, 1));
}

TEST(Chunks, LargeAndTiedTensorsHaveChunksOfTheirOwn) {
    const ChunkLayout layout = lay_out_chunks(chunk_tensors(example()), 500);
    ASSERT_EQ(layout.chunks.size(), 3u);
    EXPECT_EQ(layout.tensors[0].chunk, layout.tensors[1].chunk);
    EXPECT_EQ(layout.tensors[4].chunk, layout.tensors[0].chunk); // goes on filling the open chunk
    const Chunk& large = layout.chunks[static_cast<std::size_t>(layout.tensors[2].chunk)];
    const Chunk& tied = layout.chunks[static_cast<std::size_t>(layout.tensors[3].chunk)];
    EXPECT_EQ(large.tensors.size(), 1u);
    EXPECT_EQ(tied.tensors.size(), 1u);
}

// A run lies together at the place of its first, its tensors in the order of the run, whatever lies between them else.
TEST(Chunks, TensorsThatAreOneParameterLieTogether) {
    Graph graph(all_operators());
    for (const char* name : {"q", "qb", "k", "kb"})
        graph.add_stored(name, {DType::float32, name[1] == 'b' ? Shape{64} : Shape{64, 2}});
    graph.add_parameter(2, {128, 2}, dense_layout({128, 2}), {0});
    graph.add_parameter(1, {128}, dense_layout({128}), {3});
    const ChunkLayout layout = lay_out_chunks(chunk_tensors(graph), 1000);
    ASSERT_EQ(layout.chunks.size(), 1u);
    EXPECT_EQ(layout.chunks[0].tensors, (std::vector<std::int32_t>{2, 0, 1, 3}));
    EXPECT_EQ(layout.tensors[0].offset, 128);
    EXPECT_EQ(layout.tensors[3].offset, 256 + 64);
    const ChunkLayout narrow = lay_out_chunks(chunk_tensors(graph), 200); // too large for it: a chunk of its own
    ASSERT_EQ(narrow.chunks.size(), 2u);
    EXPECT_EQ(narrow.tensors[0].chunk, narrow.tensors[2].chunk);
    EXPECT_EQ(narrow.chunks[0].elements, 256);
}

TEST(Chunks, MatricesDecayVectorsDoNotAndUntrainedTensorsAreMarked) {
    const ChunkLayout layout = lay_out_chunks(chunk_tensors(example()), 1 << 20);
    ASSERT_EQ(layout.tensors.size(), 5u);
    for (std::int32_t stored = 0; stored < 5; ++stored) {
        EXPECT_EQ(layout.tensor(stored).decays, stored >= 1 && stored <= 3);
        EXPECT_EQ(layout.tensor(stored).trained, stored != 4);
    }
}

TEST(Chunks, KindsShareNoChunkAndHaveTheirMultiples) {
    const std::vector<ChunkTensor> tensors = {{.elements = 10}, {.elements = 20, .kind = 1}, {.elements = 30}};
    const ChunkLayout layout = lay_out_chunks(tensors, 1000, std::vector<std::int64_t>{64, 192});
    ASSERT_EQ(layout.chunks.size(), 2u);
    EXPECT_EQ(layout.tensors[0].chunk, layout.tensors[2].chunk);
    EXPECT_EQ(layout.chunks[0].elements, 128);
    EXPECT_EQ(layout.chunks[1].elements, 192);
}

} // namespace
} // namespace tutti
