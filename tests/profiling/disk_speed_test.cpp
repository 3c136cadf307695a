#include "profiling/disk_speed.h"

#include "support/open_files.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace profiling;
namespace {

TEST(DiskSpeed, IsMeasuredAndLeavesNothing) {
    test::TemporaryFolder folder;
    const CopySpeed speed = measure_disk(folder / ".", {1 << 20});
    EXPECT_GT(speed.in, 1e3);
    EXPECT_GT(speed.out, 1e3);
    EXPECT_TRUE(fs::is_empty(folder / "."));
    EXPECT_TRUE(test::nameless_files_of(folder / ".").empty());
}

} // namespace
} // namespace tutti
