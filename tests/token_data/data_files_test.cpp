#include "data/data_files.h"

#include "support/temporary_folder.h"

namespace tutti {

using namespace data;
using namespace test;
namespace {

using test::TemporaryFolder;

// A file of text as a run sees it.
std::vector<DataFile> files_of(const TemporaryFolder& folder, const std::string& text) {
    return data_files(*open_tokens(folder.write("book.txt", text).string(), 16));
}

TEST(DataFiles, ByteThatDiffersInASmallFileIsFound) {
    const TemporaryFolder folder;
    const std::string text(100'000, 'a');
    const std::vector<DataFile> then = files_of(folder, text);
    ASSERT_EQ(then.size(), 1u);
    EXPECT_EQ(then[0].path, (folder / "book.txt").string());
    EXPECT_EQ(then[0].bytes, 100'000u);
    EXPECT_EQ(changed_data(then, files_of(folder, text)), "");
    for (const std::size_t at : {0u, 12'345u, 99'999u})
        EXPECT_EQ(changed_data(then, files_of(folder, std::string(text).replace(at, 1, "b"))),
                  (folder / "book.txt").string() + " holds as many bytes as before, but other ones");
    EXPECT_EQ(changed_data(then, files_of(folder, text + "a")),
              (folder / "book.txt").string() + " holds 100001 bytes, and held 100000");
}

// Of a large file the first and the last block are looked at, and others spread between them: other text of the same
// length does not pass.
TEST(DataFiles, LargeFilesAreSampledFromEndToEnd) {
    const TemporaryFolder folder;
    const std::string text(600'000, 'a');
    const std::vector<DataFile> then = files_of(folder, text);
    EXPECT_EQ(changed_data(then, files_of(folder, text)), "");
    for (const std::size_t at : {std::size_t{0}, std::size_t{4095}, text.size() - 1, text.size() - 4096})
        EXPECT_NE(changed_data(then, files_of(folder, std::string(text).replace(at, 1, "b"))), "") << at;
    for (std::size_t at = 0; at + 10'000 <= text.size(); at += 10'000)
        EXPECT_NE(changed_data(then, files_of(folder, std::string(text).replace(at, 10'000, 10'000, 'b'))), "") << at;
}

TEST(DataFiles, ComeInOneOrderAndMoreMayFollow) {
    const DataFile a{"/a", 1, "1"}, b{"/b", 2, "2"}, moved{"/c", 1, "1"};
    EXPECT_EQ(changed_data({a}, {a, b}), "");
    EXPECT_EQ(changed_data({a, b}, {moved, b}), "");
    EXPECT_EQ(changed_data({}, {}), "");
    EXPECT_EQ(changed_data({a, b}, {a}), "/b is no part of it any more");
    EXPECT_EQ(changed_data({a, b}, {b, a}), "/b holds 2 bytes, and held 1");
    EXPECT_EQ(changed_data({}, {a}), "it was built-in stories, and is /a now");
}

TEST(DataFiles, ReadBackAsTheyWereRecorded) {
    const std::vector<DataFile> files = {{"/a", 1, "1"}, {"/b", 1ull << 40, "2"}};
    const nlohmann::json json = nlohmann::json::parse(to_json(files).dump());
    EXPECT_EQ(read_data_files(json, "it"), files);
    EXPECT_ERROR(read_data_files(nlohmann::json::object(), "it"), "it: data_files should be a list");
    EXPECT_ERROR(read_data_files({{{"path", "/a"}, {"bytes", -1}}}, "it"), "it: data_files holds -1 bytes");
    EXPECT_ERROR(read_data_files({{{"path", 3}}}, "it"), "it: data_files");
    EXPECT_EQ(recorded_data("builtin"), "builtin");
    EXPECT_EQ(recorded_data("/a\xff"), "/a\xef\xbf\xbd"); // a path need not be UTF-8, and JSON has to be
}

} // namespace
} // namespace tutti
