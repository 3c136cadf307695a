#include "base/file.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/system_error.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

namespace tutti {
namespace {

[[noreturn]] void fail_reading(const fs::path& path) { fail_system(errno, "cannot read {}", path.string()); }
[[noreturn]] void fail_writing(const fs::path& path) { fail_system(errno, "cannot write {}", path.string()); }

// None where nothing is at the path.
std::optional<mode_t> mode_of(const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) return status.st_mode;
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail_system(errno, "cannot look at {}", path.string());
}

// For writing, and new: what a crash left there, or a link that leads elsewhere, goes first.
int make_file(const fs::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
        fail("cannot write {}: it is not a regular file", path.string());
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_writing(path);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (descriptor < 0) fail_writing(path);
    return descriptor;
}

// A folder that one has made but the disk does not know yet is gone after a loss of power, with all that it holds.
void make_folder(const fs::path& path) {
    if (path.empty() || is_folder(path)) return;
    make_folder(path.parent_path());
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
        fail_system(errno, "cannot make the folder {}", path.string());
    sync_folder(path.parent_path());
}

} // namespace

InputFile::InputFile(const fs::path& path) : path_(path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) // before opening it: a pipe would wait
        fail("cannot read {}: it is not a regular file", path.string());
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_reading(path);
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(descriptor_);
        descriptor_ = -1;
        fail("cannot read {}: it is not a regular file", path.string());
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    return *this;
}

InputFile::~InputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t count = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail_reading(path_);
        if (count == 0)
            fail("{} ends at byte {}, {} too early: it is truncated", path_.string(), offset,
                 counted(out.size(), "byte"));
        offset += static_cast<std::uint64_t>(count);
        out = out.subspan(static_cast<std::size_t>(count));
    }
}

OutputFile::OutputFile(const fs::path& path) : path_(path), descriptor_(make_file(path)) {}

OutputFile::~OutputFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(path_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail_writing(path_);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void OutputFile::finish() {
    if (::fsync(descriptor_) != 0) fail_writing(path_);
    if (::close(std::exchange(descriptor_, -1)) != 0) fail_writing(path_);
}

void SharedFile::make(const fs::path& path, std::uint64_t size) {
    const int descriptor = make_file(path);
    int failed = size > 0 ? ::fallocate(descriptor, 0, 0, static_cast<off_t>(size)) : 0;
    if (failed != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        failed = ::ftruncate(descriptor, static_cast<off_t>(size));
    const int error = errno;
    ::close(descriptor);
    errno = error;
    if (failed != 0) fail_writing(path);
}

SharedFile::SharedFile(const fs::path& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0 && errno == ENOENT)
        fail("cannot write {}: another rank made it, but it is not to be seen here: all ranks have to share its folder",
             path.string());
    if (descriptor_ < 0) fail_writing(path_);
}

SharedFile::~SharedFile() { ::close(descriptor_); }

void SharedFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail_writing(path_);
        offset += static_cast<std::uint64_t>(count);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

void SharedFile::sync() {
    if (::fsync(descriptor_) != 0) fail_writing(path_);
}

bool is_there(const fs::path& path) { return mode_of(path).has_value(); }

bool is_file(const fs::path& path) {
    const auto mode = mode_of(path);
    return mode && S_ISREG(*mode);
}

bool is_folder(const fs::path& path) {
    const auto mode = mode_of(path);
    return mode && S_ISDIR(*mode);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
    std::vector<fs::path> entries;
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
    if (!open && (errno == ENOENT || errno == ENOTDIR)) return entries;
    if (!open) fail_system(errno, "cannot list {}", folder.string());
    for (;;) {
        errno = 0;
        const dirent* entry = ::readdir(open.get());
        if (!entry && errno != 0) fail_system(errno, "cannot list {}", folder.string());
        if (!entry) break;
        if (const std::string_view name = entry->d_name; name != "." && name != "..") entries.push_back(folder / name);
    }
    std::ranges::sort(entries);
    return entries;
}

fs::path behind_links(const fs::path& path) {
    std::error_code failed;
    fs::path end = fs::weakly_canonical(path, failed);
    if (failed) fail_system(failed.value(), "cannot follow {}", path.string());
    return end;
}

fs::path own_program() {
    std::error_code failed;
    fs::path program = fs::read_symlink("/proc/self/exe", failed);
    if (failed) fail_system(failed.value(), "cannot find this program: /proc/self/exe");
    return program;
}

std::string read_text(const fs::path& path) {
    const InputFile file(path);
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
}

void write_text_atomically(const fs::path& asked, std::string_view text) {
    const fs::path path = behind_links(asked); // a link stays
    if (path.empty() || (is_there(path) && !is_file(path)))
        fail("cannot write \"{}\": it is not a regular file", asked.string());
    fs::path temporary = path;
    temporary += ".tmp";
    OutputFile file(temporary);
    file.write(text);
    file.finish();
    rename_durably(temporary, path);
}

void make_folders(const fs::path& path) {
    make_folder(path.lexically_normal());
    if (!is_folder(path)) fail("cannot make the folder {}: there is a file of that name", path.string());
    if (::access(path.c_str(), W_OK | X_OK) != 0) fail_system(errno, "cannot write to the folder {}", path.string());
}

void sync_folder(const fs::path& path) {
    const fs::path folder = path.empty() ? fs::path(".") : path;
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0 && errno == EACCES) return; // a folder may be written to and not read
    if (descriptor < 0) fail_system(errno, "cannot sync the folder {}", folder.string());
    const int error = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    if (error != 0 && error != EINVAL && error != ENOTSUP && error != EROFS) // some file systems know no such thing
        fail_system(error, "cannot sync the folder {}", folder.string());
}

void rename_durably(const fs::path& from, const fs::path& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_writing(to);
    sync_folder(to.parent_path());
}

void remove_quietly(const fs::path& path) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
}

} // namespace tutti
