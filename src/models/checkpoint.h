// Matches a model folder's weights with its graph: the name of each tensor in the folder, whether all are there, and
// the other files that a saved model needs.
#pragma once

#include "formats/tensor_store.h"
#include "models/model.h"

#include <string>
#include <vector>

namespace tutti::models {

// The name in the checkpoint of a tensor that the graph calls `stored`: the same, or one of the spellings that older
// checkpoints use (without the base model's prefix, LayerNorm.gamma, ...). Error, naming tensor and folder, where there
// is none.
std::string checkpoint_name(const ModelSource& source, const formats::TensorStore& weights, const std::string& stored);

// Names besides its own that a tensor has had: in memory, or in other versions' checkpoints.
std::vector<std::string> other_names(const ModelSource& source, const std::string& stored);

// Error unless every stored tensor of the graph is there, floating and of its shape. Returns a warning where the
// checkpoint holds tensors that the model does not know, other than buffers and copies of tied tensors.
std::vector<std::string> check_weights(const ModelSource& source, const Model& model,
                                       const formats::TensorStore& weights);

// The file of a model folder that holds its tokenizer's vocabulary; empty where there is none, or no folder.
std::string tokenizer_in(const fs::path& folder);

// Writes config.json with the element type of the saved weights, and copies tokenizer and generation files.
void copy_model_files(const ModelSource& source, const fs::path& to, DType saved_dtype);

} // namespace tutti::models
