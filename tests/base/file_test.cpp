#include "base/file.h"

#include "base/system_error.h"
#include "support/temporary_folder.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <functional>

namespace tutti {

using namespace test;
namespace {

using test::TemporaryFolder;

TEST(File, ReadsExactRangesAndSaysWhereItEnds) {
    const TemporaryFolder folder;
    const InputFile file(folder.write("abc", "abcdef"));
    std::array<char, 3> three{};
    file.read(2, std::as_writable_bytes(std::span(three)));
    EXPECT_EQ(std::string(three.data(), 3), "cde");
    EXPECT_EQ(file.size(), 6u);
    EXPECT_ERROR(file.read(4, std::as_writable_bytes(std::span(three))), "ends at byte 6, 1 byte too early");
}

TEST(File, WhatIsMissingOrAFolderIsNamed) {
    const TemporaryFolder folder;
    EXPECT_ERROR(InputFile(folder / "nothing"), "nothing: No such file");
    EXPECT_ERROR(InputFile(folder.path()), "not a regular file");
    EXPECT_ERROR(OutputFile(folder / "no/such/place"), "cannot write");
}

TEST(File, AnUnfinishedOutputLeavesNothingBehind) {
    const TemporaryFolder folder;
    {
        OutputFile file(folder / "half");
        file.write("half of it");
        EXPECT_TRUE(fs::exists(folder / "half"));
    }
    EXPECT_FALSE(fs::exists(folder / "half"));
    OutputFile whole(folder / "whole");
    whole.write("all of it");
    whole.finish();
    EXPECT_EQ(read_text(folder / "whole"), "all of it");
}

TEST(File, ASharedFileHasItsSizeAndTakesBytesAnywhere) {
    const TemporaryFolder folder;
    folder.write("shared", "of an earlier run, and longer");
    SharedFile::make(folder / "shared", 12);
    EXPECT_EQ(read_text(folder / "shared"), std::string(12, '\0'));
    SharedFile one(folder / "shared"), other(folder / "shared");
    other.write(8, std::as_bytes(std::span("last", 4)));
    one.write(0, std::as_bytes(std::span("first", 5)));
    one.sync();
    other.sync();
    EXPECT_EQ(read_text(folder / "shared"), std::string("first\0\0\0last", 12));
    SharedFile::make(folder / "empty", 0);
    EXPECT_EQ(fs::file_size(folder / "empty"), 0u);
    EXPECT_ERROR(SharedFile(folder / "not made"), "not made: another rank made it, but it is not to be seen here");
    EXPECT_ERROR(SharedFile::make(folder / "no/such/place", 3), "cannot write");
    SharedFile full("/dev/full");
    EXPECT_THROW(full.write(0, std::as_bytes(std::span("x", 1))), WorldError);
    EXPECT_THROW(SharedFile::make(folder / "huge", std::uint64_t{1} << 62), WorldError); // more than any disk has
}

TEST(File, AnAtomicWriteReplacesTheOldContentAndItsTemporary) {
    const TemporaryFolder folder;
    write_text_atomically(folder / "note", "old");
    write_text_atomically(folder / "note", "new");
    EXPECT_EQ(read_text(folder / "note"), "new");
    EXPECT_FALSE(fs::exists(folder / "note.tmp"));
}

// A temporary of a known name may have been laid as a link by somebody else.
TEST(File, ATemporaryThatIsALinkIsReplacedAndWhatItLeadsToIsSpared) {
    const TemporaryFolder folder;
    folder.write("precious", "mine");
    fs::create_symlink(folder / "precious", folder / "note.tmp");
    write_text_atomically(folder / "note", "new");
    EXPECT_EQ(read_text(folder / "note"), "new");
    EXPECT_EQ(read_text(folder / "precious"), "mine");
    fs::create_symlink(folder / "precious", folder / "shared");
    SharedFile::make(folder / "shared", 12);
    EXPECT_EQ(read_text(folder / "precious"), "mine");
}

// "Nothing is there" is only said where it is certain: else a run would begin anew over one that is there.
TEST(File, WhatCannotBeLookedAtIsNotTakenForMissing) {
    const TemporaryFolder folder;
    folder.write("file", "");
    EXPECT_TRUE(is_there(folder / "file"));
    EXPECT_TRUE(is_file(folder / "file"));
    EXPECT_FALSE(is_folder(folder / "file"));
    EXPECT_FALSE(is_there(folder / "absent"));
    EXPECT_FALSE(is_there(folder / "file/below"));
    fs::create_symlink(folder / "loop", folder / "loop");
    for (bool (*question)(const fs::path&) : {is_there, is_file, is_folder})
        EXPECT_ERROR(question(folder / "loop"), "loop: Too many levels of symbolic links");
    EXPECT_ERROR(entries_of(folder / "loop"), "cannot list");
    EXPECT_ERROR(write_text_atomically(folder / "loop", ""), "Too many levels of symbolic links");
    EXPECT_TRUE(entries_of(folder / "absent").empty());
    EXPECT_EQ(entries_of(folder.path()), (std::vector{folder / "file", folder / "loop"}));
}

TEST(SystemError, ThatMayPassIsTheWorldsAndAnyOtherTheUsers) {
    for (const int error : {EIO, ESTALE, EMFILE, ENFILE, ENOSPC, EDQUOT, EFBIG, ENOMEM, EAGAIN, ETIMEDOUT})
        EXPECT_THROW(throw_system_error(error, "it"), WorldError) << error;
    for (const int error : {ENOENT, EACCES, EPERM, ELOOP, ENOTDIR, EISDIR, ENAMETOOLONG, EROFS})
        EXPECT_THROW(throw_system_error(error, "it"), Error) << error;
    EXPECT_ERROR(fail_system(ENOENT, "cannot read {}", "x"), "cannot read x: No such file or directory");
}

// Without descriptors a folder can be made and a file renamed, and no folder opened to sync it: so a sync that is left
// out, or whose error is, would show as success.
TEST(File, AFolderIsSyncedWhereSomethingNewIsInItAndAnErrorOfThatIsTold) {
    const TemporaryFolder folder;
    folder.write("file", "");
    struct rlimit before {};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const struct rlimit none { 0, before.rlim_max };
    auto told = [&](const std::function<void()>& action) -> std::string {
        ::setrlimit(RLIMIT_NOFILE, &none);
        std::string sentence;
        try {
            action();
        } catch (const WorldError& error) {
            sentence = error.what();
        }
        ::setrlimit(RLIMIT_NOFILE, &before);
        return sentence;
    };
    const std::string expected = "cannot sync the folder " + folder.path().string() + ": Too many open files";
    EXPECT_EQ(told([&] { sync_folder(folder.path()); }), expected);
    EXPECT_EQ(told([&] { make_folders(folder / "new"); }), expected);
    EXPECT_EQ(told([&] { rename_durably(folder / "file", folder / "renamed"); }), expected);
    EXPECT_TRUE(fs::exists(folder / "new"));
    EXPECT_TRUE(fs::exists(folder / "renamed"));
}

TEST(File, FoldersAreMadeWithTheirParentsButNotOverAFile) {
    const TemporaryFolder folder;
    make_folders(folder / "a/b/c");
    make_folders(folder / "a/b/c");
    EXPECT_TRUE(fs::is_directory(folder / "a/b/c"));
    folder.write("file", "");
    EXPECT_ERROR(make_folders(folder / "file/below"), "cannot make the folder");
}

// Renaming over a device or a pipe would take it away from everybody else; a link's target is what is meant.
TEST(File, AnAtomicWriteSparesWhatIsNoFileAndFollowsLinks) {
    const TemporaryFolder folder;
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_ERROR(write_text_atomically(folder / "pipe", "text"), "is not a regular file");
    EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
    folder.write("target", "old");
    fs::create_symlink(folder / "target", folder / "link");
    write_text_atomically(folder / "link", "new");
    EXPECT_TRUE(fs::is_symlink(folder / "link"));
    EXPECT_EQ(read_text(folder / "target"), "new");
}

} // namespace
} // namespace tutti
