// What users and files get wrong: each is one sentence and status 2, and leaves nothing behind.
#include "program.h"
#include "support/paths.h"

#include <sys/stat.h>

#include <cstring>
#include <limits>

namespace tutti::test {

using namespace formats;
namespace {

Words dry_run(const fs::path& model) {
    return {"train", model.string(), "--data", (reference("gpt2") / "batches.safetensors").string(), "--dry-run"};
}

void expect_config_refusal(const std::function<void(nlohmann::json&)>& change, const std::string& part) {
    const TemporaryFolder folder;
    const fs::path model = changed_model(folder, "gpt2", change);
    expect_refusal(dry_run(model), part);
    expect_refusal({"inspect", model.string()}, part);
}

TEST(BadInput, MissingFiles) {
    const TemporaryFolder folder;
    const std::string absent = (folder / "absent").string();
    expect_refusal({"train", absent, "--dry-run"}, "there is no model folder");
    expect_refusal({"train", gpt2, "--data", absent, "--dry-run"}, "there is no data");
    expect_refusal({"train", "--config", absent}, "cannot read " + absent);
    expect_refusal({"train", folder.path().string()}, "holds no config.json");
    expect_refusal({"inspect", absent}, "there is no model folder");
    expect_refusal({"inspect", absent + ".safetensors"}, "there is no model folder");
    expect_refusal({"generate", absent, "--prompt", "a"}, "there is no model folder");
}

TEST(BadInput, FilesAndHubNamesWhereAModelFolderIsWanted) {
    const TemporaryFolder folder;
    const std::string onnx = folder.write("net.onnx", "x").string();
    expect_refusal({"train", onnx, "--dry-run"},
                   "net.onnx\" is an ONNX file, and Tutti reads no model from it: give a Hugging Face folder");
    expect_refusal({"generate", folder.write("net.gguf", "x").string(), "--prompt", "a"}, "is a llama.cpp file");
    expect_refusal({"train", (reference("gpt2") / "model.safetensors").string(), "--dry-run"},
                   "is a file, and a model is a folder: give \"" + gpt2 + "\"");
    expect_refusal({"train", "Qwen/Qwen2.5-0.5B", "--dry-run"},
                   "If it is a model's name on the Hugging Face Hub: Tutti downloads nothing, but `hf download "
                   "Qwen/Qwen2.5-0.5B --local-dir Qwen2.5-0.5B` makes the folder");
    expect_refusal({"train", "Qwen/Qwen2.5-0.5B", "--dry-run"}, "the built-in model qwen2.5-0.5b has the same shape");
    expect_refusal({"train", "gpt2-tinny", "--dry-run"}, "built in are: gpt2-tiny, ");
    expect_refusal({"train", "gtp2", "--dry-run"}, "; did you mean gpt2?");
    expect_refusal({"train", "GPT2", "--dry-run"}, "; did you mean gpt2?");
}

TEST(BadInput, NamesOfEndlessLengthAreToldByTheirBeginning) {
    const TemporaryFolder folder;
    const fs::path model = changed_model(folder, "gpt2", [](nlohmann::json&) {});
    fs::remove(model / "model.safetensors");
    const std::string shard(100'000, 'x');
    folder.write("model/model.safetensors.index.json", nlohmann::json{{"weight_map", {{"a", shard}}}}.dump());
    for (const Words& words : {Words{"inspect", model.string()}, dry_run(model)}) {
        expect_refusal(words, "xxx... (");
        EXPECT_LT(tutti_with(words).errors.size(), 1000u);
    }
}

// In rows of an embedding, too, that no token of the data asks for.
TEST(BadInput, WeightsThatAreNotFinite) {
    const TemporaryFolder folder;
    const fs::path model = changed_model(folder, "gpt2", [](nlohmann::json&) {}), file = model / "model.safetensors";
    const std::string bytes = read_text(file);
    const SafetensorsFile layout(file);
    auto spoil = [&](const std::string& name, std::int64_t row, std::int64_t column, float value) {
        const TensorEntry* tensor = layout.find(name);
        ASSERT_TRUE(tensor && tensor->type.dtype == DType::float32) << name;
        std::string spoilt = bytes;
        for (std::uint64_t at = tensor->begin + static_cast<std::uint64_t>(row * tensor->type.shape[1] + column) * 4;
             at < tensor->end; at += 40'000) // later ones are not told
            std::memcpy(spoilt.data() + at, &value, 4);
        folder.write("model/model.safetensors", spoilt);
    };
    const Words train = {"train", model.string(), "--steps", "1", "--sequence", "16", "--global-batch", "2"};
    Words ranks = train;
    ranks.insert(ranks.end(), {"--mesh", "tensor=2", "--comm", "threads"});
    spoil("transformer.wte.weight", 255, 3, std::numeric_limits<float>::quiet_NaN());
    const std::string told =
        "the tensor \"transformer.wte.weight\" in " + model.string() + " holds nan at [255,3], which is not finite";
    expect_refusal(train, told);
    expect_refusal({"generate", model.string(), "--prompt", "a"}, told);
    expect_refusal({"generate", model.string(), "--prompt", "a", "--dtype", "bf16"}, told);
    const Outcome outcome = tutti_with(ranks);
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    EXPECT_NE(outcome.errors.find(told), std::string::npos) << outcome.errors;
    spoil("transformer.h.0.mlp.c_fc.weight", 2, 1, -std::numeric_limits<float>::infinity());
    expect_refusal(train, "\"transformer.h.0.mlp.c_fc.weight\" in " + model.string() + " holds -inf at [2,1]");
}

TEST(BadInput, APlanOfAnotherModel) {
    const TemporaryFolder folder;
    auto plan_of = [&](const char* run, const char* sequence, const char* recompute) {
        const Outcome outcome = tutti_with({"train", "gpt2-tiny", "--global-batch", "1", "--steps", "1", "--sequence",
                                            sequence, "--recompute", recompute, "--output", (folder / run).string()});
        EXPECT_EQ(outcome.status, 0) << outcome.errors;
        return (folder / run / "plan.json").string();
    };
    const std::string plan = plan_of("long", "256", "none");
    expect_refusal({"train", "llama-tiny", "--plan", plan, "--dry-run"},
                   "plan.json is a plan for another model: for a GPT2LMHeadModel, and \"llama-tiny\" is a Llama");
    const fs::path shorter = changed_model(folder, "gpt2", [](nlohmann::json& config) { config["n_positions"] = 64; });
    expect_refusal({"train", shorter.string(), "--from-scratch", "--plan", plan, "--dry-run"},
                   "plan.json is a plan for another model: for sequences of 256 tokens, and");
    const fs::path thinner = changed_model(folder, "gpt2", [](nlohmann::json& config) { config["n_layer"] = 2; });
    const std::string deep = plan_of("deep", "16", "full");
    const std::vector<std::string> train = {"train", thinner.string(), "--from-scratch", "--plan", deep, "--dry-run"};
    expect_refusal(train, "plan.json is a plan for another model: for one of ");
    // Plans of earlier programs do not say how many parameters the model has.
    nlohmann::json earlier = formats::read_json(deep);
    earlier.erase("parameters");
    write_text_atomically(deep, earlier.dump());
    expect_refusal(train, "and was probably made for another model: ");
}

TEST(BadInput, APlanOfAScheduleAloneIsNotTrained) {
    const TemporaryFolder folder;
    const std::string plan = (folder / "zbv.json").string();
    const Outcome outcome = tutti_with({"schedule", "zb-v", "--pipe", "4", "--micro-batches", "8", "--plan", plan});
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    expect_refusal({"train", "gpt2-tiny", "--plan", plan}, "zbv.json holds a schedule alone, for tutti simulate");
}

TEST(BadInput, ConfigOfAModel) {
    expect_config_refusal(
        [](nlohmann::json& config) {
            config.erase("architectures");
            config.erase("model_type");
        },
        "neither \"architectures\" nor \"model_type\"");
    expect_config_refusal([](nlohmann::json& config) { config["architectures"] = {"MambaForCausalLM"}; },
                          "\"MambaForCausalLM\", which is not supported");
    expect_config_refusal([](nlohmann::json& config) { config["activation_function"] = "quick_brown_fox"; },
                          "\"activation_function\" is \"quick_brown_fox\"");
    expect_config_refusal([](nlohmann::json& config) { config["n_head"] = 0; }, "\"n_head\" is 0");
    expect_config_refusal([](nlohmann::json& config) { config["torch_dtype"] = "float99"; },
                          "\"torch_dtype\" is \"float99\", but it must be float32, bfloat16");
    const TemporaryFolder folder;
    fs::create_directory(folder / "broken");
    folder.write("broken/config.json", "{\"architectures\": [");
    expect_refusal({"inspect", (folder / "broken").string()}, "is not JSON");
}

TEST(BadInput, DamagedWeights) {
    const TemporaryFolder folder;
    const fs::path model = changed_model(folder, "gpt2", [](nlohmann::json&) {});
    const std::string whole = read_text(model / "model.safetensors");
    auto expect_damage = [&](const std::string& bytes, const std::string& part) {
        folder.write("model/model.safetensors", bytes);
        expect_refusal(dry_run(model), part);
        expect_refusal({"inspect", (model / "model.safetensors").string()}, part);
    };
    expect_damage(whole.substr(0, whole.size() - 100), "truncated");
    expect_damage(whole.substr(0, 20), "truncated");
    expect_damage(raw(std::uint64_t{1} << 63) + whole.substr(8), "says its header takes 9223372036854775808 bytes");
    const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                               R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
    expect_damage(raw(std::uint64_t{header.size()}) + header + std::string(12, '\0'), "not overlap");
    fs::remove(model / "model.safetensors");
    expect_refusal(dry_run(model), "holds neither model.safetensors nor model.safetensors.index.json; --from-scratch");
}

TEST(BadInput, TensorsThatAreMissingOrOfAnotherShape) {
    const TemporaryFolder folder;
    expect_refusal(dry_run(changed_model(folder, "gpt2", [](nlohmann::json& config) { config["n_layer"] = 9; })),
                   "hold no tensor");
    expect_refusal(dry_run(changed_model(folder, "gpt2", [](nlohmann::json& config) { config["n_positions"] = 4096; })),
                   "has shape");
}

TEST(BadInput, Data) {
    const TemporaryFolder folder;
    expect_refusal({"train", gpt2, "--data", folder.write("empty.txt", "").string(), "--dry-run"}, "is empty");
    expect_refusal({"train", gpt2, "--data", folder.write("short.txt", "abc").string(), "--dry-run"}, "too few");
    expect_refusal({"train", gpt2, "--data", folder.path().string(), "--dry-run"},
                   folder.path().string() + " is a folder, and data is one file: name a text file");
    // The tokens of this data go up to 255, and the model has 131.
    expect_refusal({"train", reference("gpt2-variant").string(), "--data",
                    (reference("gpt2") / "batches.safetensors").string(), "--steps", "1"},
                   "131");
    expect_refusal({"train", gpt2, "--sequence", "100000", "--dry-run"}, "sequence");
    expect_refusal({"train", gpt2, "--global-batch", "8", "--micro-batch", "3", "--dry-run"}, "not a multiple");
}

// A model with a tokenizer of its own would learn nonsense from bytes: they are other tokens to it.
TEST(BadInput, TextForAModelWhoseTokensAreNotBytes) {
    const TemporaryFolder folder;
    const std::string text = folder.write("a.txt", std::string(5000, 'a')).string();
    const std::string lines = folder
                                  .write("a.jsonl", R"({"text": "a"})"
                                                    "\n")
                                  .string();
    const std::string what_to_do =
        "Turn the text into tokens first, with tutti tokenize MODEL " + text +
        " --output tokens.bin: --data reads an llm.c .bin, a Megatron .bin with its .idx, or "
        "a safetensors file";
    const Words words = {"train", "gpt2", "--data", text, "--dry-run"};
    expect_refusal(words, "a.txt is text, and the model has a vocabulary of 50257 tokens");
    expect_refusal(words, what_to_do);
    expect_refusal({"train", "gpt2", "--eval-data", text, "--eval-every", "1", "--dry-run"}, what_to_do);
    expect_refusal({"train", "gpt2", "--data", text, "--ranks", "2", "--comm", "threads", "--dry-run"}, what_to_do);
    expect_refusal({"train", "gpt2-tiny", "--data", lines, "--dry-run"}, "a.jsonl holds JSON");
    EXPECT_EQ(tutti_with({"train", "gpt2-tiny", "--data", text, "--dry-run"}).status, 0);
    EXPECT_EQ(tutti_with({"train", "bert-tiny", "--data", text, "--dry-run"}).status, 0); // two special tokens
    const fs::path model = changed_model(folder, "gpt2", [](nlohmann::json&) {});
    EXPECT_EQ(tutti_with({"train", model.string(), "--data", text, "--dry-run"}).status, 0);
    folder.write("model/tokenizer.json", "{}");
    expect_refusal({"train", model.string(), "--data", text, "--dry-run"},
                   "a.txt is text, and the model has its own tokenizer, " + (model / "tokenizer.json").string());
}

TEST(BadInput, BuiltinStoriesTryAnyModelOf256TokensOrMore) {
    const TemporaryFolder folder;
    auto with_vocabulary = [&](int tokens) {
        return changed_model(folder, "gpt2", [&](nlohmann::json& config) { config["vocab_size"] = tokens; }).string();
    };
    const Outcome large = tutti_with(
        {"train", with_vocabulary(1000), "--from-scratch", "--sequence", "16", "--steps", "2", "--threads", "1"});
    EXPECT_EQ(large.status, 0) << large.errors;
    EXPECT_NE(large.errors.find("--data builtin is made-up stories, read byte by byte as tokens 0 to 255, and the "
                                "model has a vocabulary of 1000 tokens"),
              std::string::npos)
        << large.errors;
    EXPECT_NE(large.output.find("bytes of generated stories as tokens"), std::string::npos) << large.output;
    const Outcome bytes = tutti_with({"train", with_vocabulary(256), "--dry-run"});
    EXPECT_EQ(bytes.errors.find("made-up stories"), std::string::npos) << bytes.errors;
    expect_refusal({"train", with_vocabulary(255), "--from-scratch", "--dry-run"}, "holds tokens up to 255");
}

TEST(BadInput, NumbersOfTheOptimizer) {
    expect_refusal({"train", gpt2, "--lr", "fast"}, "--lr is \"fast\", and should be a number");
    expect_refusal({"train", gpt2, "--lr", "nan"}, "--lr is \"nan\", and should be a number");
    expect_refusal({"train", gpt2, "--lr", "inf"}, "should be a number");
    expect_refusal({"train", gpt2, "--lr", "1e-3x"}, "should be a number");
    expect_refusal({"train", gpt2, "--lr", "-1"}, "lr is -1");
    expect_refusal({"train", gpt2, "--betas", "0.9,1.5"}, "betas is 0.9,1.5; both have to be at least 0 and below 1");
    const TemporaryFolder folder;
    expect_refusal({"train", "--config", folder.write("a.toml", "lr = \"fast\"\n").string()}, "line 1: lr is \"fast\"");
    expect_refusal({"train", "--config", folder.write("b.toml", "steps = 1\nlearning_rat = 1\n").string()},
                   "line 2: unknown key \"learning_rat\"");
    expect_refusal({"train", "--config", folder.write("c.toml", "steps = 1\nlearning_rate = 1\n").string()},
                   "line 2: learning_rate is called lr here");
    expect_refusal({"train", "--device", "abacus", "--dry-run"}, "there is no device \"abacus\"; there are cpu");
    expect_refusal({"train", "--device", "", "--dry-run"}, "there is no device \"\"; there are cpu");
    expect_refusal({"train", "--dtype", "float64", "--dry-run"}, "float64");
}

TEST(BadInput, AGpuThatIsNotHere) {
    expect_refusal({"train", gpt2, "--gpu", "h300", "--dry-run"}, "gpu is h300, and Tutti knows v100-16, ");
    expect_refusal({"train", gpt2, "--gpu", "h200"}, "--gpu is for --dry-run");
    expect_refusal({"train", gpt2, "--gpu", "h200", "--device", "reference", "--dry-run"},
                   "--gpu is for --device cuda");
    expect_refusal({"train", gpt2, "--gpu", "h200", "--device-memory", "1GiB", "--dry-run"},
                   "--device-memory needs the GPU itself");
}

TEST(BadInput, CheckpointOfAnotherModel) {
    const TemporaryFolder folder;
    const std::string run = (folder / "run").string();
    const Words common = {"--data", "builtin",  "--sequence", "16",        "--global-batch",
                          "2",      "--output", run,          "--threads", "1"};
    Words first = {"train", gpt2, "--steps", "2", "--stop-after", "1"};
    first.insert(first.end(), common.begin(), common.end());
    ASSERT_EQ(tutti_with(first).status, 0);
    Words second = {"train", reference("llama").string(), "--steps", "2", "--resume"};
    second.insert(second.end(), common.begin(), common.end());
    const std::string config = read_text(folder / "run/config.toml");
    expect_refusal(second, "checkpoint of another model");
    EXPECT_EQ(read_text(folder / "run/config.toml"), config); // nothing was written over
    expect_refusal(first, "give --resume");
}

void expect_unwritable(const char* flag, const std::string& path) {
    expect_refusal({"train", gpt2, "--sequence", "16", "--global-batch", "2", "--steps", "1", flag, path}, path);
}

TEST(BadInput, OutputThatCannotBeWritten) {
    const TemporaryFolder folder;
    const fs::path file = folder.write("file", "x");
    expect_unwritable("--output", (file / "run").string());
    expect_unwritable("--output", "/proc/run");
    expect_refusal({"train", gpt2, "--output", "/"}, "output is /, the root of the file system");
    expect_refusal({"train", gpt2, "--output", "/usr/..", "--dry-run"}, "the root of the file system");
    expect_unwritable("--metrics", (file / "m.jsonl").string());
    expect_unwritable("--dump-step0", (file / "d.safetensors").string());
}

TEST(BadInput, PipesAndDevicesAreNeitherReadNorWritten) { // and nobody waits for their other end
    const TemporaryFolder folder;
    const std::string pipe = (folder / "pipe").string();
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    for (const std::string& path : {pipe, std::string("/dev/zero")}) {
        for (const char* flag : {"--metrics", "--output", "--dump-step0"}) expect_unwritable(flag, path);
        expect_refusal({"train", gpt2, "--data", path}, "cannot read " + path + ": it is not a regular file");
        expect_refusal({"train", gpt2, "--config", path}, "cannot read " + path + ": it is not a regular file");
        EXPECT_FALSE(fs::is_regular_file(path));
    }
}

TEST(BadInput, PathsThatAreTooLong) {
    std::string deep;
    while (deep.size() < 5000) deep += "/folder";
    for (const char* flag : {"--output", "--data", "--eval-data", "--metrics", "--dump-step0"})
        expect_refusal({"train", gpt2, flag, deep},
                       " is a path of 5005 characters; the longest that this system takes");
    expect_refusal({"train", deep}, "model is a path of 5005 characters");
    expect_refusal({"train", "--output", "run/" + std::string(300, 'a')}, "output holds a name of 300 characters");
    expect_refusal({"inspect", deep}, "File name too long");
}

TEST(BadInput, MoreThreadsThanMakeSense) {
    for (const Words& words :
         {Words{"train", gpt2, "--dry-run"}, Words{"generate", gpt2, "--prompt", "a", "--tokens", "1"}}) {
        Words many = words;
        many.insert(many.end(), {"--threads", "1000000"});
        expect_refusal(many, "threads make sense");
    }
}

TEST(BadInput, ARunsFolderWhereAModelIsWanted) {
    const TemporaryFolder folder;
    const fs::path model = changed_model(folder, "gpt2", [](nlohmann::json&) {});
    expect_refusal({"train", folder.path().string()}, "its model is \"" + model.string() + "\"");
    // To look at it, the run's folder will do.
    EXPECT_EQ(tutti_with({"inspect", folder.path().string()}).status, 0);
    EXPECT_EQ(tutti_with({"generate", folder.path().string(), "--prompt", "a", "--tokens", "1"}).status, 0);
}

TEST(BadInput, ReadOnlyOutputFolder) {
    if (::geteuid() == 0) GTEST_SKIP() << "root may write to read-only folders";
    const TemporaryFolder folder;
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
    expect_unwritable("--output", (folder / "run").string());
    expect_unwritable("--output", folder.path().string());
    fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST(BadInput, Prompts) {
    expect_refusal({"generate", gpt2}, "give --prompt TEXT, or --prompt-tokens");
    expect_refusal({"generate", reference("gpt2-variant").string(), "--prompt", "a"},
                   "give token ids with --prompt-tokens");
    expect_refusal({"generate", gpt2, "--prompt-tokens", "1,x"}, "\"x\"");
    expect_refusal({"generate", gpt2, "--prompt-tokens", "256"}, "from 0 to 255");
    expect_refusal({"generate", reference("bert").string(), "--prompt-tokens", "1"}, "masked language model");
}

TEST(BadInput, SizesThatNothingCouldHold) {
    expect_refusal({"inspect", "gpt2-tiny", "--batch", "9223372036854775807"}, "an integer from 1 to 1000000000");
}

TEST(BadInput, IsRefusedWithoutAnywhereToSayIt) {
    const std::string command = the_program().string() + " train --lr -1 >&- 2>&-";
    const int raw = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(raw));
    EXPECT_EQ(WEXITSTATUS(raw), 2);
}

} // namespace
} // namespace tutti::test
