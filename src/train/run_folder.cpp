#include "train/run_folder.h"

#include "base/error.h"
#include "base/system_error.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

RunLock::RunLock(const fs::path& run) {
    make_folders(run);
    const fs::path file = run / ".tutti-lock";
    descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (descriptor_ < 0) fail_system(errno, "cannot write {}", file.string());
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) return; // a file system without locks: better no guard than no run
    ::close(descriptor_);
    fail("another run is writing to {}: wait until it ends, or give another --output", run.string());
}

RunLock::~RunLock() { ::close(descriptor_); } // the file stays: removing it could take it from a run that just began

fs::path set_aside(const fs::path& path) {
    if (!is_there(path)) return {};
    fs::path name = path;
    name += ".old";
    for (int i = 2; is_there(name); ++i) {
        name = path;
        name += ".old-" + std::to_string(i);
    }
    rename_durably(path, name);
    return name;
}

} // namespace tutti
