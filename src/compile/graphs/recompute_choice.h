// Which blocks of each stage are recomputed: none, all, or no more than memory asks for. Earlier stages of a pipeline
// hold more micro-batches between forward and backward, so what they keep has to be less (Merak's stage-aware
// recomputation).
//
//   peak = fixed + (in_flight - 1) * what waiting micro-batches keep + what the active one has
//
// The active one has all its activations where they are recomputed early; where they are recomputed within the
// backward, what it keeps and one block's more.
#pragma once

#include "compile/graphs/recompute.h"

#include <string>
#include <vector>

namespace tutti::compile {

// A stage, as far as its activations are concerned.
struct StageActivations {
    Bytes budget;      // that it may use
    Bytes fixed;       // model data, and everything else that does not depend on the choice
    int in_flight = 1; // micro-batches between their forward and their backward, the active one among them
    std::vector<BlockActivations> blocks{};
};

struct RecomputeRule {
    enum class Kind : std::uint8_t {
        none,
        full,      // every block that this saves anything of
        fraction,  // of the first stage's blocks; of others as many as let waiting micro-batches keep as much as there
        automatic, // the least work that makes each stage fit its budget; all where nothing does
    };
    Kind kind = Kind::none;
    double fraction = 0;

    bool operator==(const RecomputeRule&) const = default;
};

RecomputeRule parse_recompute_rule(const std::string& text); // none, full, auto or a fraction such as 0.75; Error
std::string to_string(const RecomputeRule& rule);

Bytes peak_of(const StageActivations& stage, std::span<const int> recomputed, schedule::Recompute when);

// Per stage the numbers of its blocks, in order.
std::vector<std::vector<int>> choose_recompute(std::span<const StageActivations> stages, const RecomputeRule& rule,
                                               schedule::Recompute when);

} // namespace tutti::compile
