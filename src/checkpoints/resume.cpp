#include "checkpoints/resume.h"

#include "base/counted.h"
#include "base/error.h"
#include "checkpoints/old_checkpoints.h"
#include "comm/agree.h"
#include "run/run_folder.h"
#include "run/settings.h"

#include <algorithm>

namespace tutti::checkpoints {

namespace {

// What there is to resume from, as one process sees it.
class Candidates {
  public:
    Candidates(const run::RunConfig& config, run::TrainListener& listener)
        : config_(config), listener_(listener),
          list_(config.output.empty() ? CheckpointList{} : list_checkpoints(config.output)) {
        if (!config.resumes()) {
            if (!list_.readable.empty() && !list_.readable.front().state.finished() && !config.dry_run)
                fail("{} holds checkpoints of a run that is not finished, the newest at step {}: give --resume to go "
                     "on from it, or another --output",
                     config.output, list_.readable.front().state.step);
            list_.readable.clear();
            return;
        }
        if (config.resume_from > 0) {
            leave_only(config.resume_from);
            return;
        }
        for (const DamagedCheckpoint& damaged : list_.damaged)
            listener.warning(damaged.damage + "; this checkpoint is passed over");
    }

    // The folder of the next one, newest first, which is of this model and run; empty where there is none left.
    std::string next(std::span<const StoredTensor> stored, const std::vector<data::DataFile>& data) {
        if (next_ == list_.readable.size()) {
            if (config_.resumes()) expect_none();
            return {};
        }
        const CheckpointInfo& info = list_.readable[next_++];
        if (info.model != fingerprint(stored))
            fail("{} is a checkpoint of another model: its tensors have other names or shapes", info.folder.string());
        if (info.state.seed != config_.seed)
            fail("{} was made with seed {}; resuming with seed {} would change the data order", info.folder.string(),
                 info.state.seed, config_.seed);
        check_data(info, data);
        listener_.waiting("checking " + info.folder.string());
        return info.folder.string();
    }

  private:
    void check_data(const CheckpointInfo& info, const std::vector<data::DataFile>& data) const {
        if (!info.state.data_files) return;
        const std::string change = data::changed_data(*info.state.data_files, data);
        if (change.empty()) return;
        if (!config_.allow_changed_data)
            fail("the data is not what {} was trained on: {}; --allow-changed-data goes on with it",
                 info.folder.string(), change);
        listener_.warning(fmt::format("the data is not what {} was trained on: {}", info.folder.string(), change));
    }

    void leave_only(std::int64_t step) {
        for (const DamagedCheckpoint& damaged : list_.damaged)
            if (damaged.step == step) fail("{}; resume_from is {}", damaged.damage, step);
        std::vector<std::int64_t> steps;
        for (const CheckpointInfo& info : list_.readable) steps.push_back(info.state.step);
        std::erase_if(list_.readable, [&](const CheckpointInfo& info) { return info.state.step != step; });
        if (!list_.readable.empty()) return;
        std::ranges::sort(steps);
        if (steps.empty()) fail("resume_from is {}, and {} holds no checkpoint", step, config_.output);
        fail("resume_from is {}, and {} holds no checkpoint of that step, but of {}", step, config_.output,
             fmt::join(steps, ", "));
    }

    // Where there are some and none of them is whole, nobody wants a new run in their place unasked.
    void expect_none() const {
        const std::size_t count = list_.readable.size() + list_.damaged.size();
        if (count > 0)
            fail("{} holds {}, and none of them is whole: to begin at step 0, move that folder away or give another "
                 "--output",
                 checkpoints_of(config_.output).string(), counted(static_cast<std::int64_t>(count), "checkpoint"));
        listener_.warning(
            fmt::format("{} holds no checkpoint to resume from: the run starts at step 0", config_.output));
    }

    const run::RunConfig& config_;
    run::TrainListener& listener_;
    CheckpointList list_;
    std::size_t next_ = 0;
};

void expect_steps(std::int64_t asked, std::int64_t done) {
    if (asked < done)
        fail("{} done before, and steps is {}: --steps counts from the first step of the run, so --steps {} would go "
             "on",
             done == 1 ? "1 step was" : fmt::format("{} steps were", done), asked, done + asked);
}

} // namespace

std::optional<CheckpointInfo> choose_checkpoint(comm::Group& group, const run::RunConfig& config,
                                                std::span<const StoredTensor> stored,
                                                const nlohmann::ordered_json& settings,
                                                const std::vector<data::DataFile>& data, run::TrainListener& listener) {
    std::optional<Candidates> candidates; // of rank 0
    for (;;) {
        const std::string folder = comm::first_decides(group, [&] {
            if (!candidates) candidates.emplace(config, listener);
            return candidates->next(stored, data);
        });
        if (folder.empty()) return std::nullopt;
        CheckpointInfo info;
        comm::agree(group, [&] { info = inspect_checkpoint(folder); });
        const bool intact = is_intact(group, info);
        if (!intact && config.resume_from > 0)
            fail("{} is damaged (its checksum differs); resume_from is {}", folder, config.resume_from);
        if (intact) expect_steps(config.steps, info.state.step);
        if (group.rank() == 0) {
            const std::string changes = run::changed_settings(info.state.settings, settings);
            if (!intact)
                listener.warning(fmt::format("{} is damaged (its checksum differs) and is passed over", folder));
            else if (!changes.empty())
                listener.warning(fmt::format("{} was made with {}{}", folder, changes,
                                             run::learning_rate_jump(info.state.settings, config, info.state.step)));
        }
        if (intact) return info;
    }
}

void set_checkpoints_aside(comm::Group& group, const run::RunConfig& config, run::TrainListener& listener) {
    if (config.output.empty()) return;
    comm::first_does(group, [&] {
        const CheckpointList list = list_checkpoints(config.output);
        if (list.readable.empty() && list.damaged.empty()) return;
        const fs::path folder = checkpoints_of(config.output), kept = run::set_aside(folder);
        listener.warning(fmt::format("the checkpoints that were in {} are kept as {}; remove them if you do not need "
                                     "them",
                                     folder.string(), kept.string()));
    });
}

void set_newer_aside(comm::Group& group, const run::RunConfig& config, std::int64_t step,
                     run::TrainListener& listener) {
    comm::first_does(group, [&] {
        const fs::path kept = set_newer_aside(config.output, step);
        if (kept.empty()) return;
        listener.warning(fmt::format("the run goes on from step {}: the checkpoints of later steps are kept in {}; "
                                     "remove them if you do not need them",
                                     step, kept.string()));
    });
}

} // namespace tutti::checkpoints
