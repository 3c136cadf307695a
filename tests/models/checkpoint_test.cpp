// Weights against the graph: older names, missing and foreign tensors; and what is written beside saved weights.
#include "models/checkpoint.h"

#include "models/model_text.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <functional>

namespace tutti::test {

using namespace formats;
using namespace models;
namespace {

// A folder with a case's config and zeros for weights, under other names: empty leaves a tensor out.
void write_folder(const TemporaryFolder& folder, const nlohmann::json& config,
                  const std::function<std::string(std::string)>& rename, std::vector<StoredTensor> more = {}) {
    folder.write("config.json", config.dump());
    const Model model = source_of(config).build({1, 8});
    std::vector<StoredTensor> tensors;
    for (const StoredTensor& tensor : model.graph.stored())
        if (const std::string name = rename(tensor.name); !name.empty())
            tensors.push_back({name, DType::float32, tensor.type.shape});
    tensors.insert(tensors.end(), more.begin(), more.end());
    SafetensorsWriter writer(folder / "model.safetensors", tensors);
    for (const StoredTensor& tensor : tensors)
        writer.append(std::vector<std::byte>(static_cast<std::size_t>(tensor.type.bytes().count)));
    writer.finish();
}

std::vector<std::string> check(const TemporaryFolder& folder) {
    const ModelSource source = open_model(folder.path().string());
    return check_weights(source, source.build({1, 8}), TensorStore(folder.path()));
}

std::string replaced(std::string name, const std::string& from, const std::string& to) {
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    return name;
}

std::string all_but(std::string_view one, std::string name) {
    if (name == one) name.clear();
    return name;
}

TEST(Checkpoint, OlderNamesAreFound) {
    const TemporaryFolder folder;
    // The original gpt2: no prefix, and the causal mask among the weights.
    write_folder(folder, reference_config("gpt2"), [](auto name) { return replaced(name, "transformer.", ""); },
                 {{"h.0.attn.bias", DType::float32, {1, 1, 4, 4}}});
    EXPECT_TRUE(check(folder).empty());
    // BERT from TensorFlow, with tied copies.
    write_folder(folder, reference_config("bert"),
                 [](auto name) {
                     return replaced(replaced(name, "LayerNorm.weight", "LayerNorm.gamma"), "LayerNorm.bias",
                                     "LayerNorm.beta");
                 },
                 {{"cls.predictions.decoder.weight", DType::float32, {256, 64}},
                  {"bert.embeddings.position_ids", DType::int64, {1, 64}}});
    EXPECT_TRUE(check(folder).empty());
    // Transformers 5 in memory.
    write_folder(folder, reference_config("gpt_neox"),
                 [](auto name) { return replaced(name, "embed_out", "lm_head"); });
    EXPECT_TRUE(check(folder).empty());
    // Transformers 4 had one bias for both of BERT's names.
    write_folder(folder, reference_config("bert-untied"),
                 [](auto name) { return all_but("cls.predictions.decoder.bias", name); });
    EXPECT_TRUE(check(folder).empty());
}

TEST(Checkpoint, MissingAndMisshapenTensorsAreNamed) {
    const TemporaryFolder folder;
    const auto same = [](auto name) { return name; };
    write_folder(folder, reference_config("llama"), [](auto name) { return all_but("model.norm.weight", name); });
    EXPECT_ERROR(check(folder), "hold no tensor \"model.norm.weight\"");
    write_folder(folder, reference_config("llama"), same);
    nlohmann::json wider = reference_config("llama");
    wider["vocab_size"] = 300;
    folder.write("config.json", wider.dump());
    EXPECT_ERROR(check(folder), "\"model.embed_tokens.weight\"");
    EXPECT_ERROR(check(folder), "has shape [256,64]");
    EXPECT_ERROR(check(folder), "makes it [300,64]");
}

TEST(Checkpoint, TensorsTheModelDoesNotKnowAreAWarning) {
    const TemporaryFolder folder;
    write_folder(folder, reference_config("llama"), [](auto name) { return name; },
                 {{"a.weight", DType::float32, {1}},
                  {"b.weight", DType::float32, {1}},
                  {"c.weight", DType::float32, {1}},
                  {"d.weight", DType::float32, {1}},
                  {"model.layers.0.self_attn.rotary_emb.inv_freq", DType::float32, {8}}});
    const auto warnings = check(folder);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(warnings[0].ends_with("left out: \"a.weight\", \"b.weight\", \"c.weight\" and 1 more")) << warnings[0];
}

TEST(Checkpoint, SavedFoldersKeepConfigAndTokenizer) {
    const TemporaryFolder from, to;
    nlohmann::json config = reference_config("gpt2");
    config.erase("dtype");
    config["torch_dtype"] = "float32";
    config["mine"] = {1, "two"};
    from.write("config.json", config.dump());
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.txt", "merges.txt", "spiece.model",
                             "generation_config.json", "chat_template.jinja", "model.safetensors", "notes.txt"})
        from.write(name, name);
    copy_model_files(open_model(from.path().string()), to / "model", DType::bfloat16);
    config["torch_dtype"] = "bfloat16";
    EXPECT_EQ(nlohmann::json::parse(read_text(to / "model/config.json")), config);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.txt", "merges.txt", "spiece.model",
                             "generation_config.json", "chat_template.jinja"})
        EXPECT_EQ(read_text(to.path() / "model" / name), name);
    EXPECT_FALSE(fs::exists(to / "model/model.safetensors"));
    EXPECT_FALSE(fs::exists(to / "model/notes.txt"));

    copy_model_files(open_model("llama-tiny"), to / "tiny", DType::float32);
    EXPECT_EQ(text_of(open_model((to / "tiny").string()).build({1, 8})),
              text_of(open_model("llama-tiny").build({1, 8})));
}

} // namespace
} // namespace tutti::test
