// Names that Hugging Face's Trainer, Megatron-LM, DeepSpeed and other trainers have for options of a training run. A
// message answers them with the option here.
#pragma once

#include <string>
#include <string_view>

namespace tutti::run {

// "--learning-rate is called --lr here" of a flag, "learning_rate is called lr here" of a TOML key; empty where none of
// them has such a name, or Tutti has the same.
std::string answer_to_foreign_name(std::string_view name);

} // namespace tutti::run
