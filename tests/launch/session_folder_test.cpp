// Folders that mpirun and its ranks share: those of runs that were killed are removed, and no others.
#include "launch/session_folder.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iterator>
#include <optional>

namespace tutti::test {

using namespace launch;
namespace {

TEST(SessionFolder, GoesWithItsOwner) {
    const test::TemporaryFolder parent;
    std::optional<SessionFolder> folder(parent.path());
    const fs::path path = folder->path();
    EXPECT_TRUE(fs::exists(path / "tutti-mpirun.lock"));
    folder.reset();
    EXPECT_FALSE(fs::exists(path));
}

TEST(SessionFolder, OfAKilledProcessGoesWithTheNextStart) {
    const test::TemporaryFolder parent;
    const pid_t child = ::fork();
    if (child == 0) {
        const SessionFolder folder(parent.path());
        parent.write((folder.path().filename() / "segment").string(), "left behind");
        ::raise(SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    ASSERT_EQ(std::distance(fs::directory_iterator(parent.path()), {}), 1);
    const fs::path left = fs::directory_iterator(parent.path())->path();
    ASSERT_TRUE(fs::exists(left / "segment"));
    const SessionFolder next(parent.path());
    EXPECT_FALSE(fs::exists(left));
}

TEST(SessionFolder, LeavesAloneWhatIsInUseOrOfAnotherKind) {
    const test::TemporaryFolder parent;
    fs::create_directory(parent / "tutti-mpirun-mine");
    fs::create_directory(parent / "other_123");
    parent.write("tutti-mpirun-mine/notes", "no lock is here");
    parent.write("tutti-mpirun-file", "no folder");
    parent.write("other_123/tutti-mpirun.lock", "");
    fs::create_directory_symlink(parent / "other_123", parent / "tutti-mpirun-link");
    const SessionFolder first(parent.path());
    { const SessionFolder second(parent.path()); }
    for (const char* name :
         {"tutti-mpirun-mine/notes", "tutti-mpirun-file", "other_123/tutti-mpirun.lock", "tutti-mpirun-link"})
        EXPECT_TRUE(fs::exists(parent / name)) << name;
    EXPECT_TRUE(fs::exists(first.path() / "tutti-mpirun.lock"));
}

} // namespace
} // namespace tutti::test
