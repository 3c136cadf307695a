// Files as this program needs them: exact reads of byte ranges, writes that are whole or absent, and questions about
// paths. What fails is an Error or a WorldError that names the path (base/system_error.h); nothing throws
// std::filesystem's own exceptions, and other folders use those of its functions alone that take an error_code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

namespace fs = std::filesystem;

// A file open for reading at any offset. Errors name the file.
class InputFile {
  public:
    explicit InputFile(const fs::path& path); // Error if it is missing, a folder, or not readable
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&& other) noexcept;
    ~InputFile();

    const fs::path& path() const { return path_; }
    std::uint64_t size() const { return size_; }
    // Fills `out` from `offset`; Error if the file ends before.
    void read(std::uint64_t offset, std::span<std::byte> out) const;

  private:
    fs::path path_;
    int descriptor_ = -1;
    std::uint64_t size_ = 0;
};

// A new file being written under the name it was given; one that is there, or a link, is removed first. `finish` syncs
// it to disk; without it the file is removed.
class OutputFile {
  public:
    explicit OutputFile(const fs::path& path);
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile();

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text);
    void finish();

  private:
    fs::path path_;
    int descriptor_ = -1;
};

// A file of known size that several ranks fill, each writing bytes of its own. One makes it before the others open it;
// it is theirs to remove.
class SharedFile {
  public:
    // A new file; one that is there, or a link, is removed first. Room is taken at once where the file system can, so
    // that a full disk is known before the work of writing.
    static void make(const fs::path& path, std::uint64_t size);
    explicit SharedFile(const fs::path& path); // Error where it was not made
    SharedFile(const SharedFile&) = delete;
    SharedFile& operator=(const SharedFile&) = delete;
    ~SharedFile();

    void write(std::uint64_t offset, std::span<const std::byte> bytes);
    void sync(); // what was written so far; WorldError where the disk did not take it

  private:
    fs::path path_;
    int descriptor_ = -1;
};

// Questions about a path, links followed. "No" is only said where it is certain: a folder that cannot be looked into,
// a disk that fails or a loop of links is an error.
bool is_there(const fs::path& path);
bool is_file(const fs::path& path); // a regular one
bool is_folder(const fs::path& path);
// What a folder holds, sorted by name; nothing where there is no such folder.
std::vector<fs::path> entries_of(const fs::path& folder);
// Where a write to the path ends: links followed, also one to a file that is not there yet.
fs::path behind_links(const fs::path& path);
fs::path own_program(); // the file that this process runs

std::string read_text(const fs::path& path);
// Writes path.tmp, syncs, renames: a reader sees the old content or the new.
void write_text_atomically(const fs::path& path, std::string_view text);
// Makes what is missing of the path, durably. Error naming the folder if it cannot be made or written to.
void make_folders(const fs::path& path);
void sync_folder(const fs::path& path);
// rename(2), then sync of the parent folder.
void rename_durably(const fs::path& from, const fs::path& to);
// Removes a file or folder with all that it holds, as far as that works: what stays harms nobody.
void remove_quietly(const fs::path& path);

} // namespace tutti
