// Checkpoints: weights, optimizer state, step and data position of a run, as a folder that is whole or absent.
//
//   checkpoints/step-00000100/
//       state.safetensors   weights/NAME, moments1/NAME, moments2/NAME in float32, by the checkpoint's tensor names
//       checkpoint.json     written last: version, step, data position, and the checksums of every file and of itself
//
// Written as step-00000100.tmp, synced, then renamed. Tensors are stored whole and by name, so that a checkpoint does
// not depend on how the run was laid out or on how many ranks it had. All ranks write and read it together, each what
// it owns; `stored` are always the tensors of the whole model. Which of them stay: checkpoints/old_checkpoints.h.
#pragma once

#include "base/error.h"
#include "base/file.h"
#include "comm/group.h"
#include "data/data_files.h"
#include "graph/graph.h"
#include "offload/execution/model_data.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::checkpoints {

struct CheckpointState {
    std::int64_t step = 0;    // steps done
    std::int64_t samples = 0; // samples used: the data position
    std::uint64_t seed = 0;
    std::int64_t skipped = 0; // steps that were not finite
    std::int64_t steps = 0;   // that the run was to do; 0: not recorded, as in older checkpoints
    nlohmann::ordered_json settings = nlohmann::ordered_json::object(); // see run/settings.h
    std::optional<std::vector<data::DataFile>> data_files{}; // none: not recorded, as in older checkpoints; of rank 0

    bool finished() const { return steps > 0 && step >= steps; }
    std::int64_t finite_steps() const { return step - skipped; } // those that changed something
};

struct CheckpointInfo {
    fs::path folder;
    CheckpointState state;
    std::string model; // fingerprint of names and shapes
    std::string file, checksum;
};

// A folder that was read and is no whole checkpoint. What could not be read may well be whole: that is another error.
struct Damage : Error {
    using Error::Error;
};

struct DamagedCheckpoint {
    fs::path folder;
    std::int64_t step = 0; // as its name says
    std::string damage;    // a sentence
};

struct CheckpointList {
    std::vector<CheckpointInfo> readable; // newest first
    std::vector<DamagedCheckpoint> damaged;
};

fs::path checkpoints_of(const fs::path& run); // the folder of them all
// Error where something of that name is there which is no folder, or none that can be written to. Makes nothing.
void expect_folder(const fs::path& run);

// The names and shapes of all tensors, as a short hash.
std::string fingerprint(std::span<const StoredTensor> stored);

// Writes checkpoints/step-N. WorldError, the same on all ranks, where the disk of any is full: what was there stays
// whole.
fs::path save_checkpoint(comm::Group& group, const fs::path& run, const CheckpointState& state,
                         std::span<const StoredTensor> stored, const offload::ModelData& data);
// Renames it and removes it, as far as that works.
void remove_checkpoint(const fs::path& folder);
// Whether it was being written or removed.
bool is_leftover(const fs::path& folder);

// Reads checkpoint.json. Damage where it is missing, no regular file, malformed or was edited; another Error or
// WorldError where it cannot be read, or is of another version.
CheckpointInfo inspect_checkpoint(const fs::path& folder);
// Whether every file is one, and has the checksum that was written.
bool is_intact(const CheckpointInfo& info);
bool is_intact(comm::Group& group, const CheckpointInfo& info); // rank 0 looks
// The checkpoints of a run: folders of the name step-NUMBER. Error or WorldError where one cannot be read.
CheckpointList list_checkpoints(const fs::path& run);

// Fills the chunks. Error where it belongs to another model.
void load_checkpoint(comm::Group& group, const CheckpointInfo& info, std::span<const StoredTensor> stored,
                     const offload::ModelData& data);

} // namespace tutti::checkpoints
