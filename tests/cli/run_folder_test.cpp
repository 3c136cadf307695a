// The folder of a run as a user meets it: with what is kept there a run goes on from anywhere, with nothing else than
// the data it was begun with, and what somebody else put there is not lost.
#include "program.h"
#include "run/run_options.h"

namespace tutti::test {
namespace {

std::string letters(std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += static_cast<char>('a' + i * i % 23);
    return text;
}

Words brief_run(const Words& more) {
    Words words = {"train", "--sequence", "16", "--global-batch", "4", "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

void expect_success(const Words& words, const std::string& warning = "") {
    const Outcome outcome = tutti_with(words);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    if (warning.empty())
        EXPECT_EQ(outcome.errors, "");
    else
        EXPECT_NE(outcome.errors.find(warning), std::string::npos) << outcome.errors << "lacks " << warning;
}

// Of every step and evaluation, to the last bit.
std::vector<double> losses_in(const fs::path& metrics) {
    std::vector<double> losses;
    for (const nlohmann::json& line : json_lines(read_text(metrics)))
        losses.push_back(line.value("loss", line.value("eval_loss", 0.0)));
    return losses;
}

// The folder that programs are started in, for a while.
class In {
  public:
    explicit In(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
    In(const In&) = delete;
    In& operator=(const In&) = delete;
    ~In() { fs::current_path(before_); }

  private:
    fs::path before_;
};

TEST(RunFolder, ItsConfigGoesOnToTheEndFromAnyFolderWithTheSameBits) {
    const TemporaryFolder folder;
    fs::create_directories(folder / "elsewhere");
    fs::copy(gpt2, folder / "net", fs::copy_options::recursive);
    folder.write("book.txt", letters(5000));
    folder.write("other.txt", letters(900));
    const Words common = {"net", "--data",  "book.txt", "--eval-data", "other.txt", "--eval-every",
                          "2",   "--steps", "6",        "--warmup",    "2"};
    auto with = [&](const Words& more) {
        Words words = brief_run(common);
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    {
        const In there(folder.path());
        expect_success(with({"--output", "whole", "--metrics", "whole.jsonl"}));
        expect_success(with({"--output", "run", "--metrics", "m.jsonl", "--stop-after", "2", "--dump-step0",
                             "step0.safetensors", "--resume"}),
                       "holds no checkpoint");
    }
    const fs::path kept = folder / "run/config.toml";
    const std::string text = read_text(kept);
    EXPECT_TRUE(text.starts_with("# A run of tutti train")) << text;
    for (const char* key : {"stop_after", "resume", "micro_batch", "dry_run", "dump_step0", "trace", "report", "disk"})
        EXPECT_EQ(text.find("\n" + std::string(key) + " ="), std::string::npos) << text;
    {
        const In elsewhere(folder / "elsewhere");
        expect_success({"train", "--config", kept.string(), "--resume"});
    }
    EXPECT_EQ(read_text(kept), text);
    EXPECT_EQ(losses_in(folder / "m.jsonl").size(), 9u);
    EXPECT_EQ(losses_in(folder / "m.jsonl"), losses_in(folder / "whole.jsonl"));
    EXPECT_EQ(read_text(folder / "run/model/model.safetensors"), read_text(folder / "whole/model/model.safetensors"));
    EXPECT_TRUE(fs::is_empty(folder / "elsewhere"));
}

// The file of the plan may go or change: what was completed of it is in the run's folder.
TEST(RunFolder, ARunThatFollowsAPlanGoesOnWithoutTheFileThatItCameFrom) {
    const TemporaryFolder folder;
    const fs::path plan = folder / "made/plan.json", run = folder / "run", kept = run / "config.toml";
    auto words = [&](const Words& more) {
        Words all = brief_run({gpt2, "--comm", "threads", "--lr-schedule", "constant"});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    expect_success(
        words({"--mesh", "pipe=2", "--micro-batch", "2", "--steps", "1", "--output", plan.parent_path().string()}));
    const Words long_run = words({"--steps", "4", "--plan", plan.string()});
    Words whole = long_run, first = long_run;
    whole.insert(whole.end(), {"--metrics", (folder / "whole.jsonl").string()});
    first.insert(first.end(), {"--metrics", (folder / "m.jsonl").string(), "--output", (run / "../run").string(),
                               "--stop-after", "2"});
    expect_success(whole);
    expect_success(first);
    const std::string text = read_text(kept);
    EXPECT_NE(text.find("\nplan = \"" + (run / "plan.json").string() + "\"\n"), std::string::npos) << text;
    fs::remove(plan);
    expect_success({"train", "--config", kept.string(), "--resume"});
    EXPECT_EQ(read_text(kept), text);
    EXPECT_EQ(losses_in(folder / "m.jsonl"), losses_in(folder / "whole.jsonl"));
    expect_success({"train", "--config", kept.string(), "--resume", "--steps", "5", "--mesh", "data=2"},
                   (run / "plan.json").string() + " says mesh pipe=2; --mesh data=2 wins, and the plan is made anew");
    const nlohmann::json now = nlohmann::json::parse(read_text(run / "plan.json"));
    EXPECT_EQ(now.at("mesh").at("data"), 2);
    EXPECT_FALSE(now.contains("schedule"));
}

// A user's own config in the folder it names is the common way to begin; a plan may lie there, too.
TEST(RunFolder, FilesThatNoRunLeftThereAreSetAside) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", config = run / "config.toml", plan = run / "plan.json";
    fs::create_directory(run);
    const std::string own = "# mine\nsequence = 16\nglobal_batch = 4\nsteps = 3\n";
    folder.write("run/config.toml", own);
    folder.write("run/plan.json", "notes");
    const Words words = {"train", gpt2, "--config", config.string(), "--output", run.string()};
    auto with = [&](const Words& more) {
        Words all = words;
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    expect_success(with({"--dry-run"}));
    EXPECT_EQ(read_text(config), own);
    const Outcome first = tutti_with(with({"--stop-after", "1"}));
    EXPECT_EQ(first.status, 0) << first.errors;
    for (const fs::path& file : {config, plan})
        EXPECT_NE(first.errors.find(file.string() + " was not left by a run: it is kept as " + file.string() + ".old"),
                  std::string::npos)
            << first.errors;
    EXPECT_EQ(read_text(run / "config.toml.old"), own);
    EXPECT_EQ(read_text(run / "plan.json.old"), "notes");
    expect_success(with({"--resume"})); // now the run's own config
    EXPECT_FALSE(fs::exists(run / "config.toml.old-2"));
    EXPECT_FALSE(fs::exists(run / "plan.json.old-2"));

    const fs::path next = folder / "next";
    fs::create_directory(next);
    fs::copy_file(plan, next / "plan.json");
    expect_success({"train", gpt2, "--plan", (next / "plan.json").string(), "--steps", "1", "--output", next.string()});
    EXPECT_FALSE(fs::exists(next / "plan.json.old")); // it is the plan that the run follows
}

TEST(RunFolder, ARunGoesOnWithTheDataItWasBegunWith) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", data = folder / "book.txt", moved = folder / "moved.txt";
    const std::string text = letters(5000);
    folder.write("book.txt", text);
    auto words = [&](const fs::path& file, const Words& more = {}) {
        Words all = brief_run({gpt2, "--steps", "9", "--lr-schedule", "constant", "--stop-after", "1", "--resume",
                               "--data", file.string(), "--output", run.string()});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    expect_success(words(data), "holds no checkpoint");
    expect_success(words(data));
    const std::string other = " was trained on: " + data.string() + " holds as many bytes as before, but other ones";
    folder.write("book.txt", std::string(text).replace(2500, 1, "#"));
    expect_refusal(words(data), other + "; --allow-changed-data goes on with it");
    expect_refusal(words(data, {"--ranks", "2", "--comm", "threads", "--mesh", "data=2"}), other);
    folder.write("book.txt", text + text);
    expect_refusal(words(data), data.string() + " holds 10000 bytes, and held 5000");
    expect_refusal(words("builtin"), data.string() + " is no part of it any more");
    folder.write("moved.txt", text);
    expect_success(words(moved), "was made with data \"" + data.string() + "\" (now \"" + moved.string() + "\")");
    expect_success(words(data, {"--allow-changed-data"}), "holds 10000 bytes, and held 5000");
    expect_success(words(data)); // the longer file is what it is trained on now
}

TEST(RunFolder, ACheckpointWithoutARecordOfItsDataGoesOn) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    folder.write("book.txt", letters(5000));
    const Words words = brief_run({gpt2, "--steps", "2", "--stop-after", "1", "--resume", "--data",
                                   (folder / "book.txt").string(), "--output", run.string()});
    expect_success(words, "holds no checkpoint");
    const char* const file = "run/checkpoints/step-00000001/checkpoint.json";
    auto json = nlohmann::ordered_json::parse(read_text(folder / file));
    EXPECT_EQ(json.at("data_files").at(0).at("bytes"), 5000);
    json.erase("data_files");
    json.erase("checksum");
    folder.write(file, json.dump());
    folder.write("book.txt", letters(4000));
    expect_success(words);
}

} // namespace
} // namespace tutti::test
