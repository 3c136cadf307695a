// Every family against Transformers: logits, loss and every parameter's gradient of the cases in tests/data/references.
#include "backend/reference/reference.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "graph/autodiff.h"
#include "models/checkpoint.h"
#include "models/model.h"
#include "operators/interpreter.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace tutti {

using namespace backend::reference;
using namespace formats;
using namespace models;
using namespace testing;
namespace {

using testing::Interpreter;

const fs::path references = test::test_data() / "references";

std::vector<std::string> cases() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(references))
        if (fs::exists(entry.path() / "reference.json")) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

std::vector<double> read_tensor(const SafetensorsFile& file, const std::string& name) {
    const TensorEntry* entry = file.find(name);
    if (!entry) fail("no tensor {}", name);
    std::vector<std::byte> bytes(entry->bytes());
    file.read(*entry, bytes);
    return testing::decode(bytes, entry->type.dtype);
}

// Step 0 of [steps, batch, sequence].
std::vector<double> first_batch(const SafetensorsFile& file, const std::string& name) {
    std::vector<double> all = read_tensor(file, name);
    all.resize(all.size() / static_cast<std::size_t>(file.find(name)->type.shape[0]));
    return all;
}

double norm(const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value * value;
    return std::sqrt(sum);
}

class References : public ::testing::TestWithParam<std::string> {
  protected:
    References() : folder(references / GetParam()), source(open_model(folder.string())), weights(folder) {}

    void build(DType dtype) {
        const SafetensorsFile batches(folder / "batches.safetensors");
        const Shape& shape = batches.find("input_ids")->type.shape;
        model.emplace(source.build({shape[1], shape[2], dtype, batches.find("documents") != nullptr}));
    }
    void set_inputs(Interpreter& run) {
        const SafetensorsFile batches(folder / "batches.safetensors");
        run.set(model->input_ids, first_batch(batches, "input_ids"));
        run.set(model->targets, first_batch(batches, "targets"));
        if (model->documents != ValueId::none) run.set(model->documents, first_batch(batches, "documents"));
        for (std::size_t i = 0; i < model->graph.stored().size(); ++i) {
            const std::string name = checkpoint_name(source, weights, model->graph.stored()[i].name);
            std::vector<std::byte> bytes(weights.entry(name).bytes());
            weights.read(name, bytes);
            run.set_stored(i, testing::decode(bytes, weights.entry(name).type.dtype));
        }
    }
    double counted_targets() const {
        const auto targets = first_batch(SafetensorsFile(folder / "batches.safetensors"), "targets");
        return static_cast<double>(std::ranges::count_if(targets, [](double target) { return target != -100; }));
    }
    double expected_loss() const { return read_json(folder / "reference.json")["loss"][0].get<double>(); }

    void compare_forward(Interpreter& run) {
        const auto expected = read_tensor(SafetensorsFile(folder / "logits0.safetensors"), "logits");
        const auto logits = run.get(model->logits);
        ASSERT_EQ(logits.size(), expected.size());
        double largest = 0, apart = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            largest = std::max(largest, std::abs(expected[i]));
            apart = std::max(apart, std::abs(expected[i] - logits[i]));
        }
        EXPECT_LE(apart, 1e-5 * largest);
        EXPECT_NEAR(run.get(model->loss)[0] / counted_targets(), expected_loss(), 2e-6 * expected_loss());
    }

    // Gradients of stored tensors, as they are stored.
    std::map<std::string, std::vector<double>> gradients(Interpreter& run) {
        std::map<std::string, std::vector<double>> all;
        const Graph& graph = model->graph;
        for (const StoredTensor& tensor : graph.stored())
            all[tensor.name].resize(static_cast<std::size_t>(tensor.type.elements()));
        for (const Parameter& parameter : graph.parameters()) {
            const Value& value = graph.value(parameter.value);
            const auto gradient = run.gradient_of(parameter.value);
            const testing::HostTensor view{value.type, value.layout, {}};
            auto& sum = all[graph.stored()[static_cast<std::size_t>(parameter.stored)].name];
            for (std::size_t i = 0; i < gradient.size(); ++i)
                sum[view.place(static_cast<std::int64_t>(i))] += gradient[i];
        }
        return all;
    }

    void compare_gradients(const std::map<std::string, std::vector<double>>& found) {
        const SafetensorsFile expected(folder / "grads0.safetensors");
        EXPECT_EQ(found.size(), expected.entries().size());
        // Where float32 itself is further from float64 than the bound, PyTorch's gradient is that far off.
        const nlohmann::json noise =
            read_json(folder / "reference.json").value("float32_noise", nlohmann::json::object());
        double all = 0;
        for (const TensorEntry& entry : expected.entries())
            all = std::hypot(all, norm(read_tensor(expected, entry.name)));
        for (const TensorEntry& entry : expected.entries()) {
            // Transformers 5 saves GPT-NeoX's head under its old name.
            const bool renamed = source.facts().architecture == "GPTNeoXForCausalLM" && entry.name == "lm_head.weight";
            const auto at = found.find(renamed ? "embed_out.weight" : entry.name);
            ASSERT_NE(at, found.end()) << entry.name;
            auto difference = read_tensor(expected, entry.name);
            const double size = norm(difference);
            ASSERT_EQ(difference.size(), at->second.size()) << entry.name;
            for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= at->second[i];
            const double bound = std::max(1e-5 * size + 1e-8 * all, 3 * noise.value(entry.name, 0.0));
            EXPECT_LE(norm(difference), bound) << entry.name << " of " << size;
        }
    }

    fs::path folder;
    ModelSource source;
    TensorStore weights;
    std::optional<Model> model;
};

TEST_P(References, TheFolderIsUnderstoodWithoutAWarning) {
    EXPECT_TRUE(source.warnings().empty()) << source.warnings()[0];
    build(DType::float32);
    EXPECT_TRUE(check_weights(source, *model, weights).empty());
    std::set<std::string> stored;
    for (const StoredTensor& tensor : model->graph.stored()) stored.insert(tensor.name);
    const auto names = weights.names();
    EXPECT_EQ(stored, std::set<std::string>(names.begin(), names.end()));
}

TEST_P(References, LogitsLossAndGradientsAreThoseOfTransformers) {
    for (const DType dtype : {DType::float32, DType::float64}) {
        SCOPED_TRACE(name_of(dtype));
        build(dtype);
        Graph& graph = model->graph;
        const ValueId seed =
            graph.add("step_scalar", {}, {{"field", std::string("loss_seed")}, {"dtype", std::string(name_of(dtype))}});
        differentiate(graph, model->loss, seed);
        const auto device = make_reference_device();
        Interpreter run(graph, *device);
        run.scalars.inverse_tokens = 1 / counted_targets();
        set_inputs(run);
        run.run();
        compare_forward(run);
        compare_gradients(gradients(run));
    }
}

// Rounding to 8 bits at every step costs accuracy, not sense.
TEST_P(References, InBf16TheLossIsNearlyThatOfFloat32) {
    build(DType::bfloat16);
    const auto device = make_reference_device();
    Interpreter run(model->graph, *device);
    set_inputs(run);
    run.run();
    EXPECT_NEAR(run.get(model->loss)[0] / counted_targets(), expected_loss(), 2e-3 * expected_loss());
}

INSTANTIATE_TEST_SUITE_P(Transformers, References, ::testing::ValuesIn(cases()), [](const auto& test) {
    std::string name = test.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

} // namespace
} // namespace tutti
