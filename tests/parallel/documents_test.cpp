// Documents packed into one sequence against the same documents one by one, and on several ranks.
#include "run_ranks.h"
#include "support/safetensors_writer.h"

#include <gtest/gtest.h>

#include <map>

namespace tutti::test {

using namespace run;
using namespace sharding;
namespace {

constexpr std::int64_t steps = 2, batch = 4, sequence = 16, documents_per_sequence = 3;

// Three documents in each sequence; the last of each is followed by tokens that do not count.
struct Packed {
    std::vector<std::int64_t> tokens, targets;
    std::vector<std::int32_t> begins;
};

std::vector<std::int64_t> lengths_of(std::int64_t sample) {
    const std::int64_t first = 1 + sample * 5 % 7, second = 1 + sample * 3 % 5;
    return {first, second, sequence - first - second - sample % 3};
}

// Each document in a row of its own where `apart`, else those of a sample in one row.
Packed make(bool apart) {
    Packed made;
    std::uint64_t state = 1;
    auto token = [&] {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::int64_t>(state >> 33) % 120;
    };
    auto fill_row = [&](std::int64_t used, std::int32_t begin) {
        for (std::int64_t i = used; i < sequence; ++i) {
            made.tokens.push_back(0);
            made.targets.push_back(-100);
            made.begins.push_back(begin);
        }
    };
    for (std::int64_t sample = 0; sample < steps * batch; ++sample) {
        std::int64_t begin = 0;
        for (const std::int64_t length : lengths_of(sample)) {
            for (std::int64_t i = 0; i < length; ++i) {
                made.tokens.push_back(token());
                made.targets.push_back(i + 1 == length ? -100 : token()); // nothing across a border
                made.begins.push_back(static_cast<std::int32_t>(begin));
            }
            if (apart) fill_row(length, 0);
            if (!apart) begin += length;
        }
        if (!apart) fill_row(begin, made.begins.back());
    }
    return made;
}

class PackedDocuments : public ::testing::Test {
  protected:
    // A run on such a file.
    RunConfig config_of(const std::string& model, bool apart) {
        const fs::path path = folder_ / (apart ? "apart.safetensors" : "packed.safetensors");
        const Packed made = make(apart);
        const Shape shape = {steps, apart ? batch * documents_per_sequence : batch, sequence};
        std::vector<StoredTensor> tensors = {{"input_ids", {DType::int64, shape}}, {"targets", {DType::int64, shape}}};
        if (!apart) tensors.push_back({"documents", {DType::int32, shape}});
        SafetensorsWriter writer(path, tensors);
        writer.append(std::as_bytes(std::span(made.tokens)));
        writer.append(std::as_bytes(std::span(made.targets)));
        if (!apart) writer.append(std::as_bytes(std::span(made.begins)));
        writer.finish();
        RunConfig config = small_run(model);
        config.data = path.string();
        config.steps = steps;
        config.workload.sequence = config.workload.global_batch = 0;
        return config;
    }
    fs::path dump(const std::string& name) const { return folder_ / (name + "-dump.safetensors"); }
    Recorder train_one(RunConfig config, const std::string& name) {
        config.dump_step0 = dump(name).string();
        return std::move(train_on_ranks(config).listeners[0]);
    }

    TemporaryFolder folder_;
};

TEST_F(PackedDocuments, GiveTheLossesAndGradientsOfDocumentsOneByOne) {
    for (const char* model : {"gpt2", "llama", "opt"}) {
        SCOPED_TRACE(model);
        const Recorder apart = train_one(config_of(model, true), "apart"),
                       packed = train_one(config_of(model, false), "packed");
        expect_same_training(apart, packed);
        expect_same_gradients(dump("apart"), dump("packed"), "grad/");
    }
}

TEST_F(PackedDocuments, GiveTheSameOnEveryLayout) {
    const std::vector<Mesh> meshes = {{.data = 2}, {.tensor = 2}, {.pipe = 4}, {.pipe = 2, .data = 2, .tensor = 2}};
    for (const char* model : {"gpt2", "llama"}) {
        const Recorder one = train_one(config_of(model, false), "one");
        for (const Mesh& mesh : meshes)
            for (const bool halves : {false, true}) {
                if (halves && mesh.tensor == 1) continue;
                SCOPED_TRACE(fmt::format("{} on {}{}", model, to_string(mesh), halves ? ", in halves" : ""));
                RunConfig config = config_of(model, false);
                config.mesh = mesh;
                config.sub_pipeline = halves;
                if (halves) config.workload.micro_batch = 2;
                config.dump_step0 = dump("found").string();
                for (const Recorder& rank : train_on_ranks(config).listeners) expect_same_training(one, rank);
                expect_same_gradients(dump("one"), dump("found"));
            }
    }
}

TEST_F(PackedDocuments, AreForCausalModelsOnly) {
    EXPECT_ERROR(train_one(config_of("bert", false), "bert"), "BertForMaskedLM is a masked language model");
}

} // namespace
} // namespace tutti::test
