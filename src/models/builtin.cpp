#include "models/builtin.h"

#include "base/error.h"

#include <algorithm>
#include <vector>

namespace tutti::models {
namespace {

using nlohmann::json;

json gpt2(std::int64_t vocabulary, std::int64_t positions, std::int64_t hidden, std::int64_t layers,
          std::int64_t heads) {
    const bool bytes = vocabulary == byte_vocabulary;
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"dtype", "float32"},
            {"vocab_size", vocabulary},
            {"n_positions", positions},
            {"n_embd", hidden},
            {"n_layer", layers},
            {"n_head", heads},
            {"activation_function", "gelu_new"},
            {"attn_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"resid_pdrop", 0.0},
            {"layer_norm_epsilon", 1e-5},
            {"initializer_range", 0.02},
            {"tie_word_embeddings", true},
            {"bos_token_id", bytes ? json() : json(50256)},
            {"eos_token_id", bytes ? json() : json(50256)}};
}

struct DecoderShape {
    std::int64_t vocabulary, positions, hidden, intermediate, layers, heads, key_heads;
    double theta, eps;
    bool tied;
};

json decoder(const char* architecture, const char* type, const DecoderShape& shape) {
    return {{"architectures", {architecture}},
            {"model_type", type},
            {"dtype", "float32"},
            {"vocab_size", shape.vocabulary},
            {"max_position_embeddings", shape.positions},
            {"hidden_size", shape.hidden},
            {"intermediate_size", shape.intermediate},
            {"num_hidden_layers", shape.layers},
            {"num_attention_heads", shape.heads},
            {"num_key_value_heads", shape.key_heads},
            {"hidden_act", "silu"},
            {"rms_norm_eps", shape.eps},
            {"attention_dropout", 0.0},
            {"initializer_range", 0.02},
            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", shape.theta}}},
            {"tie_word_embeddings", shape.tied},
            {"bos_token_id", nullptr},
            {"eos_token_id", nullptr}};
}

json bert(std::int64_t vocabulary, std::int64_t positions, std::int64_t hidden, std::int64_t layers, std::int64_t heads,
          std::int64_t padding, std::int64_t mask) {
    return {{"architectures", {"BertForMaskedLM"}},
            {"model_type", "bert"},
            {"dtype", "float32"},
            {"vocab_size", vocabulary},
            {"max_position_embeddings", positions},
            {"hidden_size", hidden},
            {"intermediate_size", 4 * hidden},
            {"num_hidden_layers", layers},
            {"num_attention_heads", heads},
            {"hidden_act", "gelu"},
            {"hidden_dropout_prob", 0.0},
            {"attention_probs_dropout_prob", 0.0},
            {"type_vocab_size", 2},
            {"layer_norm_eps", 1e-12},
            {"initializer_range", 0.02},
            {"pad_token_id", padding},
            {"mask_token_id", mask},
            {"tie_word_embeddings", true}};
}

std::vector<BuiltinModel> make() {
    const char *llama = "LlamaForCausalLM", *qwen2 = "Qwen2ForCausalLM";
    return {
        {"gpt2-tiny", "GPT-2 over bytes, 0.9 M parameters", gpt2(byte_vocabulary, 256, 128, 4, 4)},
        {"llama-tiny", "Llama over bytes, 0.8 M parameters",
         decoder(llama, "llama", {byte_vocabulary, 256, 128, 344, 4, 4, 2, 10000, 1e-6, false})},
        {"bert-tiny", "BERT over bytes, 0.9 M parameters; token 256 is the mask",
         bert(byte_vocabulary + 2, 256, 128, 4, 4, byte_padding_token, byte_mask_token)},
        {"gpt2", "GPT-2 small, 124 M parameters", gpt2(50257, 1024, 768, 12, 12)},
        {"gpt2-medium", "GPT-2 medium, 355 M parameters", gpt2(50257, 1024, 1024, 24, 16)},
        {"gpt2-large", "GPT-2 large, 774 M parameters", gpt2(50257, 1024, 1280, 36, 20)},
        {"gpt2-xl", "GPT-2 XL, 1.6 B parameters", gpt2(50257, 1024, 1600, 48, 25)},
        {"gpt-2.5b", "GPT-2 of 54 layers of 1920, 2.5 B parameters", gpt2(50257, 1024, 1920, 54, 20)},
        {"gpt-8.3b", "GPT-2 of 72 layers of 3072, 8.3 B parameters", gpt2(50257, 1024, 3072, 72, 24)},
        {"gpt-20b", "GPT-2 of 44 layers of 6144, 20 B parameters", gpt2(50257, 2048, 6144, 44, 64)},
        {"gpt3-175b", "GPT-3, 175 B parameters", gpt2(50257, 2048, 12288, 96, 96)},
        {"llama-1b", "Llama of TinyLlama's shape, 1.1 B parameters",
         decoder(llama, "llama", {32000, 2048, 2048, 5632, 22, 32, 4, 10000, 1e-5, false})},
        {"llama2-7b", "Llama 2, 6.7 B parameters",
         decoder(llama, "llama", {32000, 4096, 4096, 11008, 32, 32, 32, 10000, 1e-5, false})},
        {"patrickstar-10b", "GPT-2 of the shape of PatrickStar's 10 B model", gpt2(50257, 1024, 4096, 50, 32)},
        {"patrickstar-20b", "GPT-2 of the shape of PatrickStar's 20 B model", gpt2(50257, 1024, 8192, 25, 64)},
        {"llama3-8b", "Llama 3, 8 B parameters",
         decoder(llama, "llama", {128256, 8192, 4096, 14336, 32, 32, 8, 500000, 1e-5, false})},
        {"llama3-70b", "Llama 3, 71 B parameters",
         decoder(llama, "llama", {128256, 8192, 8192, 28672, 80, 64, 8, 500000, 1e-5, false})},
        {"llama3-405b", "Llama 3, 406 B parameters",
         decoder(llama, "llama", {128256, 8192, 16384, 53248, 126, 128, 8, 500000, 1e-5, false})},
        {"qwen2.5-0.5b", "Qwen2.5, 0.5 B parameters",
         decoder(qwen2, "qwen2", {151936, 32768, 896, 4864, 24, 14, 2, 1000000, 1e-6, true})},
        {"qwen2.5-1.5b", "Qwen2.5, 1.5 B parameters",
         decoder(qwen2, "qwen2", {151936, 32768, 1536, 8960, 28, 12, 2, 1000000, 1e-6, true})},
        {"qwen2.5-7b", "Qwen2.5, 7.6 B parameters",
         decoder(qwen2, "qwen2", {152064, 32768, 3584, 18944, 28, 28, 4, 1000000, 1e-6, false})},
        {"bert-base", "BERT base, 110 M parameters", bert(30522, 512, 768, 12, 12, 0, 103)},
        {"bert-large", "BERT large, 335 M parameters", bert(30522, 512, 1024, 24, 16, 0, 103)},
    };
}

} // namespace

std::span<const BuiltinModel> builtin_models() {
    static const std::vector<BuiltinModel> models = make();
    return models;
}

const BuiltinModel* find_builtin(std::string_view name) {
    const auto models = builtin_models();
    const auto at = std::ranges::find(models, name, &BuiltinModel::name);
    return at == models.end() ? nullptr : &*at;
}

std::string builtin_names() {
    std::string names;
    for (const BuiltinModel& model : builtin_models()) names += (names.empty() ? "" : ", ") + model.name;
    return names;
}

} // namespace tutti::models
