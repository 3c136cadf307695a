// Files that several ranks write together, and the pieces that go into them.
#include "checkpoints/shared_tensors.h"

#include "checkpoints/tensor_pieces.h"
#include "formats/checksum.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"
#include "support/thread_ranks.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tutti {

using namespace checkpoints;
using namespace comm;
using namespace formats;
using namespace sharding;
using namespace test;
namespace {

using test::run_ranks;
using test::TemporaryFolder;

std::vector<float> counted(std::int64_t elements) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5f;
    return values;
}

std::vector<float> part_of(const TensorSlice& slice) {
    std::vector<float> part;
    const std::vector<float> whole = counted(slice.whole.elements());
    for (const SliceRun& run : slice.runs({0, slice.elements()}))
        part.insert(part.end(), whole.begin() + run.whole, whole.begin() + run.whole + run.count);
    return part;
}

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

// Logits as they are dumped: replicas have other samples, and ranks of the tensor axis other columns. One rank has
// none.
TEST(SharedTensors, PartsOfSeveralRanksBecomeTheFileThatOneWrites) {
    const TemporaryFolder folder;
    const Shape logits{6, 5, 7}, bias{9};
    const std::vector<StoredTensor> specs = {{"logits", DType::float32, logits}, {"bias", DType::float32, bias}};
    test::SafetensorsWriter writer(folder / "one", specs, {{"format", "pt"}});
    writer.append(bytes_of(counted(logits.elements())));
    writer.append(bytes_of(counted(bias.elements())));
    writer.finish();
    for (std::int64_t round : {64, 1000, 1 << 30}) {
        const auto ends = run_ranks(5, [&](Group& group) {
            SharedTensorFile file(group, folder / "many", specs, {{"format", "pt"}}, {round});
            std::vector<std::size_t> mine;
            std::vector<TensorSlice> slices = {{logits, {}}, TensorSlice::all_of(bias)};
            if (group.rank() < 4) {
                const int replica = group.rank() / 2, column = group.rank() % 2;
                slices[0].dims = {even_parts(6, 1, 2)[static_cast<std::size_t>(replica)],
                                  {{0, 5}},
                                  even_parts(7, 1, 2)[static_cast<std::size_t>(column)]};
                mine.push_back(0);
            }
            if (group.rank() == 2) mine.push_back(1);
            file.write(mine, [&](std::size_t tensor, const SharedTensorFile::Put& put) {
                for_each_run(slices[tensor], 0, bytes_of(part_of(slices[tensor])), DType::float32, put);
            });
            EXPECT_EQ(file.checksum(), checksum_of_file(folder / "one"));
        });
        EXPECT_EQ(ends, std::vector<std::string>(5));
        EXPECT_EQ(read_text(folder / "many"), read_text(folder / "one"));
    }
}

TEST(SharedTensors, BytesOutsideATensorAreADefect) {
    const TemporaryFolder folder;
    const std::vector<StoredTensor> specs = {{"a", DType::float32, {4}}, {"b", DType::float32, {4}}};
    const auto world = make_single_world();
    SharedTensorFile file(world->all(), folder / "a", specs);
    const std::vector<float> values = counted(3);
    const std::size_t first = 0;
    EXPECT_THROW(file.write(std::span(&first, 1), [&](std::size_t, const auto& put) { put(2, bytes_of(values)); }),
                 Bug);
}

TEST(SharedTensors, ARankThatCannotSeeTheFileEndsAllWithASentence) {
    const TemporaryFolder folder;
    const std::vector<StoredTensor> specs = {{"a", DType::float32, {4}}};
    const auto ends = run_ranks(3, [&](Group& group) {
        const std::string name = group.rank() == 2 ? "elsewhere/a" : "a"; // as on a machine with a disk of its own
        SharedTensorFile file(group, folder / name, specs);
        const std::size_t first = 0;
        file.write(std::span(&first, 1), [&](std::size_t, const auto&) {});
    });
    for (const std::string& end : ends) {
        EXPECT_EQ(end, ends[0]);
        EXPECT_TRUE(end.starts_with("Error: rank 2: cannot write")) << end;
        EXPECT_NE(end.find("all ranks have to share its folder"), std::string::npos) << end;
    }
}

// What is asked of a file for a slice, and that the right elements are taken of it.
TEST(TensorPieces, ShortRunsAreReadTogetherAndLongOnesAlone) {
    auto reads_of = [](const TensorSlice& slice, std::int64_t first, std::int64_t count) {
        const std::vector<SliceRun> runs = slice.runs({first, first + count});
        std::vector<std::pair<std::int64_t, std::int64_t>> reads;
        std::vector<float> piece(static_cast<std::size_t>(count), -1);
        read_runs(runs, std::as_writable_bytes(std::span(piece)), sizeof(float),
                  [&](std::int64_t from, std::span<std::byte> out) {
                      const auto elements = static_cast<std::int64_t>(out.size() / sizeof(float));
                      reads.emplace_back(from, elements);
                      for (std::int64_t i = 0; i < elements; ++i) {
                          const auto value = static_cast<float>(from + i);
                          std::memcpy(out.data() + i * 4, &value, sizeof value);
                      }
                  });
        for (const SliceRun& one : runs)
            for (std::int64_t i = 0; i < one.count; ++i)
                EXPECT_EQ(piece[static_cast<std::size_t>(one.part + i)], static_cast<float>(one.whole + i));
        return reads;
    };
    using Reads = std::vector<std::pair<std::int64_t, std::int64_t>>;
    const TensorSlice columns{{100, 30}, {{{0, 100}}, {{3, 7}, {20, 21}}}};
    EXPECT_EQ(reads_of(columns, 0, 500), (Reads{{3, 99 * 30 + 18}})); // one read, not 200
    EXPECT_EQ(reads_of(columns, 2, 1), (Reads{{5, 1}}));
    const TensorSlice rows{{100, 30}, {{{10, 60}}, {{0, 30}}}};
    EXPECT_EQ(reads_of(rows, 5, 900), (Reads{{305, 900}}));
    const TensorSlice far{{4, 20000}, {{{0, 4}}, {{0, 10000}}}}; // what lies between is more than it is worth
    EXPECT_EQ(reads_of(far, 0, 40000), (Reads{{0, 10000}, {20000, 10000}, {40000, 10000}, {60000, 10000}}));
    const TensorSlice thin{{3000, 1000}, {{{0, 3000}}, {{999, 1000}}}}; // no more at a time than a piece holds
    const Reads reads = reads_of(thin, 0, 3000);
    EXPECT_EQ(reads.size(), 3u);
    for (const auto& [first, count] : reads) EXPECT_LE(count, 1 << 20);
}

} // namespace
} // namespace tutti
