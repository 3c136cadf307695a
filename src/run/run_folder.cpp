#include "run/run_folder.h"

#include "base/error.h"
#include "base/system_error.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti::run {

RunLock::RunLock(const fs::path& run) {
    make_folders(run);
    const fs::path file = run / ".tutti-lock";
    descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (descriptor_ < 0) fail_system(errno, "cannot write {}", file.string());
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) return; // a file system without locks: better no guard than no run
    ::close(descriptor_);
    fail_world("another run is writing to {}: wait until it ends, or give another --output", run.string());
}

RunLock::~RunLock() { ::close(descriptor_); } // the file stays: removing it could take it from a run that just began

fs::path free_name(const fs::path& path) {
    fs::path name = path;
    name += ".old";
    for (int i = 2; is_there(name); ++i) {
        name = path;
        name += ".old-" + std::to_string(i);
    }
    return name;
}

fs::path set_aside(const fs::path& path) {
    if (!is_there(path)) return {};
    fs::path name = free_name(path);
    rename_durably(path, name);
    return name;
}

namespace {

bool begins_with(const fs::path& path, std::string_view text) {
    const InputFile file(path);
    std::string start(std::min<std::uint64_t>(file.size(), text.size()), '\0');
    file.read(0, std::as_writable_bytes(std::span(start)));
    return start == text;
}

bool holds_something(const fs::path& path) { return is_file(path) && InputFile(path).size() > 0; }

} // namespace

bool is_run_folder(const fs::path& path) {
    const fs::path config = path / "config.toml";
    return is_file(config) && begins_with(config, config_head);
}

void set_others_aside(const fs::path& run, const std::string& plan, TrainListener& listener) {
    const fs::path config = run / "config.toml", plan_file = run / "plan.json";
    if (is_run_folder(run)) return; // the plan is the run's, too
    auto set_one_aside = [&](const fs::path& path) {
        const fs::path kept = set_aside(path);
        listener.warning(fmt::format("{} was not left by a run: it is kept as {}", path.string(), kept.string()));
    };
    // The plan first: a start that is killed in between finds the config as it was, and does both.
    if (holds_something(plan_file) && read_text(plan_file) != plan) set_one_aside(plan_file);
    if (holds_something(config)) set_one_aside(config);
}

} // namespace tutti::run
