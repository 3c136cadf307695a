// TuningCache: the fastest algorithm of every matmul, or every attention, kept in a file from run to run. Timing again
// would cost time and might choose another algorithm, whose sums differ in their last bits.
//
// The file is JSON that a person can read: {"<the work, in words>": {"algorithm": "<hex>", "microseconds": 12.3}}.
// Nothing in it is trusted: what does not look right is dropped, and the file is made anew by the next write.
#pragma once

#include "base/cache_folder.h"

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tutti::backend::cuda {

struct TunedChoice {
    std::string algorithm;   // bytes in hexadecimal, or a name
    double microseconds = 0; // 0: not measured

    bool operator==(const TunedChoice&) const = default;
};

class TuningCache {
  public:
    // `name` becomes the file's name; characters that do not belong into one are replaced. Never throws for what is, or
    // is not, on the disk.
    TuningCache(const std::optional<fs::path>& folder, std::string_view name);

    // False where there is no folder to write to: then nothing should be measured, since the next run could not agree.
    bool writable() const { return writable_; }
    std::optional<TunedChoice> find(const std::string& matmul) const;
    // What is known of this product turned out to be unusable: the next `keep` replaces it.
    void refuse(const std::string& matmul);
    // Adds to the file and to what other processes have put there meanwhile. Gives the choice that holds from now on:
    // another process may have been first. Nothing where the file could not be written.
    std::optional<TunedChoice> keep(const std::string& matmul, const TunedChoice& choice);

    const fs::path& path() const { return path_; }

  private:
    using Choices = std::map<std::string, TunedChoice>;
    Choices read() const;
    void write(const Choices& choices) const;

    fs::path path_;
    bool writable_ = false;
    mutable std::mutex mutex_;
    Choices choices_;
    std::set<std::string> refused_;
};

} // namespace tutti::backend::cuda
