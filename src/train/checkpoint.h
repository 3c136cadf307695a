// Checkpoints: weights, optimizer state, step and data position of a run, as a folder that is whole or absent.
//
//   checkpoints/step-00000100/
//       state.safetensors   weights/NAME, moments1/NAME, moments2/NAME in float32, by the checkpoint's tensor names
//       checkpoint.json     written last: version, step, data position, and the checksums of every file and of itself
//
// Written as step-00000100.tmp, synced, then renamed. Tensors are stored whole and by name, so that a checkpoint does
// not depend on how the run was laid out or on how many ranks it had. All ranks write and read it together, each what
// it holds; `stored` are always the tensors of the whole model.
#pragma once

#include "base/file.h"
#include "comm/group.h"
#include "data/data_files.h"
#include "graph/graph.h"
#include "runtime/model_data.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct CheckpointState {
    std::int64_t step = 0;    // steps done
    std::int64_t samples = 0; // samples used: the data position
    std::uint64_t seed = 0;
    std::int64_t skipped = 0; // steps that were not finite
    std::int64_t steps = 0;   // that the run was to do; 0: not recorded, as in older checkpoints
    nlohmann::ordered_json settings = nlohmann::ordered_json::object(); // see train/settings.h
    std::optional<std::vector<DataFile>> data_files{}; // none: not recorded, as in older checkpoints; of rank 0

    bool finished() const { return steps > 0 && step >= steps; }
};

struct CheckpointInfo {
    fs::path folder;
    CheckpointState state;
    std::string model; // fingerprint of names and shapes
    std::string file, checksum;
};

struct CheckpointList {
    std::vector<CheckpointInfo> readable; // newest first
    std::vector<std::string> unreadable;  // a sentence for each folder that looks like a checkpoint but is none
};

// The names and shapes of all tensors, as a short hash.
std::string fingerprint(std::span<const StoredTensor> stored);

// Writes checkpoints/step-N and removes all but the newest `keep`. WorldError, the same on all ranks, where the disk of
// any is full: what was there stays whole.
fs::path save_checkpoint(Group& group, const fs::path& run, const CheckpointState& state,
                         std::span<const StoredTensor> stored, const ModelData& data, std::int64_t keep);

// Reads checkpoint.json. Error where it is missing, damaged or was edited.
CheckpointInfo inspect_checkpoint(const fs::path& folder);
// Whether every file has the checksum that was written.
bool is_intact(const CheckpointInfo& info);
bool is_intact(Group& group, const CheckpointInfo& info); // rank 0 looks
// The checkpoints of a run. Temporary folders are left out.
CheckpointList list_checkpoints(const fs::path& run);

// Fills the chunks. Error where it belongs to another model.
void load_checkpoint(Group& group, const CheckpointInfo& info, std::span<const StoredTensor> stored,
                     const ModelData& data);

} // namespace tutti
