#include "train/saving.h"

#include "base/error.h"
#include "comm/agree.h"
#include "train/weights.h"

namespace tutti {

void Saving::checkpoint(const CheckpointState& state, const ModelData& data) {
    if (saved_step_ == state.step) return;
    listener_.waiting(fmt::format("saving step {}", state.step));
    const fs::path folder = save_checkpoint(group_, config_.output, state, session_.stored(), data, config_.keep);
    saved_step_ = state.step;
    listener_.saved(folder.string());
}

void Saving::last_checkpoint(const CheckpointState& state, const ModelData& data) {
    try {
        checkpoint(state, data);
    } catch (const WorldError& error) {
        if (config_.save_every > 0) throw;
        listener_.warning(
            fmt::format("the model is saved, but no checkpoint to make the run longer from: {}", error.what()));
    }
}

void Saving::checkpoint_after_error(const CheckpointState& state, const ModelData& data) {
    if (config_.output.empty() || state.skipped == state.step) return;
    try {
        checkpoint(state, data);
    } catch (const WorldError& error) {
        listener_.warning(fmt::format("no checkpoint could be saved: {}", error.what()));
    }
}

std::string Saving::model(const ModelData& data, bool trained) {
    const fs::path folder = fs::path(config_.output) / "model";
    if (!trained) { // the run was finished before
        const std::string there =
            first_decides(group_, [&] { return is_there(folder / "config.json") ? folder.string() : std::string(); });
        if (!there.empty()) return there;
    }
    listener_.waiting("saving the model");
    const fs::path previous = save_model(group_, session_.source(), session_.stored(), data, folder);
    if (!previous.empty())
        listener_.warning(fmt::format("the model that was in {} is kept as {}", folder.string(), previous.string()));
    listener_.saved(folder.string());
    return folder.string();
}

} // namespace tutti
