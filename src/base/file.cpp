#include "base/file.h"

#include "base/counted.h"
#include "base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti {
namespace {

std::string reason() { return std::strerror(errno); }

[[noreturn]] void fail_writing(const fs::path& path) {
    if (errno == ENOSPC || errno == EIO || errno == EDQUOT || errno == EFBIG)
        fail_world("cannot write {}: {}; make room and resume from the last checkpoint", path.string(), reason());
    fail("cannot write {}: {}", path.string(), reason());
}

} // namespace

InputFile::InputFile(const fs::path& path) : path_(path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) // before opening it: a pipe would wait
        fail("cannot read {}: it is not a regular file", path.string());
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("cannot read {}: {}", path.string(), reason());
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
        if (count < 0) fail_world("cannot read {}: {}", path_.string(), reason());
        if (count == 0)
            fail("{} ends at byte {}, {} too early: it is truncated", path_.string(), offset,
                 counted(out.size(), "byte"));
        offset += static_cast<std::uint64_t>(count);
        out = out.subspan(static_cast<std::size_t>(count));
    }
}

OutputFile::OutputFile(const fs::path& path) : path_(path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) // what cannot be removed again is not begun
        fail("cannot write {}: it is not a regular file", path.string());
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail_writing(path_);
}

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
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0) fail_writing(path);
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

std::string read_text(const fs::path& path) {
    const InputFile file(path);
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
}

void write_text_atomically(const fs::path& asked, std::string_view text) {
    std::error_code ignored;
    const fs::path path = fs::weakly_canonical(asked, ignored); // a link stays, and what it leads to is written
    if (path.empty() || (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)))
        fail("cannot write \"{}\": it is not a regular file", asked.string());
    fs::path temporary = path;
    temporary += ".tmp";
    OutputFile file(temporary);
    file.write(text);
    file.finish();
    rename_durably(temporary, path);
}

void make_folders(const fs::path& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail("cannot make the folder {}: {}", path.string(), error.message());
    if (::access(path.c_str(), W_OK | X_OK) != 0) fail("cannot write to the folder {}: {}", path.string(), reason());
}

void sync_folder(const fs::path& path) {
    const fs::path folder = path.empty() ? fs::path(".") : path;
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return; // a folder that cannot be opened was still renamed into
    ::fsync(descriptor);
    ::close(descriptor);
}

void rename_durably(const fs::path& from, const fs::path& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_writing(to);
    sync_folder(to.parent_path());
}

} // namespace tutti
