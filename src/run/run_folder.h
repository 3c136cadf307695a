// The folder of a run: one run at a time writes to it, and what an earlier one left there is set aside under another
// name, not written over.
#pragma once

#include "base/file.h"
#include "run/listener.h"

#include <string>
#include <string_view>

namespace tutti::run {

// Held while a run writes to its folder. The kernel lets go of it when the process ends, however it ends.
class RunLock {
  public:
    explicit RunLock(const fs::path& run); // makes the folder; WorldError where another run holds it
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;
    ~RunLock();

  private:
    int descriptor_ = -1;
};

// The first of PATH.old, PATH.old-2, ... at which nothing is.
fs::path free_name(const fs::path& path);
// Renames what is at `path` to that and returns it; empty where there is nothing at `path`.
fs::path set_aside(const fs::path& path);

// How the config.toml begins that a run leaves in its folder, whatever the version.
constexpr std::string_view config_head = "# A run of tutti train";
bool is_run_folder(const fs::path& path); // whether a run left one there

// Sets aside, and tells, a config.toml in the folder that no run left there, and a plan.json beside it unless it is
// `plan`: they are somebody's own, and the run is about to write both.
void set_others_aside(const fs::path& run, const std::string& plan, TrainListener& listener);

} // namespace tutti::run
