// --device cuda on machines that lack something of it: one sentence says what, and everything else works.
#include "program.h"
#include "support/paths.h"

#include <dlfcn.h>

namespace tutti::test {
namespace {

// A copy of the program in a folder bin, so that no plug-in lies beside it or in ../lib unless a test puts it there.
class PluginTest : public ::testing::Test {
  protected:
    PluginTest() {
        fs::create_directory(folder_ / "bin");
        fs::create_directory(folder_ / "lib");
        fs::copy_file(the_program(), program_);
    }
    void expect_cuda_refusal(const std::string& part) const {
        expect_refusal({"train", "--device", "cuda", "--dry-run"}, part, program_);
        EXPECT_EQ(tutti_with({"train", "--dry-run"}, program_).status, 0);
    }

    TemporaryFolder folder_;
    const fs::path program_ = folder_ / "bin/tutti";
};

TEST_F(PluginTest, NotBuilt) { expect_cuda_refusal("this build has no device cuda"); }

TEST_F(PluginTest, LibraryOfItIsMissing) {
    const fs::path plugin = folder_ / "lib/libtutti_cuda.so";
    fs::copy_file(TUTTI_LACKING_PLUGIN, plugin);
    expect_cuda_refusal("libtutti_absent.so is not found; install it");
    fs::rename(plugin, folder_ / "bin/libtutti_cuda.so");
    expect_cuda_refusal("libtutti_absent.so is not found; install it");
}

TEST_F(PluginTest, IsNone) {
    folder_.write("lib/libtutti_cuda.so", "not a library");
    expect_cuda_refusal("the device cuda cannot be used here");
}

TEST(Plugin, NoDriver) {
    if (!fs::exists(the_program().parent_path() / "libtutti_cuda.so")) GTEST_SKIP() << "no plug-in is built";
    if (::dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "a driver is installed";
    expect_refusal({"train", "--device", "cuda", "--dry-run"}, "no NVIDIA driver is installed");
}

} // namespace
} // namespace tutti::test
