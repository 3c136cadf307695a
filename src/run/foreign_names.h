// What Hugging Face's Trainer calls some of the options, so that whoever comes from there is told the name here.
#pragma once

#include <string>
#include <string_view>

namespace tutti::run {

// "--learning-rate is called --lr here" of a flag, "learning_rate is called lr here" of a TOML key; empty where Trainer
// has no such name, or Tutti has the same.
std::string answer_to_foreign_name(std::string_view name);

} // namespace tutti::run
