// The files that a command reads and writes. What it writes is none of the others: nothing that was given is lost.
#pragma once

#include "cli/arguments.h"

#include <vector>

namespace tutti::cli {

class UsedFiles {
  public:
    // Options that were not given are no files.
    void reads(const CLI::Option* option);
    void reads(const std::string& what, const fs::path& path);
    void reads_model(const std::string& name); // the files of a folder; a built-in name has none

    // Error where it cannot be written, or is one that is used already.
    void writes(const CLI::Option* option);
    // The same, and Error where another file than a plan would be lost.
    void writes_plan(const CLI::Option* option);

  private:
    struct Used {
        std::string what;
        fs::path path;
        bool written = false;
    };
    std::vector<Used> used_;
};

// Whether all of these keys are in the JSON object that the file holds; false where it holds none.
bool holds_keys(const fs::path& path, std::initializer_list<std::string_view> keys);
// An empty one, or none at all: nothing is lost.
bool is_free(const fs::path& path);

} // namespace tutti::cli
