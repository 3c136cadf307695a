// The calls on files that stand before libc's when this library is preloaded. Each counts if its file is under the
// root, fails or is cut if the attack says so, and is the system's own otherwise.
#include "chaos/watch.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

using namespace tutti::chaos;

namespace {

template <class... Arguments>
int system_call(long number, Arguments... arguments) {
    return static_cast<int>(::syscall(number, arguments...));
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
    if (!tutti::chaos::is_watched(folder, path)) {
        const int descriptor = system_call(SYS_openat, folder, path, flags, mode);
        tutti::chaos::closed(descriptor); // it may have been another's, closed behind our back
        return descriptor;
    }
    tutti::chaos::Watch watch(tutti::chaos::Call::open);
    if (watch.fails()) return -1;
    const int descriptor = system_call(SYS_openat, folder, path, flags, mode);
    if (descriptor < 0) return descriptor;
    tutti::chaos::opened(descriptor, tutti::chaos::whole_path(folder, path));
    watch.note(descriptor, flags, tutti::chaos::whole_path(folder, path));
    return descriptor;
}

// A call on one path that changes a folder, or only looks.
template <class Action>
int on_path(tutti::chaos::Call call, int folder, const char* path, Action action) {
    if (!tutti::chaos::is_watched(folder, path)) return action();
    tutti::chaos::Watch watch(call);
    if (watch.fails()) return -1;
    const int result = action();
    if (result == 0 && call != tutti::chaos::Call::stat && call != tutti::chaos::Call::access)
        watch.note(-1, 0, tutti::chaos::whole_path(folder, path));
    return result;
}

// A call on a descriptor; `offset`: what the journal says of it.
template <class Action>
int on_descriptor(tutti::chaos::Call call, int descriptor, std::int64_t offset, Action action) {
    if (!tutti::chaos::is_watched(descriptor)) return action();
    tutti::chaos::Watch watch(call);
    if (watch.fails()) return -1;
    const int result = action();
    if (result == 0 && call != tutti::chaos::Call::stat) watch.note(descriptor, offset, {});
    return result;
}

// Where a write begins that names no offset.
std::int64_t place_of(int descriptor) {
    if ((::syscall(SYS_fcntl, descriptor, F_GETFL) & O_APPEND) != 0)
        return ::syscall(SYS_lseek, descriptor, 0, SEEK_END);
    return ::syscall(SYS_lseek, descriptor, 0, SEEK_CUR);
}

template <class Action>
ssize_t write_on(int descriptor, const void* bytes, std::size_t size, std::int64_t offset, Action action) {
    if (!tutti::chaos::is_watched(descriptor)) return action(size);
    tutti::chaos::Watch watch(tutti::chaos::Call::write);
    if (watch.fails()) return -1;
    if (offset < 0 && watch.journals()) offset = place_of(descriptor);
    const ssize_t count = action(watch.cut(size));
    if (count > 0) watch.note(descriptor, offset, {static_cast<const char*>(bytes), static_cast<std::size_t>(count)});
    return count;
}

template <class Action>
ssize_t read_on(int descriptor, std::size_t size, Action action) {
    if (!tutti::chaos::is_watched(descriptor)) return action(size);
    const tutti::chaos::Watch watch(tutti::chaos::Call::read);
    return watch.fails() ? -1 : action(watch.cut(size));
}

} // namespace

extern "C" {

int openat(int folder, const char* path, int flags, ...) {
    std::va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_at(folder, path, flags, mode);
}
int open(const char* path, int flags, ...) {
    std::va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_at(AT_FDCWD, path, flags, mode);
}
int creat(const char* path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int open64(const char*, int, ...) __attribute__((alias("open")));
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));

int close(int descriptor) {
    if (!tutti::chaos::is_watched(descriptor)) return system_call(SYS_close, descriptor);
    tutti::chaos::Watch watch(tutti::chaos::Call::close);
    tutti::chaos::closed(descriptor);
    watch.note(descriptor, 0, {});
    const int result = system_call(SYS_close, descriptor);
    return watch.fails() ? -1 : result; // it is closed all the same
}

ssize_t read(int descriptor, void* bytes, size_t size) {
    return read_on(descriptor, size, [&](size_t part) { return ::syscall(SYS_read, descriptor, bytes, part); });
}
ssize_t pread(int descriptor, void* bytes, size_t size, off_t offset) {
    return read_on(descriptor, size,
                   [&](size_t part) { return ::syscall(SYS_pread64, descriptor, bytes, part, offset); });
}
ssize_t pread64(int, void*, size_t, off64_t) __attribute__((alias("pread")));

ssize_t write(int descriptor, const void* bytes, size_t size) {
    return write_on(descriptor, bytes, size, -1,
                    [&](size_t part) { return ::syscall(SYS_write, descriptor, bytes, part); });
}
ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
    return write_on(descriptor, bytes, size, offset,
                    [&](size_t part) { return ::syscall(SYS_pwrite64, descriptor, bytes, part, offset); });
}
ssize_t pwrite64(int, const void*, size_t, off64_t) __attribute__((alias("pwrite")));
ssize_t writev(int descriptor, const iovec* parts, int count) {
    if (!tutti::chaos::is_watched(descriptor)) return ::syscall(SYS_writev, descriptor, parts, count);
    for (int i = 0; i < count; ++i) // a short write is a write: whoever calls goes on with the rest
        if (parts[i].iov_len > 0) return write(descriptor, parts[i].iov_base, parts[i].iov_len);
    return 0;
}

int fsync(int descriptor) {
    return on_descriptor(tutti::chaos::Call::fsync, descriptor, 0, [&] { return system_call(SYS_fsync, descriptor); });
}
int fdatasync(int descriptor) { return fsync(descriptor); }
int ftruncate(int descriptor, off_t size) noexcept {
    return on_descriptor(tutti::chaos::Call::truncate, descriptor, size,
                         [&] { return system_call(SYS_ftruncate, descriptor, size); });
}
int ftruncate64(int, off64_t) noexcept __attribute__((alias("ftruncate")));
int fallocate(int descriptor, int mode, off_t offset, off_t size) {
    return on_descriptor(tutti::chaos::Call::allocate, descriptor, offset + size,
                         [&] { return system_call(SYS_fallocate, descriptor, mode, offset, size); });
}
int fallocate64(int, int, off64_t, off64_t) __attribute__((alias("fallocate")));
int flock(int descriptor, int operation) noexcept {
    return on_descriptor(tutti::chaos::Call::lock, descriptor, 0,
                         [&] { return system_call(SYS_flock, descriptor, operation); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
    auto action = [&] { return system_call(SYS_renameat2, from_folder, from, to_folder, to, flags); };
    if (!tutti::chaos::is_watched(to_folder, to)) return action();
    tutti::chaos::Watch watch(tutti::chaos::Call::rename);
    if (watch.fails()) return -1;
    const int result = action();
    std::array<char, 8192> both{};
    const int length =
        std::snprintf(both.data(), both.size() / 2, "%s", tutti::chaos::whole_path(from_folder, from)) + 1;
    const int more =
        std::snprintf(both.data() + length, both.size() / 2, "%s", tutti::chaos::whole_path(to_folder, to));
    if (result == 0) watch.note(-1, 0, {both.data(), static_cast<std::size_t>(length + more)});
    return result;
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
    return renameat2(from_folder, from, to_folder, to, 0);
}
int rename(const char* from, const char* to) noexcept { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int folder, const char* path, int flags) noexcept {
    return on_path(flags == AT_REMOVEDIR ? tutti::chaos::Call::rmdir : tutti::chaos::Call::unlink, folder, path,
                   [&] { return system_call(SYS_unlinkat, folder, path, flags); });
}
int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
    const int result = unlink(path);
    return result != 0 && errno == EISDIR ? rmdir(path) : result;
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
    return on_path(tutti::chaos::Call::mkdir, folder, path,
                   [&] { return system_call(SYS_mkdirat, folder, path, mode); });
}
int mkdir(const char* path, mode_t mode) noexcept { return mkdirat(AT_FDCWD, path, mode); }

int fstatat(int folder, const char* path, struct stat* status, int flags) noexcept {
    return on_path(tutti::chaos::Call::stat, folder, path,
                   [&] { return system_call(SYS_newfstatat, folder, path, status, flags); });
}
int stat(const char* path, struct stat* status) noexcept { return fstatat(AT_FDCWD, path, status, 0); }
int lstat(const char* path, struct stat* status) noexcept {
    return fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
int fstat(int descriptor, struct stat* status) noexcept {
    return on_descriptor(tutti::chaos::Call::stat, descriptor, 0,
                         [&] { return system_call(SYS_fstat, descriptor, status); });
}
int stat64(const char* path, struct stat64* status) noexcept {
    return stat(path, reinterpret_cast<struct stat*>(status));
}
int lstat64(const char* path, struct stat64* status) noexcept {
    return lstat(path, reinterpret_cast<struct stat*>(status));
}
int fstat64(int descriptor, struct stat64* status) noexcept {
    return fstat(descriptor, reinterpret_cast<struct stat*>(status));
}
int statx(int folder, const char* path, int flags, unsigned mask, struct statx* status) noexcept {
    return on_path(tutti::chaos::Call::stat, folder, path,
                   [&] { return system_call(SYS_statx, folder, path, flags, mask, status); });
}
int access(const char* path, int mode) noexcept {
    return on_path(tutti::chaos::Call::access, AT_FDCWD, path, [&] { return system_call(SYS_access, path, mode); });
}

// Folders are opened by the calls above, so that their descriptors are known; libc does the rest.
DIR* fdopendir(int descriptor) {
    static auto* const own = reinterpret_cast<DIR* (*)(int)>(::dlsym(RTLD_NEXT, "fdopendir"));
    if (!tutti::chaos::is_watched(descriptor)) return own(descriptor);
    const tutti::chaos::Watch watch(tutti::chaos::Call::list);
    return watch.fails() ? nullptr : own(descriptor);
}
DIR* opendir(const char* path) {
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return nullptr;
    DIR* folder = fdopendir(descriptor);
    if (!folder) {
        const int error = errno;
        close(descriptor);
        errno = error;
    }
    return folder;
}
dirent* readdir(DIR* folder) {
    static auto* const own = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
    if (!tutti::chaos::is_watched(::dirfd(folder))) return own(folder);
    const tutti::chaos::Watch watch(tutti::chaos::Call::entry);
    return watch.fails() ? nullptr : own(folder);
}
int closedir(DIR* folder) {
    static auto* const own = reinterpret_cast<int (*)(DIR*)>(::dlsym(RTLD_NEXT, "closedir"));
    const int descriptor = ::dirfd(folder);
    if (!tutti::chaos::is_watched(descriptor)) return own(folder);
    tutti::chaos::Watch watch(tutti::chaos::Call::close);
    tutti::chaos::closed(descriptor);
    watch.note(descriptor, 0, {});
    const int result = own(folder);
    return watch.fails() ? -1 : result;
}

} // extern "C"

// Streams of libc call the system past all of the above; those on files under the root are built on it instead.
namespace {

std::array<std::atomic<std::FILE*>, 1024> streams; // by descriptor

int descriptor_of(void* cookie) { return static_cast<int>(reinterpret_cast<std::intptr_t>(cookie)); }
ssize_t read_stream(void* cookie, char* bytes, size_t size) { return read(descriptor_of(cookie), bytes, size); }
ssize_t write_stream(void* cookie, const char* bytes, size_t size) {
    for (size_t done = 0; done < size;) { // as libc does; it takes less for an error
        const ssize_t count = write(descriptor_of(cookie), bytes + done, size - done);
        if (count <= 0) return static_cast<ssize_t>(done);
        done += static_cast<size_t>(count);
    }
    return static_cast<ssize_t>(size);
}
int seek_stream(void* cookie, off64_t* offset, int from) {
    *offset = ::syscall(SYS_lseek, descriptor_of(cookie), *offset, from);
    return *offset < 0 ? -1 : 0;
}
int close_stream(void* cookie) {
    streams[static_cast<std::size_t>(descriptor_of(cookie))] = nullptr;
    return close(descriptor_of(cookie));
}

int flags_of(const char* mode) {
    const int access = std::strchr(mode, '+') ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
    return access | (mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT | O_APPEND : 0);
}

} // namespace

extern "C" {

std::FILE* fopen(const char* path, const char* mode) {
    static auto* const own = reinterpret_cast<std::FILE* (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "fopen"));
    if (!tutti::chaos::is_watched(AT_FDCWD, path)) return own(path, mode);
    const int descriptor = open(path, flags_of(mode), 0666);
    if (descriptor < 0 || descriptor >= static_cast<int>(streams.size())) return nullptr;
    std::FILE* stream = ::fopencookie(reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)), mode,
                                      {read_stream, write_stream, seek_stream, close_stream});
    streams[static_cast<std::size_t>(descriptor)] = stream;
    return stream;
}
std::FILE* fopen64(const char*, const char*) __attribute__((alias("fopen")));
int fileno(std::FILE* stream) noexcept {
    static auto* const own = reinterpret_cast<int (*)(std::FILE*)>(::dlsym(RTLD_NEXT, "fileno"));
    for (std::size_t descriptor = 0; descriptor < streams.size(); ++descriptor)
        if (stream && streams[descriptor] == stream) return static_cast<int>(descriptor);
    return own(stream);
}

} // extern "C"
