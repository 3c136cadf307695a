// The folder of a run: one run at a time writes to it, and what an earlier one left there is set aside under another
// name, not written over.
#pragma once

#include "base/file.h"

namespace tutti {

// Held while a run writes to its folder. The kernel lets go of it when the process ends, however it ends.
class RunLock {
  public:
    explicit RunLock(const fs::path& run); // makes the folder; Error where another run holds it
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;
    ~RunLock();

  private:
    int descriptor_ = -1;
};

// Renames what is at `path` to the first free of PATH.old, PATH.old-2, ... and returns that name; empty where there is
// nothing at `path`.
fs::path set_aside(const fs::path& path);

} // namespace tutti
