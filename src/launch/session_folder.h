// A folder for what mpirun and its ranks share while they live. It goes when they are done, or, where all of them were
// killed, when the next run starts.
#pragma once

#include "base/file.h"

namespace tutti::launch {

// It has a file that is locked as long as this process lives or one that it starts (mpirun): a folder of the same kind
// whose lock is free belongs to nobody any more. Making one removes those of the same user beside it.
class SessionFolder {
  public:
    explicit SessionFolder(const fs::path& parent); // Error or WorldError where none can be made
    SessionFolder(const SessionFolder&) = delete;
    SessionFolder& operator=(const SessionFolder&) = delete;
    ~SessionFolder();

    void remove() const;
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
    int lock_ = -1;
};

} // namespace tutti::launch
