// The file of tuned matrix products, as it may be found on a disk: absent, damaged, hostile, written by others.
#include "backend/cuda/tuning_cache.h"

#include "support/temporary_folder.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace tutti::cuda {

using namespace backend::cuda;
using namespace test;
namespace {

using test::Mutator;
using test::TemporaryFolder;

const std::string matmul = "bf16 x bf16 -> bf16, m 768, n 4096, k 768, TN, ld 768 768 768";
const TunedChoice choice{"00ff17", 12.5};

std::optional<TunedChoice> found_in(std::string_view text) {
    const TemporaryFolder folder;
    folder.write("gpu.json", text);
    return TuningCache(folder.path(), "gpu").find(matmul);
}

TEST(TuningCache, WhatIsKeptIsFoundByTheNextRun) {
    const TemporaryFolder folder;
    TuningCache first(folder / "deep/er", "NVIDIA H200/141GB, cuBLASLt 13");
    EXPECT_EQ(first.path(), folder / "deep/er/NVIDIA_H200_141GB__cuBLASLt_13.json");
    EXPECT_TRUE(first.writable());
    EXPECT_EQ(first.find(matmul), std::nullopt);
    EXPECT_EQ(first.keep(matmul, choice), choice);
    EXPECT_EQ(first.find(matmul), choice);
    const TuningCache second(folder / "deep/er", "NVIDIA H200/141GB, cuBLASLt 13");
    EXPECT_EQ(second.find(matmul), choice);
    EXPECT_EQ(second.find("another"), std::nullopt);
}

TEST(TuningCache, OfTwoRunsThatMeasureTheSameProductTheFirstIsRight) {
    const TemporaryFolder folder;
    TuningCache a(folder.path(), "gpu"), b(folder.path(), "gpu");
    const TunedChoice other{"abcd", 1.0};
    EXPECT_EQ(a.keep(matmul, choice), choice);
    EXPECT_EQ(b.keep("its own", other), other);
    EXPECT_EQ(b.keep(matmul, other), choice);
    EXPECT_EQ(a.keep("a third", other), other);
    EXPECT_EQ(a.find("its own"), other);
}

TEST(TuningCache, AnUnusableChoiceIsReplaced) {
    const TemporaryFolder folder;
    TuningCache a(folder.path(), "gpu");
    a.keep(matmul, choice);
    const TunedChoice better{"77", 3.0};
    a.refuse(matmul);
    EXPECT_EQ(a.find(matmul), std::nullopt);
    EXPECT_EQ(a.keep(matmul, better), better);
    EXPECT_EQ(TuningCache(folder.path(), "gpu").find(matmul), better);
}

TEST(TuningCache, WhatDoesNotLookRightIsIgnored) {
    const std::string key = "\"" + matmul + "\"";
    EXPECT_EQ(found_in("{" + key + R"(: {"algorithm": "00ff17", "microseconds": 12.5}})"), choice);
    EXPECT_EQ(
        found_in("{" + key + R"(: {"algorithm": "00ff17", "microseconds": 12.5}, "x": 7, "y": {"algorithm": []}})"),
        choice);
    EXPECT_EQ(found_in("{" + key + R"(: {"algorithm": "tiles of 64 keys", "microseconds": 1}})"),
              (TunedChoice{"tiles of 64 keys", 1}));
    for (const char* value :
         {R"({"algorithm": "tiles\n", "microseconds": 1})", "7", "null", "[]", "\"00ff17\"", "{}",
          R"({"algorithm": "00ff17"})", R"({"microseconds": 1})", R"({"algorithm": 17, "microseconds": 1})",
          R"({"algorithm": "", "microseconds": 1})", R"({"algorithm": "0", "microseconds": 1})",
          R"({"algorithm": "0x", "microseconds": 1})", R"({"algorithm": "00", "microseconds": "1"})",
          R"({"algorithm": "00", "microseconds": -1})", R"({"algorithm": "00", "microseconds": 1e999})",
          R"({"algorithm": {"a": 1}, "microseconds": 1})"})
        EXPECT_EQ(found_in("{" + key + ": " + value + "}"), std::nullopt) << value;
    EXPECT_EQ(found_in("{" + key + R"(: {"algorithm": ")" + std::string(2000, '0') + R"(", "microseconds": 1}})"),
              std::nullopt);
    for (const char* text : {"", "{", "[]", "null", "7", "\"text\"", "\xff\xfe", "{} {}"})
        EXPECT_EQ(found_in(text), std::nullopt) << text;
    EXPECT_EQ(found_in(std::string(1'000'000, '[')), std::nullopt);
    EXPECT_EQ(found_in(std::string(1'000'000, '[') + std::string(1'000'000, ']')), std::nullopt);
}

TEST(TuningCache, ADamagedFileIsMadeAnew) {
    const TemporaryFolder folder;
    folder.write("gpu.json", "{\"half a file");
    TuningCache cache(folder.path(), "gpu");
    EXPECT_EQ(cache.keep(matmul, choice), choice);
    EXPECT_EQ(TuningCache(folder.path(), "gpu").find(matmul), choice);

    std::string text = read_text(cache.path());
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        folder.write("gpu.json", Mutator(seed)(text));
        EXPECT_NO_THROW(TuningCache(folder.path(), "gpu").find(matmul));
    }
}

TEST(TuningCache, AHugeFileIsIgnoredUnreadAndReplaced) {
    const TemporaryFolder folder;
    fs::resize_file(folder.write("gpu.json", "{"), 1ull << 40); // sparse
    TuningCache cache(folder.path(), "gpu");
    EXPECT_EQ(cache.find(matmul), std::nullopt);
    EXPECT_EQ(cache.keep(matmul, choice), choice);
    EXPECT_LT(fs::file_size(cache.path()), 1000u);
}

TEST(TuningCache, APipeOrAFolderInItsPlaceDoesNotStopTheProgram) {
    const TemporaryFolder folder;
    ASSERT_EQ(::mkfifo((folder / "gpu.json").c_str(), 0600), 0);
    ASSERT_EQ(::mkfifo((folder / "gpu.json.lock").c_str(), 0600), 0);
    TuningCache piped(folder.path(), "gpu");
    EXPECT_EQ(piped.find(matmul), std::nullopt);
    EXPECT_EQ(piped.keep(matmul, choice), choice); // renamed over it

    fs::create_directory(folder / "other.json");
    TuningCache blocked(folder.path(), "other");
    EXPECT_EQ(blocked.find(matmul), std::nullopt);
    EXPECT_EQ(blocked.keep(matmul, choice), std::nullopt);
}

TEST(TuningCache, WithoutAFolderNothingIsKept) {
    const TemporaryFolder folder;
    TuningCache none(std::nullopt, "gpu");
    EXPECT_FALSE(none.writable());
    EXPECT_EQ(none.keep(matmul, choice), std::nullopt);

    TuningCache beneath_a_file(folder.write("file", "") / "tutti", "gpu"); // for root too
    EXPECT_FALSE(beneath_a_file.writable());
    EXPECT_EQ(beneath_a_file.keep(matmul, choice), std::nullopt);

    if (::geteuid() != 0) {
        fs::create_directory(folder / "closed");
        fs::permissions(folder / "closed", fs::perms::owner_read | fs::perms::owner_exec);
        EXPECT_FALSE(TuningCache(folder / "closed", "gpu").writable());
    }
}

TEST(TuningCache, WritersAtTheSameTimeLoseNothing) {
    const TemporaryFolder folder;
    constexpr int processes = 4, threads = 2, each = 8;
    auto name = [](int process, int thread, int i) { return fmt::format("product {} {} {}", process, thread, i); };
    std::vector<pid_t> children;
    for (int p = 0; p < processes; ++p) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            std::vector<std::thread> running;
            for (int t = 0; t < threads; ++t)
                running.emplace_back([&, t] {
                    TuningCache cache(folder.path(), "gpu");
                    for (int i = 0; i < each; ++i) cache.keep(name(p, t, i), choice);
                });
            for (std::thread& thread : running) thread.join();
            ::_exit(0);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    const TuningCache cache(folder.path(), "gpu");
    for (int p = 0; p < processes; ++p)
        for (int t = 0; t < threads; ++t)
            for (int i = 0; i < each; ++i) EXPECT_EQ(cache.find(name(p, t, i)), choice) << name(p, t, i);
    for (const auto& entry : fs::directory_iterator(folder.path())) EXPECT_NE(entry.path().extension(), ".tmp");
}

TEST(TuningCache, TheFolderComesFromTheEnvironment) {
    const std::vector<const char*> names = {"TUTTI_CACHE", "XDG_CACHE_HOME", "HOME"};
    std::map<std::string, std::string> before;
    for (const char* name : names) {
        if (const char* value = ::getenv(name)) before[name] = value;
        ::unsetenv(name);
    }
    EXPECT_EQ(cache_folder(), std::nullopt);
    ::setenv("HOME", "/home/her", 1);
    EXPECT_EQ(cache_folder(), "/home/her/.cache/tutti");
    ::setenv("XDG_CACHE_HOME", "relative", 1); // to be ignored, says the XDG specification
    EXPECT_EQ(cache_folder(), "/home/her/.cache/tutti");
    ::setenv("XDG_CACHE_HOME", "/cache", 1);
    EXPECT_EQ(cache_folder(), "/cache/tutti");
    ::setenv("TUTTI_CACHE", "", 1);
    EXPECT_EQ(cache_folder(), "/cache/tutti");
    ::setenv("TUTTI_CACHE", "/scratch/tutti", 1);
    EXPECT_EQ(cache_folder(), "/scratch/tutti");
    for (const char* name : names) ::unsetenv(name);
    for (const auto& [name, value] : before) ::setenv(name.c_str(), value.c_str(), 1);
}

} // namespace
} // namespace tutti::cuda
