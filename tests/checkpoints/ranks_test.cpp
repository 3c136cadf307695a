// Checkpoints and models on any mesh: ranks that hold slices and shares write the files that one process writes, and
// read what any other mesh has written.
#include "base/error.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/resume.h"
#include "checkpoints/weights.h"
#include "comm/agree.h"
#include "formats/json.h"
#include "formats/tensor_store.h"
#include "models/model.h"
#include "support/rank_model.h"
#include "support/temporary_folder.h"
#include "support/thread_ranks.h"

#include <gtest/gtest.h>

#include <mutex>

namespace tutti {

using namespace checkpoints;
using namespace comm;
using namespace formats;
using namespace models;
using namespace offload;
using namespace run;
using namespace test;
namespace {

using test::ModelTensor;
using test::Precisions;
using test::RankModel;
using test::RankPlan;
using test::run_ranks;
using test::Split;
using test::TemporaryFolder;

const std::vector<ModelTensor> model = {{"embedding", {13, 6}, Split::rows, true},
                                        {"norm", {6}},
                                        {"attention", {6, 21}, Split::heads},
                                        {"attention bias", {21}, Split::heads},
                                        {"large", {1050, 1003}, Split::columns}, // more than a piece
                                        {"projection", {7, 6}, Split::columns},
                                        {"up", {11, 3, 5}, Split::columns},
                                        {"one", {1}}};

CheckpointState state_at(std::int64_t step) { return {.step = step, .samples = 8 * step, .seed = 3}; }

Region kept_by_optimizer(const Precisions& types) { return types.has_master() ? Region::master : Region::weights; }

// The state of a run after a step: of weights that others update, a rank has old values.
void fill_state(const ModelData& data, const Precisions& types) {
    test::fill_values(data, kept_by_optimizer(types), Region::weights);
    for (Region region : {Region::moments1, Region::moments2}) test::fill_values(data, region, region);
}

std::vector<std::string> save_on(const RankPlan& plan, const fs::path& run, std::int64_t step,
                                 std::span<const ModelTensor> tensors = model) {
    return run_ranks(plan.mesh.ranks(), [&](Group& group) {
        const RankModel rank(tensors, plan, group.rank());
        fill_state(rank.data(), plan.precisions);
        EXPECT_EQ(save_checkpoint(group, run, state_at(step), test::stored_of(tensors), rank.data()),
                  run / fmt::format("checkpoints/step-{:08}", step));
    });
}

std::vector<std::string> load_on(const RankPlan& plan, const CheckpointInfo& info,
                                 std::span<const ModelTensor> tensors = model) {
    return run_ranks(plan.mesh.ranks(), [&](Group& group) {
        const RankModel rank(tensors, plan, group.rank());
        load_checkpoint(group, info, test::stored_of(tensors), rank.data());
        // All that is held, not only what is saved, and the rounded weights as well.
        EXPECT_EQ(test::difference(rank.data(), kept_by_optimizer(plan.precisions), Region::weights), "");
        EXPECT_EQ(test::difference(rank.data(), Region::weights, Region::weights), "");
        for (Region region : {Region::moments1, Region::moments2})
            EXPECT_EQ(test::difference(rank.data(), region, region), "");
    });
}

std::vector<std::string> well(const RankPlan& plan) {
    return std::vector<std::string>(static_cast<std::size_t>(plan.mesh.ranks()));
}

TEST(Ranks, ACheckpointIsTheSameFileWhateverMeshWroteIt) {
    const TemporaryFolder folder;
    const fs::path state = "checkpoints/step-00000004/state.safetensors",
                   metadata = "checkpoints/step-00000004/checkpoint.json";
    int number = 0;
    for (const Precisions& types : {Precisions{}, Precisions{.weights = DType::bfloat16},
                                    Precisions{.weights = DType::bfloat16,
                                    .gradients = DType::float32,
                                    .master = DType::bfloat16,
                                    .moments = DType::bfloat16}}) {
        const fs::path one = folder / fmt::format("one{}", ++number);
        EXPECT_EQ(save_on({.precisions = types}, one, 4), well({}));
        for (const RankPlan& plan :
             {RankPlan{.mesh = {.pipe = 2, .data = 1, .tensor = 2}, .precisions = types},
              RankPlan{
                  .mesh = {.pipe = 1, .data = 2, .tensor = 2}, .zero = 1, .precisions = types, .chunk_elements = 300},
              RankPlan{.mesh = {.pipe = 3, .data = 2, .tensor = 1},
              .zero = 3,
              .precisions = types,
              .chunk_elements = 128}}) {
            const fs::path many = folder / "many";
            EXPECT_EQ(save_on(plan, many, 4), well(plan));
            EXPECT_TRUE(read_text(many / state) == read_text(one / state)) << "zero " << plan.zero;
            EXPECT_EQ(read_text(many / metadata), read_text(one / metadata));
        }
    }
}

TEST(Ranks, ACheckpointIsResumedOnAnyOtherMesh) {
    const TemporaryFolder folder;
    const RankPlan four{.mesh = {.pipe = 2, .data = 1, .tensor = 2}};
    ASSERT_EQ(save_on(four, folder.path(), 4), well(four));
    const CheckpointInfo info = inspect_checkpoint(folder / "checkpoints/step-00000004");
    EXPECT_TRUE(is_intact(info));
    const Precisions narrow{.weights = DType::bfloat16}; // with master weights, as float32 weights are stored
    for (const RankPlan& plan :
         {RankPlan{}, RankPlan{.mesh = {.pipe = 1, .data = 1, .tensor = 3}},
          RankPlan{.mesh = {.pipe = 3, .data = 1, .tensor = 1}, .precisions = narrow},
          RankPlan{.mesh = {.pipe = 1, .data = 3, .tensor = 1}, .zero = 1, .precisions = narrow, .chunk_elements = 200},
          RankPlan{.mesh = {.pipe = 1, .data = 2, .tensor = 2}, .zero = 3, .precisions = narrow}})
        EXPECT_EQ(load_on(plan, info), well(plan));
    // What does not fit is refused on all ranks alike.
    const RankPlan other{.mesh = {.data = 2}, .precisions = {.moments = DType::bfloat16}};
    for (const std::string& end : load_on(other, info))
        EXPECT_NE(end.find("has no tensor moments1/embedding of type bf16[13,6]"), std::string::npos) << end;
    const std::vector<ModelTensor> fewer(model.begin(), model.end() - 1);
    for (const std::string& end : load_on(four, info, fewer))
        EXPECT_NE(end.find("is a checkpoint of another model"), std::string::npos) << end;
}

std::vector<std::string> entries_of(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

TEST(Ranks, AFullDiskOfOneRankLeavesThePreviousCheckpointWholeOnAll) {
    const TemporaryFolder folder;
    const std::vector<ModelTensor> small(model.begin(), model.begin() + 4);
    const RankPlan plan{.mesh = {.pipe = 1, .data = 1, .tensor = 3}};
    const fs::path run = folder / "run", full = folder / "full";
    ASSERT_EQ(save_on(plan, run, 1, small), well(plan));
    // The file as rank 1 sees it takes no byte.
    fs::create_directories(full / "checkpoints/step-00000002.tmp");
    fs::create_symlink("/dev/full", full / "checkpoints/step-00000002.tmp/state.safetensors");
    const auto ends = run_ranks(3, [&](Group& group) {
        const RankModel rank(small, plan, group.rank());
        fill_state(rank.data(), plan.precisions);
        save_checkpoint(group, group.rank() == 1 ? full : run, state_at(2), test::stored_of(small), rank.data());
    });
    for (const std::string& end : ends) {
        EXPECT_EQ(end, ends[0]);
        EXPECT_TRUE(end.starts_with("WorldError: rank 1: cannot write")) << end;
        EXPECT_NE(end.find("No space left on device"), std::string::npos) << end;
    }
    EXPECT_EQ(entries_of(run / "checkpoints"), std::vector<std::string>{"step-00000001"});
    EXPECT_TRUE(is_intact(inspect_checkpoint(run / "checkpoints/step-00000001")));
    EXPECT_EQ(save_on(plan, run, 2, small), well(plan)); // and the next one succeeds
    EXPECT_EQ(entries_of(run / "checkpoints"), (std::vector<std::string>{"step-00000001", "step-00000002"}));
}

struct Warnings : TrainListener {
    std::vector<std::string> texts;
    void warning(const std::string& text) override { texts.push_back(text); }
};

TEST(Ranks, AllRanksResumeFromWhatRankZeroChooses) {
    const TemporaryFolder folder;
    const std::vector<ModelTensor> small(model.begin(), model.begin() + 4);
    const RankPlan plan{.mesh = {.pipe = 1, .data = 1, .tensor = 2}};
    for (std::int64_t step : {1, 2}) ASSERT_EQ(save_on(plan, folder / "run", step, small), well(plan));
    fs::resize_file(folder / "run/checkpoints/step-00000002/state.safetensors", 100);
    RunConfig config;
    config.output = (folder / "run").string();
    config.resume = true;
    config.seed = 3;
    std::vector<Warnings> warnings(3);
    auto choose = [&] {
        return run_ranks(3, [&](Group& group) {
            const auto chosen =
                choose_checkpoint(group, config, test::stored_of(small), nlohmann::ordered_json::object(), {},
                                  warnings[static_cast<std::size_t>(group.rank())]);
            ASSERT_TRUE(chosen);
            EXPECT_EQ(chosen->state.step, 1);
            EXPECT_EQ(chosen->state.samples, 8);
        });
    };
    EXPECT_EQ(choose(), std::vector<std::string>(3));
    ASSERT_EQ(warnings[0].texts.size(), 1u); // one voice
    EXPECT_NE(warnings[0].texts[0].find("step-00000002 is damaged"), std::string::npos);
    EXPECT_TRUE(warnings[1].texts.empty());
    config.seed = 4;
    for (const std::string& end : choose()) EXPECT_NE(end.find("was made with seed 3"), std::string::npos) << end;
    config.resume = false;
    for (const std::string& end : choose()) EXPECT_NE(end.find("give --resume"), std::string::npos) << end;
}

// The tensors of a built-in model, each split in some way.
std::vector<ModelTensor> tensors_of(const Model& built) {
    std::vector<ModelTensor> tensors;
    for (const StoredTensor& stored : built.graph.stored()) {
        const Shape& shape = stored.type.shape;
        Split split = shape.rank() == 1 ? Split::none : tensors.size() % 2 == 0 ? Split::rows : Split::columns;
        if (stored.name.find("c_attn") != std::string::npos) split = Split::heads;
        tensors.push_back({stored.name, shape, split, tensors.empty()});
    }
    return tensors;
}

// Every element that ranks own, by tensor and place, as float32; with how many own it.
class Collected {
  public:
    explicit Collected(std::span<const ModelTensor> tensors) {
        for (const ModelTensor& tensor : tensors)
            values_[tensor.name].resize(static_cast<std::size_t>(tensor.shape.elements()), -1e30f);
    }
    void add(const ModelData& data, Region region) {
        const std::lock_guard lock(mutex_);
        for (std::int32_t i = 0; i < data.tensors(); ++i) {
            const Range owned = data.owned(region, i);
            std::vector<std::byte> bytes(static_cast<std::size_t>(owned.size() * size_of(data.dtype(region))));
            if (bytes.empty()) continue;
            data.read(region, i, owned.begin, bytes);
            std::vector<float> part(static_cast<std::size_t>(owned.size()));
            convert_elements(data.dtype(region), bytes, DType::float32, std::as_writable_bytes(std::span(part)));
            std::vector<float>& whole = values_[data.tensor(i).name];
            for (const sharding::SliceRun& run : data.tensor(i).slice.runs(owned))
                std::copy_n(part.begin() + run.part, run.count, whole.begin() + run.whole);
        }
    }
    bool operator==(const Collected& other) const { return values_ == other.values_; }

  private:
    std::mutex mutex_;
    std::map<std::string, std::vector<float>> values_;
};

TEST(Ranks, FreshWeightsDoNotDependOnTheMesh) {
    const ModelSource source = open_model("gpt2-tiny");
    const Model built = source.build({1, 16, DType::float32});
    const std::vector<ModelTensor> tensors = tensors_of(built);
    auto weights_on = [&](const RankPlan& plan, Collected& master, Collected& weights) {
        EXPECT_EQ(run_ranks(plan.mesh.ranks(),
                            [&](Group& group) {
                                const RankModel rank(tensors, plan, group.rank());
                                initialise_weights(built.graph.stored(), built.initialisation, 5, rank.data());
                                master.add(rank.data(), Region::master);
                                weights.add(rank.data(), Region::weights);
                            }),
                  well(plan));
    };
    const Precisions narrow{.weights = DType::bfloat16};
    Collected master(tensors), weights(tensors);
    weights_on({.precisions = narrow}, master, weights);
    for (const RankPlan& plan :
         {RankPlan{.mesh = {.pipe = 2, .data = 1, .tensor = 3}, .precisions = narrow},
          RankPlan{.mesh = {.pipe = 1, .data = 3, .tensor = 1}, .zero = 3, .precisions = narrow}}) {
        Collected split_master(tensors), split_weights(tensors);
        weights_on(plan, split_master, split_weights);
        EXPECT_TRUE(split_master == master);
        EXPECT_TRUE(split_weights == weights);
    }
}

TEST(Ranks, AModelFolderIsTheSameWhateverMeshWroteItAndIsReadOnAnyOther) {
    const TemporaryFolder folder;
    const ModelSource source = open_model("gpt2-tiny");
    const Model built = source.build({1, 16, DType::float32});
    const std::vector<ModelTensor> tensors = tensors_of(built);
    const Precisions narrow{.weights = DType::bfloat16};
    auto save = [&](const RankPlan& plan, const fs::path& to) {
        EXPECT_EQ(run_ranks(plan.mesh.ranks(),
                            [&](Group& group) {
                                const RankModel rank(tensors, plan, group.rank());
                                test::fill_values(rank.data(), Region::weights, Region::weights);
                                EXPECT_EQ(save_model(group, source, built.graph.stored(), rank.data(), to), "");
                            }),
                  well(plan));
    };
    save({.precisions = narrow}, folder / "one");
    save({.mesh = {.pipe = 2, .data = 1, .tensor = 3}, .precisions = narrow}, folder / "six");
    save({.mesh = {.pipe = 1, .data = 3, .tensor = 1}, .zero = 2, .precisions = narrow}, folder / "three");
    for (const char* name : {"model.safetensors", "config.json"})
        for (const char* many : {"six", "three"})
            EXPECT_TRUE(read_text(folder / many / name) == read_text(folder / "one" / name)) << many << "/" << name;
    EXPECT_EQ(entries_of(folder.path()), (std::vector<std::string>{"one", "six", "three"}));

    const ModelSource saved = open_model((folder / "six").string());
    const RankPlan four{.mesh = {.pipe = 1, .data = 1, .tensor = 4}, .precisions = narrow};
    EXPECT_EQ(run_ranks(4,
                        [&](Group& group) {
                            const RankModel rank(tensors, four, group.rank());
                            load_weights(saved, rank.data());
                            EXPECT_EQ(test::difference(rank.data(), Region::weights, Region::weights), "");
                        }),
              well(four));
}

} // namespace
} // namespace tutti
