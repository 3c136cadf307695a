// Files as this program needs them: exact reads of byte ranges, and writes that are whole or absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

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

// A file being written under the name it was given. `finish` syncs it to disk; without it the file is removed.
// WorldError where the disk is full or fails, Error where the place may not be written.
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
    // Makes or empties it. Room is taken at once where the file system can, so that a full disk is known before the
    // work of writing.
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

std::string read_text(const fs::path& path);
// Writes path.tmp, syncs, renames: a reader sees the old content or the new.
void write_text_atomically(const fs::path& path, std::string_view text);
void make_folders(const fs::path& path); // Error naming the folder if it cannot be made or written to
void sync_folder(const fs::path& path);
// rename(2), then sync of the parent folder.
void rename_durably(const fs::path& from, const fs::path& to);

} // namespace tutti
