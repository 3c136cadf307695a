#include "train/resume.h"

#include "base/error.h"
#include "train/run_folder.h"
#include "train/settings.h"

namespace tutti {

std::optional<CheckpointInfo> choose_checkpoint(const RunConfig& config, std::span<const StoredTensor> stored,
                                                const nlohmann::ordered_json& settings, TrainListener& listener) {
    const CheckpointList list = config.output.empty() ? CheckpointList{} : list_checkpoints(config.output);
    if (!config.resume) {
        if (!list.readable.empty() && !list.readable.front().state.finished() && !config.dry_run)
            fail("{} holds checkpoints of a run that is not finished, the newest at step {}: give --resume to go "
                 "on from it, or another --output",
                 config.output, list.readable.front().state.step);
        return std::nullopt;
    }
    for (const std::string& sentence : list.unreadable) listener.warning(sentence + "; this checkpoint is passed over");
    for (const CheckpointInfo& info : list.readable) {
        if (info.model != fingerprint(stored))
            fail("{} is a checkpoint of another model: its tensors have other names or shapes", info.folder.string());
        if (info.state.seed != config.seed)
            fail("{} was made with seed {}; resuming with seed {} would change the data order", info.folder.string(),
                 info.state.seed, config.seed);
        listener.waiting("checking " + info.folder.string());
        if (is_intact(info)) {
            if (const std::string changes = changed_settings(info.state.settings, settings); !changes.empty())
                listener.warning(fmt::format("{} was made with {}", info.folder.string(), changes));
            return info;
        }
        listener.warning(fmt::format("{} is damaged (its checksum differs) and is passed over", info.folder.string()));
    }
    listener.warning(fmt::format("{} holds no checkpoint to resume from: the run starts at step 0", config.output));
    return std::nullopt;
}

void set_checkpoints_aside(const RunConfig& config, TrainListener& listener) {
    if (config.output.empty()) return;
    const CheckpointList list = list_checkpoints(config.output);
    if (list.readable.empty() && list.unreadable.empty()) return;
    const fs::path folder = fs::path(config.output) / "checkpoints", kept = set_aside(folder);
    listener.warning(fmt::format("the checkpoints that were in {} are kept as {}; remove them if you do not need them",
                                 folder.string(), kept.string()));
}

} // namespace tutti
