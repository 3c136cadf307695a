#include "models/model.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/nearest.h"
#include "formats/json.h"
#include "models/builder.h"
#include "models/builtin.h"
#include "models/huggingface/family.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace tutti::models {

ModelSource::ModelSource(nlohmann::json config, std::string where, fs::path folder)
    : config_(std::move(config)), where_(std::move(where)), folder_(std::move(folder)),
      family_(&huggingface::find_family(config_, where_)),
      read_(std::make_shared<const huggingface::Config>(config_, where_, family_->keys)) {
    // The smallest build checks what the table of keys cannot: whether the sizes fit one another.
    facts_ = build({1, 1, DType::float32});
    warnings_ = read_->warnings();
}

Model ModelSource::build(const ModelShape& shape) const {
    if (shape.batch < 1 || shape.sequence < 1)
        fail("a micro-batch of {} of {} is empty; both are at least 1", counted(shape.batch, "sample"),
             counted(shape.sequence, "token"));
    if (shape.dtype != DType::float32 && shape.dtype != DType::bfloat16 && shape.dtype != DType::float64)
        fail("models are computed in float32 or bf16, not in {}", name_of(shape.dtype));
    ModelShape whole = shape;
    whole.documents |= documents_;
    Builder builder(whole);
    ModelFacts facts = family_->facts(*read_);
    facts.architecture = family_->architecture;
    if (facts.max_sequence > 0 && shape.sequence > facts.max_sequence)
        fail("{}: a sequence of {} is longer than the {} of this model (\"{}\" is {})", where_,
             counted(shape.sequence, "token"), counted(facts.max_sequence, "position"), family_->positions_key,
             read_->integer(family_->positions_key));
    const ValueId logits = family_->logits(builder, *read_);
    return builder.finish(std::move(facts), logits);
}

ModelSource ModelSource::with_documents() const {
    if (!facts_.causal)
        fail("{} is a masked language model: sequences of several documents are for models that predict the next token",
             facts_.architecture);
    ModelSource packed = *this;
    packed.documents_ = true;
    return packed;
}

namespace {

// What a file is that holds one model in another program's form; empty where its name does not tell.
std::string_view foreign_format(const fs::path& file) {
    const std::string extension = file.extension().string();
    if (extension == ".onnx") return "an ONNX file";
    if (extension == ".gguf" || extension == ".ggml") return "a llama.cpp file";
    if (extension == ".pt" || extension == ".pth" || extension == ".ckpt" || extension == ".bin")
        return "a PyTorch file";
    return "";
}

[[noreturn]] void fail_file(const fs::path& file) {
    const std::string_view format = foreign_format(file);
    const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
    if (is_file(folder / "config.json"))
        fail("{} is a file, and a model is a folder: give {}, which holds a config.json",
             formats::in_quotes(file.string()), formats::in_quotes(folder.string()));
    fail("{} is {}, and Tutti reads no model from it: give a Hugging Face folder, with the config.json and "
         "model.safetensors that Transformers' save_pretrained writes, or the name of a built-in model",
         formats::in_quotes(file.string()), format.empty() ? "a file" : format);
}

// "Qwen/Qwen2.5-0.5B", and not a path that was mistyped: no folder has the name before the slash.
bool is_hub_name(const std::string& name) {
    auto is_part = [](std::string_view part) {
        return !part.empty() && std::isalnum(static_cast<unsigned char>(part[0])) != 0 &&
               std::ranges::all_of(
                   part, [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_'; });
    };
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos) return false;
    const std::string owner = name.substr(0, slash);
    return is_part(owner) && is_part(std::string_view(name).substr(slash + 1)) && !is_there(owner);
}

std::string lower_case(std::string name) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return name;
}

// "; did you mean gpt2?" for "GPT2" or "gtp2"; nothing for a path.
std::string suggested_builtin(const std::string& name) {
    std::vector<std::string> names;
    for (const BuiltinModel& model : builtin_models()) names.push_back(model.name);
    return name.find('/') == std::string::npos ? suggestion(lower_case(name), names) : "";
}

[[noreturn]] void fail_hub_name(const std::string& name) {
    const std::string own = name.substr(name.find('/') + 1);
    const BuiltinModel* builtin = find_builtin(lower_case(own));
    fail("there is no model folder {}. If it is a model's name on the Hugging Face Hub: Tutti downloads nothing, but "
         "`hf download {} --local-dir {}` makes the folder {}, which can be given here{}",
         formats::in_quotes(name), name, own, formats::in_quotes(own),
         builtin ? fmt::format("; the built-in model {} has the same shape, and random weights", builtin->name) : "");
}

} // namespace

ModelSource open_model(const std::string& name_or_folder) {
    const fs::path folder(name_or_folder);
    if (is_folder(folder)) {
        const fs::path file = folder / "config.json";
        if (!is_there(file) && is_there(folder / "model" / "config.json"))
            fail("the folder {} holds no config.json; it is a run's folder, and its model is {}",
                 formats::in_quotes(name_or_folder), formats::in_quotes((folder / "model").string()));
        if (!is_there(file) && is_there(folder / "checkpoints"))
            fail("the folder {} holds no config.json; it is the folder of a run that is not finished, and its model is "
                 "written at the end: tutti train --config {} --resume goes on with it",
                 formats::in_quotes(name_or_folder), formats::in_quotes((folder / "config.toml").string()));
        if (!is_there(file))
            fail("the folder {} holds no config.json; a model folder is one written by Transformers' save_pretrained",
                 formats::in_quotes(name_or_folder));
        return ModelSource(formats::read_json(file), file.string(), folder);
    }
    if (const BuiltinModel* builtin = find_builtin(name_or_folder))
        return ModelSource(builtin->config, fmt::format("built-in model {}", builtin->name));
    if (is_there(folder)) fail_file(folder);
    if (is_hub_name(name_or_folder)) fail_hub_name(name_or_folder);
    fail("there is no model folder {}, nor a built-in model of that name; built in are: {}{}",
         formats::in_quotes(name_or_folder), builtin_names(), suggested_builtin(name_or_folder));
}

} // namespace tutti::models
