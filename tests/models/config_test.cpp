// What config.json may say: the spellings of Transformers 4 and 5, values that are not supported, and plain mistakes.
#include "models/model_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace models;
namespace {

using nlohmann::json;

json with(json config, const std::string& key, json value) {
    config[key] = std::move(value);
    return config;
}

std::string built(const json& config, const ModelShape& shape = {2, 16, DType::float32}) {
    return text_of(source_of(config).build(shape));
}

// As Transformers 4 wrote it.
json older(json config) {
    config["torch_dtype"] = config["dtype"];
    config.erase("dtype");
    if (!config.contains("rope_parameters")) return config;
    json rope = config["rope_parameters"];
    config.erase("rope_parameters");
    const bool neox = config["model_type"] == "gpt_neox";
    config[neox ? "rotary_emb_base" : "rope_theta"] = rope["rope_theta"];
    if (rope.contains("partial_rotary_factor"))
        config[neox ? "rotary_pct" : "partial_rotary_factor"] = rope["partial_rotary_factor"];
    rope["type"] = rope["rope_type"];
    for (const char* moved : {"rope_theta", "partial_rotary_factor", "rope_type"}) rope.erase(moved);
    config["rope_scaling"] = rope["type"] == "default" ? json() : rope;
    return config;
}

TEST(Config, SpellingsOfTransformers4GiveTheSameGraph) {
    for (const char* name : {"llama", "llama3-rope", "llama-linear-rope", "mistral", "qwen2-yarn", "qwen3", "gemma",
                             "olmo2", "phi", "gpt_neox", "gpt_neox-sequential", "gpt2", "bert", "opt"}) {
        SCOPED_TRACE(name);
        const json newer = reference_config(name);
        EXPECT_NE(newer, older(newer));
        EXPECT_EQ(built(newer), built(older(newer)));
        EXPECT_TRUE(source_of(older(newer)).warnings().empty()) << source_of(older(newer)).warnings()[0];
    }
}

TEST(Config, AttributeNamesOfGpt2AreItsKeys) {
    json config = reference_config("gpt2");
    const std::string expected = built(config);
    config["hidden_size"] = config["n_embd"];
    config["num_hidden_layers"] = config["n_layer"];
    config.erase("n_embd"), config.erase("n_layer");
    EXPECT_EQ(built(config), expected);
    EXPECT_ERROR(source_of(with(config, "n_embd", 32)), "two names of one value");
}

TEST(Config, MissingKeysTakeTheDefaultsOfTransformers) {
    const auto source = source_of({{"model_type", "gpt2"}});
    EXPECT_EQ(source.facts().vocabulary, 50257);
    EXPECT_EQ(source.facts().max_sequence, 1024);
    EXPECT_EQ(source.build({1, 8}).graph.stored().size(), 148u);
    EXPECT_EQ(source_of({{"architectures", {"GemmaForCausalLM"}}}).facts().vocabulary, 256000);
    // Key heads: absent is the family's default, null as many as heads.
    EXPECT_EQ(source_of(with(reference_config("mistral"), "num_key_value_heads", nullptr))
                  .build({1, 8})
                  .graph.stored()[2]
                  .type.shape,
              (Shape{48, 48}));
}

TEST(Config, GemmaPrefersTheActivationItWasTrainedWith) {
    const json config = with(reference_config("gemma"), "hidden_act", "gelu");
    EXPECT_EQ(built(with(config, "hidden_activation", "gelu_pytorch_tanh")), built(reference_config("gemma")));
    EXPECT_NE(built(with(config, "hidden_activation", nullptr)), built(reference_config("gemma")));
    EXPECT_ERROR(source_of(with(config, "hidden_activation", "mish")), "\"hidden_activation\" is \"mish\"");
}

TEST(Config, AnUnknownKeyIsAWarning) {
    const auto source = source_of(with(reference_config("llama"), "logit_scale", 2));
    ASSERT_EQ(source.warnings().size(), 1u);
    EXPECT_EQ(source.warnings()[0], "config.json: the key \"logit_scale\" is not known and has no effect");
    json rope = reference_config("llama");
    rope["rope_parameters"]["long_factor"] = {1.0};
    EXPECT_EQ(source_of(rope).warnings().size(), 1u);
    EXPECT_TRUE(source_of(with(reference_config("llama"), "temperature", 0.5)).warnings().empty());
}

TEST(Config, ArchitecturesThatAreNotKnownAreNamedWithThoseThatAre) {
    EXPECT_ERROR(source_of(json::object()), "neither \"architectures\" nor \"model_type\"");
    EXPECT_ERROR(source_of({{"architectures", {"T5Model"}}}),
                 "\"T5Model\", which is not supported; supported are GPT2");
    EXPECT_ERROR(source_of({{"model_type", "t5"}}), "\"model_type\" \"t5\" is not supported");
    EXPECT_ERROR(source_of({{"model_type", "llama"}, {"architectures", {"GPT2LMHeadModel"}}}), "is of type \"gpt2\"");
    EXPECT_ERROR(source_of({{"architectures", "GPT2LMHeadModel"}}), "must be a list of names");
    EXPECT_ERROR(source_of(json::array()), "is not a JSON object");
    EXPECT_ERROR(open_model("no-such-model"), "built in are: gpt2-tiny, ");
    EXPECT_ERROR(open_model(test::test_data()), "holds no config.json");
}

struct Mistake {
    const char* model;
    const char* key;
    json value;
    const char* sentence;
};

TEST(Config, EachMistakeIsNamedWithItsKeyAndValue) {
    const std::vector<Mistake> mistakes = {
        {"llama", "num_attention_heads", 5, "\"num_key_value_heads\" is 2, but it must divide"},
        {"llama", "num_attention_heads", 0, "\"num_attention_heads\" is 0, but it must be an integer from 1"},
        {"llama", "hidden_size", -64, "\"hidden_size\" is -64"},
        {"llama", "hidden_size", 64.5, "\"hidden_size\" is 64.5"},
        {"llama", "hidden_size", "64", "\"hidden_size\" is \"64\""},
        {"llama", "hidden_size", nullptr, "\"hidden_size\" is null"},
        {"llama", "vocab_size", 0, "\"vocab_size\" is 0"},
        {"llama", "num_hidden_layers", 100000000, "from 1 to 10000"},
        {"llama", "head_dim", 15, "15 of each head's 15 elements would be rotated"},
        {"llama", "hidden_act", "mish", "\"hidden_act\" is \"mish\", but it must be one of gelu, "},
        {"llama", "attention_dropout", 1.0, "\"attention_dropout\" is 1.0"},
        {"llama", "tie_word_embeddings", 1, "it must be true or false"},
        {"llama", "pad_token_id", 256, "\"pad_token_id\" is 256, but \"vocab_size\" is 256"},
        {"llama", "partial_rotary_factor", 0.5, "rotates whole heads"},
        {"llama", "quantization_config", {{"bits", 4}}, "only null is supported"},
        {"llama", "attn_logit_softcapping", 50.0, "\"attn_logit_softcapping\" is 50.0"},
        {"llama", "is_encoder_decoder", true, "only false is supported"},
        {"gemma", "use_bidirectional_attention", true, "only false is supported"},
        {"gpt2", "n_head", 5, "\"n_head\" is 5, but it must divide \"n_embd\", which is 64"},
        {"gpt2", "reorder_and_upcast_attn", true, "\"reorder_and_upcast_attn\" is true"},
        {"gpt2", "add_cross_attention", true, "\"add_cross_attention\" is true"},
        {"bert", "position_embedding_type", "relative_key", "only \"absolute\" is supported"},
        {"bert", "is_decoder", true, "\"is_decoder\" is true"},
        {"bert", "num_attention_heads", 7, "it must divide \"hidden_size\""},
        {"roberta", "pad_token_id", nullptr, "\"pad_token_id\" is null"},
        {"roberta", "max_position_embeddings", 2, "\"max_position_embeddings\" is 2"},
        {"opt", "layerdrop", 0.1, "only 0.0 is supported"},
        {"gpt_neox", "rotary_pct", 2, "\"rotary_pct\" is 2"},
        {"qwen2", "layer_types", {"full_attention"}, "a list of 4 names"},
        {"qwen2", "max_window_layers", -1, "\"max_window_layers\" is -1"},
    };
    for (const Mistake& mistake : mistakes) {
        SCOPED_TRACE(mistake.key);
        EXPECT_ERROR(source_of(with(reference_config(mistake.model), mistake.key, mistake.value)), mistake.sentence);
    }
}

TEST(Config, RopesThatAreNotSupportedAreNamed) {
    auto llama = [](json rope) { return with(reference_config("llama"), "rope_parameters", std::move(rope)); };
    EXPECT_ERROR(source_of(llama({{"rope_type", "longrope"}})), "\"rope_parameters.rope_type\" is \"longrope\", but");
    EXPECT_ERROR(source_of(with(reference_config("llama"), "rope_scaling", {{"type", "su"}})),
                 "\"rope_scaling.type\" is \"su\"");
    EXPECT_ERROR(source_of(llama({{"rope_type", "linear"}})), "holds no \"factor\"");
    EXPECT_ERROR(source_of(llama({{"rope_type", "linear"}, {"factor", "2"}})), "\"rope_parameters.factor\" is \"2\"");
    EXPECT_ERROR(source_of(llama({{"full_attention", {{"rope_type", "default"}}}})), "per kind of layer");
    EXPECT_ERROR(source_of(llama({{"rope_theta", 10.0}, {"partial_rotary_factor", 0.5}})), "rotates whole heads");
    EXPECT_ERROR(source_of(llama("default")), "it must be an object or null");
    // Dynamic scaling is the default up to the length the model was made for.
    const json dynamic = llama({{"rope_type", "dynamic"}, {"rope_theta", 10000.0}, {"factor", 2.0}});
    EXPECT_EQ(built(dynamic, {1, 64}), built(reference_config("llama"), {1, 64}));
    EXPECT_ERROR(source_of(dynamic).build({1, 65}), "\"max_position_embeddings\" is 64");
}

TEST(Config, YarnTakesItsAttentionFactorFromWhatIsThere) {
    json config = reference_config("qwen2-yarn");
    auto scale = [&] {
        const Model model = source_of(config).build({1, 8});
        for (const Node& node : model.graph.nodes())
            if (node.op->name == "rotary_table") return node.attributes.real("scale");
        return 0.0;
    };
    EXPECT_NEAR(scale(), 0.1 * std::log(4.0) + 1, 1e-12);
    config["rope_parameters"]["mscale"] = 2.0;
    config["rope_parameters"]["mscale_all_dim"] = 1.0;
    EXPECT_NEAR(scale(), (0.2 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1), 1e-12);
    config["rope_parameters"]["attention_factor"] = 1.5;
    EXPECT_EQ(scale(), 1.5);
}

TEST(Config, SequencesBeyondTheTableOfPositionsAreErrors) {
    EXPECT_ERROR(source_of(reference_config("gpt2")).build({1, 65}), "longer than the 64 positions");
    EXPECT_NO_THROW(source_of(reference_config("roberta")).build({1, 62}));
    EXPECT_ERROR(source_of(reference_config("roberta")).build({1, 63}), "longer than the 62 positions");
    EXPECT_NO_THROW(source_of(reference_config("llama")).build({1, 65}));
    EXPECT_ERROR(source_of(reference_config("llama")).build({0, 8}), "is empty");
    EXPECT_ERROR(source_of(reference_config("llama")).build({1, 8, DType::float16}), "not in fp16");
}

// Whatever stands under a key, the config is either understood or refused with an Error: never a Bug, never a crash.
TEST(Config, NoValueOfAnyKeyBreaksTheReader) {
    const std::vector<json> values = {nullptr,
                                      true,
                                      0,
                                      -1,
                                      1,
                                      7,
                                      1000000000,
                                      18446744073709551615u,
                                      0.5,
                                      1e300,
                                      "text",
                                      "gelu_new",
                                      json::array(),
                                      json::array({1}),
                                      json::object(),
                                      {{"rope_type", "yarn"}},
                                      {{"rope_type", "llama3"}, {"factor", -1}}};
    for (const char* name : {"llama3-rope", "mistral-window", "qwen2-yarn", "qwen3", "gemma", "olmo2", "phi-qk",
                             "gpt_neox", "gpt2-variant", "opt-post", "bert", "roberta"}) {
        json config = reference_config(name);
        config["rope_scaling"] = nullptr;
        config["original_max_position_embeddings"] = nullptr;
        for (const auto& [key, original] : config.items())
            for (const json& value : values) {
                SCOPED_TRACE(std::string(name) + " " + key + " " + value.dump());
                try {
                    source_of(with(config, key, value)).build({2, 8});
                } catch (const Error&) {
                } catch (const std::exception& other) {
                    ADD_FAILURE() << other.what();
                }
            }
    }
}

} // namespace
} // namespace tutti::test
