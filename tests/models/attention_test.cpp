// What of a sequence the models' attention sees: windows of config.json, and documents packed into one sequence.
#include "backend/reference/reference.h"
#include "graph/autodiff.h"
#include "graph/rewriter.h"
#include "models/model_text.h"
#include "operators/interpreter.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace tutti::test {

using namespace backend::reference;
using namespace models;
using nlohmann::json;
namespace {

using Values = std::vector<double>;

// The window of each layer's attention; 0: it has none.
std::vector<std::int64_t> windows_of(const json& config, std::int64_t sequence) {
    const Model model = source_of(config).build({1, sequence});
    std::vector<std::int64_t> windows;
    for (const Node& node : model.graph.nodes())
        if (node.op->name == "attention") windows.push_back(node.attributes.integer("window", 0));
    return windows;
}

TEST(Windows, AreThoseOfTheLayersThatTransformersGivesThem) {
    using List = std::vector<std::int64_t>;
    json mistral = reference_config("mistral-window");
    const std::size_t layers = mistral["num_hidden_layers"];
    EXPECT_EQ(windows_of(mistral, 64), List(layers, 0)); // the window of 64 holds the sequence
    EXPECT_EQ(windows_of(mistral, 65), List(layers, 64));
    mistral["sliding_window"] = nullptr;
    EXPECT_EQ(windows_of(mistral, 65), List(layers, 0));
    mistral.erase("sliding_window"); // 4096, as in Transformers
    EXPECT_EQ(windows_of(mistral, 5000), List(layers, 4096));

    for (const char* family : {"qwen2", "qwen3"}) {
        json qwen = reference_config(family);
        qwen["num_hidden_layers"] = 4;
        qwen["layer_types"] = json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
        qwen["sliding_window"] = 8;
        qwen["use_sliding_window"] = false;
        EXPECT_EQ(windows_of(qwen, 32), List(4, 0));
        qwen["use_sliding_window"] = true;
        EXPECT_EQ(windows_of(qwen, 32), List(4, 0)); // layer_types are all full
        qwen["layer_types"][2] = "sliding_attention";
        EXPECT_EQ(windows_of(qwen, 32), (List{0, 0, 8, 0}));
        EXPECT_EQ(windows_of(qwen, 8), List(4, 0));
        qwen.erase("layer_types"); // by number of layer
        qwen["max_window_layers"] = 28;
        EXPECT_EQ(windows_of(qwen, 32), List(4, 0));
        qwen["max_window_layers"] = 3;
        EXPECT_EQ(windows_of(qwen, 32), (List{0, 0, 0, 8}));
        qwen["layer_types"] = {"chunked_attention", "full_attention", "full_attention", "full_attention"};
        EXPECT_ERROR(source_of(qwen), "only \"full_attention\" and \"sliding_attention\"");
        qwen["layer_types"][0] = "sliding_attention";
        qwen["use_sliding_window"] = false;
        EXPECT_ERROR(source_of(qwen), "\"sliding_attention\" needs use_sliding_window and sliding_window");
    }
    json none = reference_config("mistral-window");
    none["sliding_window"] = 0;
    EXPECT_ERROR(source_of(none), "\"sliding_window\" is 0, but it must be an integer from 1");
}

// A model with random weights and tokens on the naive backend, in float64, forward and backward.
class ModelRun {
  public:
    explicit ModelRun(Graph forward)
        : graph_(std::move(forward)), device_(make_reference_device()), loss_(graph_.output("loss")->value) {
        const Attributes one = {
            {"dtype", std::string("float64")}, {"shape", std::vector<std::int64_t>{}}, {"value", 1.0}};
        differentiate(graph_, loss_, graph_.add("fill", {}, one));
        run_.emplace(graph_, *device_);
        for (std::size_t i = 0; i < graph_.stored().size(); ++i) {
            std::mt19937_64 random(i);
            std::normal_distribution<double> normal;
            Values values(static_cast<std::size_t>(graph_.stored()[i].type.elements()));
            for (double& value : values) value = 0.3 * normal(random);
            run_->set_stored(i, values);
        }
    }

    ValueId input(const std::string& name) const {
        for (ValueId value : graph_.inputs())
            if (graph_.value(value).name == name) return value;
        return ValueId::none;
    }
    void set(const std::string& name, const Values& values) { run_->set(input(name), values); }
    void run(const Values& tokens, const Values& targets) {
        set("input_ids", tokens);
        set("targets", targets);
        run_->run();
    }
    double loss() { return run_->get(loss_)[0]; }
    // Of all parameters, one behind the other.
    Values gradients() {
        Values all;
        for (const Parameter& parameter : graph_.parameters()) {
            const Values one = run_->gradient_of(parameter.value);
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }

  private:
    Graph graph_;
    std::unique_ptr<backend::Device> device_;
    ValueId loss_;
    std::optional<testing::Interpreter> run_;
};

Values random_ids(std::size_t count, std::int64_t below, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Values ids;
    for (std::size_t i = 0; i < count; ++i)
        ids.push_back(static_cast<double>(random() % static_cast<std::uint64_t>(below)));
    return ids;
}

void expect_same(const Values& found, const Values& expected, double tolerance = 1e-9) {
    ASSERT_EQ(found.size(), expected.size());
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        apart = std::max(apart, std::abs(found[i] - expected[i]));
    }
    EXPECT_LE(apart, tolerance * largest);
}

TEST(Windows, OfAModelAreMasksThatHideWhatIsFartherBack) {
    const std::int64_t sequence = 12, window = 5;
    json config = reference_config("mistral-window");
    config["sliding_window"] = window;
    const Model model = source_of(config).build({2, sequence, DType::float64});

    Rewriter rewriter(model.graph);
    const ValueId mask = rewriter.graph().add_input("mask", {DType::float64, {1, 1, sequence, sequence}});
    int attentions = 0;
    for (const Node& node : model.graph.nodes()) {
        rewriter.enter(node);
        std::vector<ValueId> inputs = rewriter.renamed(node.inputs);
        Attributes attributes = node.attributes;
        if (node.op->name == "attention") {
            EXPECT_EQ(attributes.integer("window"), window);
            attributes.erase("window");
            attributes.set("causal", false);
            inputs.push_back(mask);
            ++attentions;
        }
        rewriter.copy(node, inputs, attributes);
    }
    EXPECT_EQ(attentions, config["num_hidden_layers"]);
    ModelRun found(model.graph), expected(rewriter.finish());
    Values hidden;
    for (std::int64_t i = 0; i < sequence; ++i)
        for (std::int64_t j = 0; j < sequence; ++j)
            hidden.push_back(j <= i && j > i - window ? 0 : -std::numeric_limits<double>::infinity());
    expected.set("mask", hidden);
    const Values tokens = random_ids(24, model.vocabulary, 1), targets = random_ids(24, model.vocabulary, 2);
    found.run(tokens, targets);
    expected.run(tokens, targets);
    EXPECT_NEAR(found.loss(), expected.loss(), 1e-10 * expected.loss());
    expect_same(found.gradients(), expected.gradients());
}

class Documents : public ::testing::TestWithParam<std::string> {};

// Learned positions begin anew with each document. Rotary ones go on: only distances count, within the float32 of the
// cosines, which are rounded as Transformers rounds them.
TEST_P(Documents, InOneSequenceGiveTheLossesAndGradientsOfDocumentsOneByOne) {
    json config = reference_config(GetParam());
    if (GetParam() == "mistral-window") config["sliding_window"] = 3;
    const std::vector<std::vector<std::int64_t>> lengths = {{5, 6}, {3, 1, 7}}; // of two samples
    const std::int64_t sequence = 11;
    const ModelSource source = source_of(config);
    const Model packed = source.with_documents().build({2, sequence, DType::float64});
    ASSERT_NE(packed.documents, ValueId::none);
    const Values tokens = random_ids(22, packed.vocabulary, 1), targets = random_ids(22, packed.vocabulary, 2);
    Values begins;
    double loss = 0;
    Values gradients;
    for (std::size_t sample = 0; sample < 2; ++sample) {
        std::int64_t begin = 0;
        for (const std::int64_t length : lengths[sample]) {
            const auto first = static_cast<std::ptrdiff_t>(static_cast<std::int64_t>(sample) * sequence + begin);
            auto part = [&](const Values& all) { return Values(all.begin() + first, all.begin() + first + length); };
            const Model one = source.build({1, length, DType::float64});
            ModelRun alone(one.graph);
            alone.run(part(tokens), part(targets));
            loss += alone.loss();
            const Values more = alone.gradients();
            gradients.resize(more.size(), 0);
            for (std::size_t i = 0; i < more.size(); ++i) gradients[i] += more[i];
            begins.insert(begins.end(), static_cast<std::size_t>(length), static_cast<double>(begin));
            begin += length;
        }
    }
    ModelRun together(packed.graph);
    together.set("documents", begins);
    together.run(tokens, targets);
    EXPECT_NEAR(together.loss(), loss, 1e-8 * loss);
    expect_same(together.gradients(), gradients, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, Documents,
                         ::testing::Values("gpt2", "llama", "mistral-window", "qwen2-yarn", "qwen3", "gemma", "phi",
                                           "gpt_neox", "opt"),
                         [](const auto& family) {
                             std::string name = family.param;
                             std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
                             return name;
                         });

TEST(DocumentsOfModels, AreForModelsThatPredictTheNextToken) {
    EXPECT_ERROR(source_of(reference_config("bert")).with_documents(),
                 "BertForMaskedLM is a masked language model: sequences of several documents are for models that");
}

} // namespace
} // namespace tutti::test
