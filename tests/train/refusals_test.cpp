// What a run refuses, and what it does and doubts: numbers and types that make no sense, checkpoints of other runs.
#include "short_run.h"

#include "formats/json.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti {

using namespace formats;
using namespace run;
using namespace test;
namespace {

TEST(Refusals, PrecisionsThatDoNotFitTogetherAreRefused) {
    RunConfig config = short_run();
    config.precision.gradients = DType::bfloat16;
    EXPECT_ERROR(losses(config), "gradients is bf16 but dtype is float32");
    config.precision.gradients = DType::float32;
    config.precision.master = DType::bfloat16;
    EXPECT_ERROR(losses(config), "--dtype bf16");
    config.precision.master = DType::float32;
    config.precision.compute = DType::float64;
    config.precision.moments = DType::bfloat16;
    EXPECT_ERROR(losses(config), "float64");
}

TEST(Refusals, ACheckpointOfAnotherModelOrSeedIsRefused) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.stop_after = 1;
    losses(config);
    EXPECT_ERROR(losses(config), "--resume");
    config.resume = true;
    config.seed = 9;
    EXPECT_ERROR(losses(config), "seed 0");
    config.seed = 0;
    config.model = "llama-tiny";
    EXPECT_ERROR(losses(config), "another model");
}

TEST(Refusals, ResumingWithOtherSettingsIsTold) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.stop_after = 1;
    losses(config);
    config.resume = true;
    config.workload.micro_batch = 4; // changes nothing but the speed
    config.workload.global_batch = 8;
    config.lr = 0.002;
    config.lr_schedule = LearningRateSchedule::linear;
    const fs::path checkpoint = folder / "run/checkpoints/step-00000001";
    Recorder recorder;
    trained(config, recorder);
    ASSERT_EQ(recorder.warnings.size(), 1u);
    EXPECT_EQ(recorder.warnings[0], checkpoint.string() +
                                        " was made with global_batch 4 (now 8), lr 0.001 (now 0.002), "
                                        "lr_schedule \"cosine\" (now \"linear\"); its learning rate was 1.00e-03 "
                                        "at last, and goes on at 1.64e-03");
    // Checkpoints that were made before settings were recorded go on silently.
    fs::remove_all(folder / "run/checkpoints/step-00000002");
    nlohmann::json json = read_json(checkpoint / "checkpoint.json");
    for (const char* key : {"settings", "steps", "checksum"}) json.erase(key);
    write_text_atomically(checkpoint / "checkpoint.json", json.dump());
    Recorder older;
    trained(config, older);
    EXPECT_EQ(older.summary.first_step, 1);
    EXPECT_TRUE(older.warnings.empty());
}

TEST(Refusals, SettingsThatDoNothingAreTold) {
    RunConfig config = short_run();
    config.dry_run = true;
    config.warmup = 7;
    config.mask_token = 3;
    Recorder recorder;
    trained(config, recorder);
    ASSERT_EQ(recorder.warnings.size(), 2u);
    EXPECT_EQ(recorder.warnings[0], "warmup is 7 and steps is 6: the learning rate never rises to lr, which is 0.001");
    EXPECT_NE(recorder.warnings[1].find("mask_token is 3 and does nothing"), std::string::npos);
}

TEST(Refusals, NumbersThatMakeNoSenseAreNamed) {
    static const std::string references_bert = (test::test_data() / "references/bert").string();
    auto with = [](auto change) {
        RunConfig config = short_run();
        change(config);
        return test::error_of([&] { losses(config); });
    };
    EXPECT_NE(with([](RunConfig& c) { c.lr = std::nan(""); }).find("lr"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.steps = 0; }).find("steps"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.workload.micro_batch = 3; }).find("multiple of micro_batch 3"),
              std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.beta2 = 1; }).find("betas is 0.9,1"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.workload.sequence = 100000; }).find("positions"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.device = "tpu"; }).find("cpu, cuda and reference"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.model = references_bert; }).find("--mask-token"), std::string::npos);
}

} // namespace
} // namespace tutti
