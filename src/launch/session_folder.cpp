#include "launch/session_folder.h"

#include "base/system_error.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace tutti::launch {
namespace {

constexpr const char *prefix = "tutti-mpirun-", *lock_name = "tutti-mpirun.lock", *new_lock_name = "tutti-mpirun.new";

bool is_own_folder(const fs::path& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

// Leaves alone what has no lock: it is not of this kind, or is being made.
void remove_if_abandoned(const fs::path& folder) {
    const int lock = ::open((folder / lock_name).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (lock < 0) return;
    std::error_code ignored;
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) fs::remove_all(folder, ignored);
    ::close(lock);
}

void remove_abandoned(const fs::path& parent) {
    std::error_code failed;
    for (fs::directory_iterator entry(parent, failed), end; !failed && entry != end; entry.increment(failed))
        if (entry->path().filename().string().starts_with(prefix) && is_own_folder(entry->path()))
            remove_if_abandoned(entry->path());
}

} // namespace

SessionFolder::SessionFolder(const fs::path& parent) {
    remove_abandoned(parent);
    std::string pattern = (parent / prefix).string() + "XXXXXX";
    if (!::mkdtemp(pattern.data()))
        fail_system(errno, "mpirun needs a folder for temporary files, and none can be made in {}", parent.string());
    path_ = pattern;
    // Locked before it has its name: another start may look at any time.
    lock_ = ::open((path_ / new_lock_name).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600); // mpirun inherits it
    if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0 ||
        ::rename((path_ / new_lock_name).c_str(), (path_ / lock_name).c_str()) != 0) {
        const int error = errno;
        if (lock_ >= 0) ::close(lock_);
        remove();
        fail_system(error, "mpirun needs a folder for temporary files, and {} cannot be locked", path_.string());
    }
}

SessionFolder::~SessionFolder() {
    remove();
    ::close(lock_);
}

void SessionFolder::remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

} // namespace tutti::launch
