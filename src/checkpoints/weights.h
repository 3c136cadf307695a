// Weights in and out: read from a Hugging Face folder or initialised, and saved as one. Each rank moves what it owns.
#pragma once

#include "base/file.h"
#include "comm/group.h"
#include "models/model.h"
#include "offload/execution/model_data.h"

#include <span>

namespace tutti::checkpoints {

// Fill the weights (and their master copy): from the model's folder, which check_weights has passed, and as a new model
// is initialised. Error, naming tensor and element, where the folder holds a weight that is not finite. `stored` and
// `initialisation` are those of the whole model.
void load_weights(const models::ModelSource& source, const offload::ModelData& data);
void initialise_weights(std::span<const StoredTensor> stored, std::span<const models::Initialisation> initialisation,
                        std::uint64_t seed, const offload::ModelData& data);

// A folder that Transformers reads: config.json, model.safetensors, the tokenizer's files; written by all ranks
// together. An older folder of that name is kept under the name that is returned (FOLDER.old, FOLDER.old-2, ...); empty
// where there was none.
fs::path save_model(comm::Group& group, const models::ModelSource& source, std::span<const StoredTensor> stored,
                    const offload::ModelData& data, const fs::path& folder);

} // namespace tutti::checkpoints
