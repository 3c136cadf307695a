#include "offload/execution/spill_file.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/system_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

namespace tutti::offload {
namespace {

// Calls `part(begin, end)` for parts of so many bytes, several at once where they are many.
template <class Part>
void in_parts(std::size_t size, const Part& part) {
    constexpr std::size_t most_parts = 4, large = 4 << 20;
    const std::size_t count = std::clamp<std::size_t>(size / large, 1, most_parts);
    const auto each =
        static_cast<std::size_t>(round_up(static_cast<std::int64_t>((size + count - 1) / count), disk_alignment));
    std::vector<std::future<void>> others;
    for (std::size_t begin = each; begin < size; begin += each)
        others.push_back(std::async(std::launch::async, part, begin, std::min(begin + each, size)));
    part(std::size_t{0}, std::min(each, size));
    for (std::future<void>& other : others) other.get();
}

} // namespace

SpillFile::SpillFile(fs::path folder, Bytes size)
    : folder_(std::move(folder)), size_(std::max<std::int64_t>(size.count, 1)) {
    std::string name = (folder_ / "tutti-chunks-XXXXXX").string();
    cached_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (cached_ < 0) fail_system(errno, "{} is to hold model data, and no file can be made there", folder_.string());
    direct_ = ::open(name.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    ::unlink(name.c_str());
    if (const int error = ::posix_fallocate(cached_, 0, size_); error != 0) {
        ::close(cached_);
        if (direct_ >= 0) ::close(direct_);
        fail_world("{}: no room for {} of model data on this disk: {}", folder_.string(), to_string(size),
                   std::strerror(error));
    }
}

SpillFile::~SpillFile() {
    ::close(cached_);
    if (direct_ >= 0) ::close(direct_);
}

void SpillFile::check_size() const {
    struct stat status = {};
    if (::fstat(cached_, &status) != 0) fail_system(errno, "{}", folder_.string());
    if (status.st_size < size_)
        fail_world("the file with model data in {} was cut short by someone else, from {} bytes to {}",
                   folder_.string(), size_, status.st_size);
}

int SpillFile::descriptor_for(std::int64_t offset, std::span<const std::byte> bytes) const {
    const bool is_aligned = offset % disk_alignment == 0 && bytes.size() % disk_alignment == 0 &&
                            reinterpret_cast<std::uintptr_t>(bytes.data()) % disk_alignment == 0;
    return direct_ >= 0 && is_aligned ? direct_ : cached_;
}

void SpillFile::read(std::int64_t offset, std::span<std::byte> out) const {
    check_size();
    in_parts(out.size(), [&](std::size_t begin, std::size_t end) {
        read_part(offset + static_cast<std::int64_t>(begin), out.subspan(begin, end - begin));
    });
}

void SpillFile::read_part(std::int64_t offset, std::span<std::byte> out) const {
    int descriptor = descriptor_for(offset, out);
    while (!out.empty()) {
        const ssize_t got = ::pread(descriptor, out.data(), out.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EINVAL && std::exchange(descriptor, cached_) != cached_) continue;
        if (got < 0) fail_system(errno, "{}: reading model data", folder_.string());
        if (got == 0)
            fail_world("the file with model data in {} ends at byte {}: it was cut short by someone else",
                       folder_.string(), offset);
        out = out.subspan(static_cast<std::size_t>(got));
        offset += got;
    }
}

void SpillFile::write(std::int64_t offset, std::span<const std::byte> in) const {
    check_size();
    in_parts(in.size(), [&](std::size_t begin, std::size_t end) {
        write_part(offset + static_cast<std::int64_t>(begin), in.subspan(begin, end - begin));
    });
}

void SpillFile::write_part(std::int64_t offset, std::span<const std::byte> in) const {
    int descriptor = descriptor_for(offset, in);
    while (!in.empty()) {
        const ssize_t put = ::pwrite(descriptor, in.data(), in.size(), offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EINVAL && std::exchange(descriptor, cached_) != cached_) continue;
        if (put < 0) fail_system(errno, "{}: writing model data", folder_.string());
        in = in.subspan(static_cast<std::size_t>(put));
        offset += put;
    }
}

} // namespace tutti::offload
