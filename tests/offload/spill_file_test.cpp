// The file behind chunks on disk: what it holds, and what it says when the disk does not play along.
#include "offload/execution/spill_file.h"

#include "base/error.h"
#include "support/open_files.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <vector>

namespace tutti {

using namespace offload;
namespace {

std::vector<std::byte> pattern(std::size_t size, int seed) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed)) % 251);
    return bytes;
}

std::string sentence_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const WorldError& error) {
        return error.what();
    }
    return "nothing";
}

TEST(SpillFile, HoldsWhatWasWrittenAnywhereAndIsNeverSeen) {
    test::TemporaryFolder folder;
    {
        const SpillFile file(folder / ".", {10007}), other(folder / ".", {5});
        EXPECT_TRUE(fs::is_empty(folder / "."));
        EXPECT_EQ(test::nameless_files_of(folder / ".").size(), 2u);
        const auto first = pattern(5001, 1), last = pattern(5006, 2);
        file.write(5001, last);
        file.write(0, first);
        std::vector<std::byte> out(5001);
        file.read(0, out);
        EXPECT_EQ(out, first);
        out.resize(5006);
        file.read(5001, out);
        EXPECT_EQ(out, last);
    }
    EXPECT_TRUE(test::nameless_files_of(folder / ".").empty());
}

// Past the system's cache and through it, in many parts and in one: it is one file.
TEST(SpillFile, LargeAndAlignedBytesAreTheSameBytes) {
    constexpr std::size_t page = disk_alignment, size = 6 * 1024 * page;
    test::TemporaryFolder folder;
    const SpillFile file(folder / ".", {size + 2 * page});
    const auto bytes = pattern(size + page, 3);
    auto aligned_in = [&](auto& memory) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
        return std::span(memory).subspan((address + page - 1) / page * page - address, size);
    };
    std::vector<std::byte> out(size + page);
    for (const auto& [in, offset] :
         {std::pair(aligned_in(bytes), page), {std::span(bytes).subspan(1, size), page + 7}}) {
        file.write(static_cast<std::int64_t>(offset), in);
        for (std::span<std::byte> to : {aligned_in(out), std::span(out).subspan(3, size)}) {
            file.read(static_cast<std::int64_t>(offset), to);
            EXPECT_TRUE(std::ranges::equal(to, in));
        }
    }
    // A few bytes changed through the cache are seen past it.
    const auto few = pattern(11, 9);
    file.write(page + 5000, few);
    file.read(page, aligned_in(out));
    EXPECT_TRUE(std::ranges::equal(aligned_in(out).subspan(5000, 11), few));
}

TEST(SpillFile, AFileCutShortIsNeitherReadNorFilledUp) {
    test::TemporaryFolder folder;
    const SpillFile file(folder / ".", {8192});
    const fs::path path = test::nameless_files_of(folder / ".").at(0);
    fs::resize_file(path, 5000);
    std::vector<std::byte> out(100);
    EXPECT_NE(sentence_of([&] { file.read(4950, out); }).find("cut short"), std::string::npos);
    EXPECT_NE(sentence_of([&] { file.write(0, out); }).find("cut short"), std::string::npos);
    EXPECT_EQ(fs::file_size(path), 5000u);
}

// A limit on the size of files stands in for a full disk: both are met when the file is made, before anything is lost.
TEST(SpillFile, NoRoomIsKnownAtOnceAndLeavesNothing) {
    test::TemporaryFolder folder;
    ::rlimit before = {};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    ::rlimit little = before;
    little.rlim_cur = 1 << 16;
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
    const std::string sentence = sentence_of([&] { const SpillFile file(folder / ".", {1 << 20}); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_NE(sentence.find("no room for 1.00 MiB"), std::string::npos) << sentence;
    EXPECT_TRUE(fs::is_empty(folder / "."));
}

TEST(SpillFile, AFolderThatIsNotThereIsNamed) {
    test::TemporaryFolder folder;
    try {
        const SpillFile file(folder / "nowhere", {100});
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos);
    }
}

} // namespace
} // namespace tutti
