#include "run_ranks.h"

#include "base/error.h"
#include "base/file.h"
#include "sharding/mesh.h"
#include "support/paths.h"
#include "support/test_device.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <exception>
#include <thread>

namespace tutti::test {

using namespace comm::threads;
using namespace formats;
using namespace offload;
using namespace run;
using namespace sharding;
using namespace train;
namespace {

const fs::path references = test_data() / "references";

std::vector<float> read_floats(const SafetensorsFile& file, const TensorEntry& entry) {
    std::vector<float> values(entry.bytes() / sizeof(float));
    file.read(entry, std::as_writable_bytes(std::span(values)));
    return values;
}

double norm_of(const std::vector<float>& values) {
    double sum = 0;
    for (float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
}

} // namespace

RanksResult train_on_ranks(const RunConfig& config, const SpeedTable& speeds,
                           const std::function<void(RunConfig&, std::size_t rank)>& own) {
    const int ranks = config.mesh.value_or(Mesh{}).ranks();
    const auto worlds = make_thread_worlds(ranks, Seconds{60});
    RanksResult result{std::vector<Recorder>(static_cast<std::size_t>(ranks)),
                       std::vector<TrainResult>(static_cast<std::size_t>(ranks))};
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    const std::atomic<bool> stop = false;
    for (std::size_t rank = 0; rank < worlds.size(); ++rank)
        threads.emplace_back([&, rank] {
            try {
                RunConfig mine = config;
                if (own) own(mine, rank);
                result.results[rank] =
                    train::train(mine, result.listeners[rank], stop, *worlds[rank], {.speeds = &speeds});
            } catch (const std::exception& error) {
                errors[rank] = std::current_exception();
                worlds[rank]->fail(error.what(), 70);
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
    return result;
}

RunConfig small_run(const std::string& reference) {
    RunConfig config;
    config.model = (references / reference).string();
    config.steps = 4;
    config.workload.sequence = 16;
    config.workload.global_batch = 8;
    config.workload.micro_batch = 1;
    config.threads = 1;
    if (reference == "gpt_neox" || reference.starts_with("opt")) { // whose vocabulary is smaller than the bytes of text
        config.data = (references / reference / "batches.safetensors").string();
        config.workload.sequence = config.workload.global_batch = 0;
    }
    config.mask_token = reference.starts_with("bert") || reference.starts_with("roberta") ? 255 : -1;
    config.device = device_to_test();
    return config;
}

fs::path with_dropout(const std::string& reference, const TemporaryFolder& folder) {
    const fs::path model = folder.path() / (reference + "-dropout");
    fs::create_directories(model);
    for (const auto& entry : fs::directory_iterator(references / reference))
        fs::copy_file(entry.path(), model / entry.path().filename());
    auto config = nlohmann::json::parse(read_text(model / "config.json"));
    for (const char* key : {"attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout", "hidden_dropout_prob",
                            "attention_probs_dropout_prob"})
        if (config.contains(key)) config[key] = 0.1;
    write_text_atomically(model / "config.json", config.dump());
    return model;
}

void expect_same_training(const Recorder& expected, const Recorder& found) {
    ASSERT_EQ(found.steps.size(), expected.steps.size());
    for (std::size_t i = 0; i < found.steps.size(); ++i) {
        const StepReport &a = expected.steps[i], &b = found.steps[i];
        EXPECT_NEAR(b.loss, a.loss, 3e-6 * a.loss) << "step " << i;
        EXPECT_NEAR(b.gradient_norm, a.gradient_norm, 2e-5 * a.gradient_norm) << "step " << i;
    }
}

void expect_same_gradients(const fs::path& expected, const fs::path& found, std::string_view only) {
    const SafetensorsFile a(expected), b(found);
    double all = 0;
    for (const TensorEntry& entry : a.entries())
        if (entry.name.starts_with("grad/")) all += std::pow(norm_of(read_floats(a, entry)), 2);
    for (const TensorEntry& entry : a.entries()) {
        if (!entry.name.starts_with(only)) continue;
        const TensorEntry* other = b.find(entry.name);
        ASSERT_NE(other, nullptr) << entry.name;
        const std::vector<float> x = read_floats(a, entry), y = read_floats(b, *other);
        ASSERT_EQ(x.size(), y.size()) << entry.name;
        double distance = 0;
        for (std::size_t i = 0; i < x.size(); ++i)
            distance += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
        const double bound = 1e-5 * norm_of(x) + (entry.name == "logits" ? 0 : 1e-8 * std::sqrt(all));
        EXPECT_LE(std::sqrt(distance), bound) << entry.name;
    }
}

} // namespace tutti::test
