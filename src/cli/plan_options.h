// The options of tutti plan and what each goes with: one table, from which flags, help and refusals follow.
#pragma once

#include "base/units.h"
#include "cli/arguments.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::cli {

enum class PlanMode : std::uint8_t { search, what_if, evaluate, intra_op };

class PlanOptions {
  public:
    explicit PlanOptions(CLI::App& app); // adds them all

    // What is asked for. Error where two things are, or an option is given that does not go with it.
    PlanMode mode() const;
    const CLI::Option* operator[](std::string_view name) const; // "--cluster"

    std::optional<Bytes> memory_cap() const;
    std::optional<double> time_limit() const; // seconds

  private:
    std::vector<const CLI::Option*> options_; // in the order of the table
};

} // namespace tutti::cli
