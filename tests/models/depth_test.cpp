#include "models/builtin.h"
#include "models/depth.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace models;
namespace {

ModelSource source_of(const char* text) { return ModelSource(nlohmann::json::parse(text), "a test"); }

TEST(Depth, LayersAreFoundByAnyName) {
    EXPECT_EQ(layers_of(open_model("gpt2")), 12);
    EXPECT_EQ(layers_of(open_model("llama3-70b")), 80);
}

TEST(Depth, MoreLayersAreAsTheFirst) {
    const ModelSource deeper = with_layers(open_model("gpt2"), 24);
    EXPECT_EQ(layers_of(deeper), 24);
    const auto elements = [](const ModelSource& source) {
        std::int64_t count = 0;
        const Model model = source.build({1, 8, DType::float32});
        for (const StoredTensor& tensor : model.graph.stored()) count += tensor.type.elements();
        return count;
    };
    const std::int64_t twelve = elements(with_layers(open_model("gpt2"), 12)),
                       one = elements(with_layers(open_model("gpt2"), 1));
    EXPECT_EQ(elements(deeper) - twelve, 12 * (twelve - one) / 11);
}

TEST(Depth, ListsByLayerAreCutOrGoOn) {
    const ModelSource source = source_of(R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 8,
        "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3, "layer_types": ["a", "b", "c"],
        "of_others": [1, 2]})");
    EXPECT_EQ(with_layers(source, 2).config()["layer_types"].dump(), R"(["a","b"])");
    EXPECT_EQ(with_layers(source, 5).config()["layer_types"].dump(), R"(["a","b","c","a","b"])");
    EXPECT_EQ(with_layers(source, 5).config()["of_others"].dump(), "[1,2]");
}

} // namespace
} // namespace tutti
