#include "data/token_writer.h"

#include "data/token_source.h"
#include "support/temporary_folder.h"

#include <vector>

namespace tutti::test {
namespace {

using namespace tutti::data;
using Tokens = std::vector<std::int64_t>;

Tokens read_all(const fs::path& path, std::int64_t sequence) {
    Tokens input(static_cast<std::size_t>(sequence)), targets(input);
    open_tokens(path.string(), sequence)->read(0, input, targets);
    input.push_back(targets.back());
    return input;
}

// What the readers of these formats make of it is what was written.
TEST(TokenWriter, WritesWhatIsRead) {
    const TemporaryFolder folder;
    for (const TokenFormat format : {TokenFormat::llm_c, TokenFormat::megatron}) {
        for (const std::uint64_t vocabulary : {300u, 70000u}) {
            const fs::path path = folder / fmt::format("{}-{}.bin", static_cast<int>(format), vocabulary);
            const auto writer = write_tokens(path, format, vocabulary);
            const auto last = static_cast<std::uint32_t>(vocabulary - 1);
            writer->add(std::vector<std::uint32_t>{1, 2, last});
            writer->add(std::vector<std::uint32_t>{});
            writer->add(std::vector<std::uint32_t>{4, 5});
            writer->finish();
            EXPECT_EQ(writer->tokens(), 5u);
            EXPECT_EQ(read_all(path, 4), (Tokens{1, 2, static_cast<std::int64_t>(last), 4, 5})) << path;
            const bool narrow = vocabulary == 300;
            EXPECT_EQ(writer->type(), narrow ? "uint16" : format == TokenFormat::llm_c ? "uint32" : "int32");
        }
    }
}

TEST(TokenWriter, LeavesNoFileUnlessItIsFinished) {
    const TemporaryFolder folder;
    for (const TokenFormat format : {TokenFormat::llm_c, TokenFormat::megatron})
        write_tokens(folder / "tokens.bin", format, 10)->add(std::vector<std::uint32_t>{1});
    EXPECT_TRUE(entries_of(folder.path()).empty());
    EXPECT_ERROR(write_tokens(folder / "tokens.idx", TokenFormat::megatron, 10), "a name that ends in .bin");
}

} // namespace
} // namespace tutti::test
