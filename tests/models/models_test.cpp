// What a built model promises whatever its family: dropouts with places of their own, blocks that cover the graph,
// built-in shapes, bf16.
#include "backend/reference/reference.h"
#include "graph/autodiff.h"
#include "models/builtin.h"
#include "models/model_text.h"
#include "operators/interpreter.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tutti::test {

using namespace backend::reference;
using namespace models;
namespace {

std::int64_t parameters_of(const Model& model) {
    std::int64_t count = 0;
    for (const StoredTensor& tensor : model.graph.stored()) count += tensor.type.elements();
    return count;
}

TEST(Models, BuiltInShapesHaveTheirWellKnownSizes) {
    const std::map<std::string, std::int64_t> sizes = {
        {"gpt2", 124439808},          {"gpt2-medium", 354823168},  {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},      {"llama-1b", 1100048384},    {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-1.5b", 1543714304}, {"bert-base", 109514298},    {"bert-large", 335174458},
        {"llama3-8b", 8030261248},    {"llama3-70b", 70553706496}, {"llama3-405b", 405853388800},
        {"gpt3-175b", 174604259328}};
    std::size_t compared = 0;
    for (const BuiltinModel& builtin : builtin_models()) {
        SCOPED_TRACE(builtin.name);
        const ModelSource source = open_model(builtin.name);
        EXPECT_TRUE(source.warnings().empty());
        const Model model = source.build({2, 128, DType::bfloat16});
        const auto expected = sizes.find(builtin.name);
        if (expected != sizes.end()) {
            EXPECT_EQ(parameters_of(model), expected->second);
            ++compared;
        }
        for (const Node& node : model.graph.nodes()) EXPECT_NE(node.op->name, "dropout");
    }
    EXPECT_EQ(compared, sizes.size());
    EXPECT_EQ(open_model("gpt2-tiny").facts().vocabulary, 256);
    EXPECT_EQ(open_model("gpt2-tiny").facts().context, 256);
    EXPECT_FALSE(open_model("bert-tiny").facts().causal);
}

// Dropout draws by its node's source: two nodes with one source would drop the same elements.
TEST(Models, EveryDropoutHasAPlaceOfItsOwn) {
    const std::map<std::string, std::size_t> expected = {// nodes of dropout, attention's own not counted
                                                         {"gpt2", 9},  {"llama", 0}, {"qwen2", 0},
                                                         {"gemma", 0}, {"phi", 5},   {"gpt_neox", 5},
                                                         {"opt", 4},   {"bert", 9},  {"roberta", 5}};
    for (const auto& [name, count] : expected) {
        SCOPED_TRACE(name);
        nlohmann::json config = reference_config(name);
        for (const char* key : {"attn_pdrop", "resid_pdrop", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob",
                                "attention_probs_dropout_prob", "attention_dropout", "dropout"})
            if (config.contains(key)) config[key] = 0.25;
        const Model model = source_of(config).build({2, 8});
        std::set<std::string> places;
        std::size_t found = 0, attentions = 0;
        for (const Node& node : model.graph.nodes()) {
            const bool attention = node.op->name == "attention";
            if (attention) {
                EXPECT_EQ(node.attributes.real("dropout"), 0.25);
            }
            if (!attention && node.op->name != "dropout") continue;
            (attention ? attentions : found) += 1;
            EXPECT_TRUE(places.insert(node.source).second) << node.source;
        }
        EXPECT_EQ(found, count);
        EXPECT_EQ(attentions, config[config.contains("n_layer") ? "n_layer" : "num_hidden_layers"]);
    }
}

// The reference cases have no padding in their first batch, so its places are worked out by hand.
TEST(Models, RobertaCountsPositionsFromThePaddingTokenAndSkipsPadding) {
    const Model model = source_of(reference_config("roberta-untied")).build({2, 5}); // pad_token_id is 3
    const auto device = make_reference_device();
    testing::Interpreter run(model.graph, *device);
    run.set(model.input_ids, {7, 3, 8, 9, 3, 3, 3, 1, 3, 2});
    run.set(model.targets, std::vector<double>(10, -100));
    run.run();
    int found = 0;
    for (const Node& node : model.graph.nodes())
        if (node.op->name == "embedding" && node.source == "roberta.embeddings.position_embeddings") {
            EXPECT_EQ(run.get(node.inputs[1]), (std::vector<double>{4, 3, 5, 6, 3, 3, 3, 4, 3, 5}));
            EXPECT_EQ(node.attributes.integer("padding_row"), 3);
            ++found;
        }
    EXPECT_EQ(found, 1);
}

TEST(Models, InBf16ParametersAreBf16AndTheLossIsNot) {
    for (const auto& entry : fs::directory_iterator(test_data() / "references")) {
        SCOPED_TRACE(entry.path().filename().string());
        Model model = open_model(entry.path().string()).build({2, 8, DType::bfloat16});
        EXPECT_EQ(model.graph.type(model.loss), (TensorType{DType::float32, {}}));
        EXPECT_EQ(model.graph.type(model.logits).dtype, DType::bfloat16);
        for (const StoredTensor& tensor : model.graph.stored()) EXPECT_EQ(tensor.type.dtype, DType::bfloat16);
        const ValueId seed = model.graph.add("step_scalar", {},
                                             {{"field", std::string("loss_seed")}, {"dtype", std::string("float32")}});
        differentiate(model.graph, model.loss, seed);

        // A fresh model knows nothing: its loss is near the logarithm of the vocabulary.
        const auto device = make_reference_device();
        testing::Interpreter run(model.graph, *device);
        for (std::size_t i = 0; i < model.graph.stored().size(); ++i) {
            const StoredTensor& tensor = model.graph.stored()[i];
            std::vector<float> values(static_cast<std::size_t>(tensor.type.elements()));
            initialise(model.initialisation[i], 1, tensor.name, 0, values);
            run.set_stored(i, std::vector<double>(values.begin(), values.end()));
        }
        std::vector<double> ids(16);
        for (std::size_t i = 0; i < 16; ++i) ids[i] = static_cast<double>(i * 5 + 4);
        run.set(model.input_ids, ids);
        std::ranges::reverse(ids);
        run.set(model.targets, ids);
        run.run();
        const double chance = std::log(static_cast<double>(model.vocabulary));
        EXPECT_NEAR(run.get(model.loss)[0] / 16, chance, 0.1 * chance);
    }
}

} // namespace
} // namespace tutti::test
