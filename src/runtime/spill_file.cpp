#include "runtime/spill_file.h"

#include "base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace tutti {

SpillFile::SpillFile(fs::path folder, Bytes size)
    : folder_(std::move(folder)), size_(std::max<std::int64_t>(size.count, 1)) {
    std::string name = (folder_ / "tutti-chunks-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0)
        fail("{} is to hold model data, and no file can be made there: {}", folder_.string(), std::strerror(errno));
    ::unlink(name.c_str());
    if (const int error = ::posix_fallocate(descriptor_, 0, size_); error != 0) {
        ::close(descriptor_);
        fail_world("{}: no room for {} of model data on this disk: {}", folder_.string(), to_string(size),
                   std::strerror(error));
    }
}

SpillFile::~SpillFile() { ::close(descriptor_); }

void SpillFile::check_size() const {
    struct stat status = {};
    if (::fstat(descriptor_, &status) != 0) fail_world("{}: {}", folder_.string(), std::strerror(errno));
    if (status.st_size < size_)
        fail_world("the file with {} of model data in {} was cut short to {} by someone else", to_string(Bytes{size_}),
                   folder_.string(), to_string(Bytes{status.st_size}));
}

void SpillFile::read(std::int64_t offset, std::span<std::byte> out) const {
    check_size();
    while (!out.empty()) {
        const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail_world("{}: reading model data: {}", folder_.string(), std::strerror(errno));
        if (got == 0)
            fail_world("the file with model data in {} ends at byte {}: it was cut short by someone else",
                       folder_.string(), offset);
        out = out.subspan(static_cast<std::size_t>(got));
        offset += got;
    }
}

void SpillFile::write(std::int64_t offset, std::span<const std::byte> in) const {
    check_size();
    while (!in.empty()) {
        const ssize_t put = ::pwrite(descriptor_, in.data(), in.size(), offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) fail_world("{}: writing model data: {}", folder_.string(), std::strerror(errno));
        in = in.subspan(static_cast<std::size_t>(put));
        offset += put;
    }
}

double SpillFile::write_speed() const {
    const std::vector<std::byte> some(static_cast<std::size_t>(std::min<std::int64_t>(size_, 16 << 20)));
    const auto begin = std::chrono::steady_clock::now();
    write(0, some);
    if (::fdatasync(descriptor_) != 0) fail_world("{}: {}", folder_.string(), std::strerror(errno));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return static_cast<double>(some.size()) / std::max(taken.count(), 1e-6);
}

} // namespace tutti
