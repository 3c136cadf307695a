// Rotary position embedding as config.json spells it: rope_parameters in Transformers 5; rope_theta with rope_scaling,
// or rotary_pct with rotary_emb_base, in Transformers 4.
#pragma once

#include "models/builder.h"
#include "models/huggingface/config.h"

namespace tutti::models::huggingface {

struct Rope {
    std::vector<double> frequencies; // one per rotated pair, rounded to float32 as in Transformers
    double scale = 1;                // of cosines and sines (YaRN's attention factor)
    std::int64_t limit = 0;          // dynamic scaling: beyond this length the frequencies would change; 0: none

    bool operator==(const Rope&) const = default;
};

// Rows for a family's table: for those that rotate whole heads, and for those that rotate a fraction of each, with its
// default and other spellings.
Keys rope_keys();
Keys partial_rope_keys(double fraction, const std::string& fraction_also = {}, const std::string& theta_also = {});

// Reads them, for heads of this size. Needs "max_position_embeddings" in the table.
Rope read_rope(const Config& config, std::int64_t head_size);
// The tables for the builder's sequence; Error where that is beyond the rope's limit.
RotaryTables rotary_tables(Builder& builder, const Config& config, const Rope& rope, const std::string& source);

} // namespace tutti::models::huggingface
