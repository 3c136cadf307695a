#include "models/model.h"

#include "base/counted.h"
#include "base/error.h"
#include "formats/json.h"
#include "models/builder.h"
#include "models/builtin.h"
#include "models/huggingface/family.h"

namespace tutti {

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
    Builder builder(shape);
    ModelFacts facts = family_->facts(*read_);
    facts.architecture = family_->architecture;
    if (facts.max_sequence > 0 && shape.sequence > facts.max_sequence)
        fail("{}: a sequence of {} is longer than the {} of this model (\"{}\" is {})", where_,
             counted(shape.sequence, "token"), counted(facts.max_sequence, "position"), family_->positions_key,
             read_->integer(family_->positions_key));
    const ValueId logits = family_->logits(builder, *read_);
    return builder.finish(std::move(facts), logits);
}

ModelSource open_model(const std::string& name_or_folder) {
    const fs::path folder(name_or_folder);
    if (is_folder(folder)) {
        const fs::path file = folder / "config.json";
        if (!is_there(file) && is_there(folder / "model" / "config.json"))
            fail("the folder {} holds no config.json; it is a run's folder, and its model is {}",
                 in_quotes(name_or_folder), in_quotes((folder / "model").string()));
        if (!is_there(file))
            fail("the folder {} holds no config.json; a model folder is one written by Transformers' save_pretrained",
                 in_quotes(name_or_folder));
        return ModelSource(read_json(file), file.string(), folder);
    }
    if (const BuiltinModel* builtin = find_builtin(name_or_folder))
        return ModelSource(builtin->config, fmt::format("built-in model {}", builtin->name));
    fail("there is no model folder {}, nor a built-in model of that name; built in are: {}", in_quotes(name_or_folder),
         builtin_names());
}

} // namespace tutti
