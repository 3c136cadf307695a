#include "checkpoints/saving.h"

#include "base/error.h"
#include "checkpoints/old_checkpoints.h"
#include "checkpoints/weights.h"
#include "comm/agree.h"

namespace tutti::checkpoints {

void Saving::stepped(bool finite) {
    if (finite) suspected_step_ = 0;
    if (!finite || confirmed_ || saved_step_ == 0) return;
    confirmed_ = true;
    if (group_.rank() == 0) remove_old_checkpoints(config_.output, config_.keep, confirmed_);
}

void Saving::checkpoint(const CheckpointState& state, const offload::ModelData& data) {
    if (state.step <= saved_step_) return;
    tried_step_ = state.step;
    listener_.waiting(fmt::format("saving step {}", state.step));
    const fs::path folder = save_checkpoint(group_, config_.output, state, stored_, data);
    saved_step_ = state.step;
    confirmed_ = false;
    if (group_.rank() == 0) remove_old_checkpoints(config_.output, config_.keep, confirmed_);
    listener_.saved(folder.string());
}

void Saving::last_checkpoint(const CheckpointState& state, const offload::ModelData& data) {
    try {
        checkpoint(state, data);
    } catch (const WorldError& error) {
        if (config_.save_every > 0) throw;
        listener_.warning(
            fmt::format("the model is saved, but no checkpoint to make the run longer from: {}", error.what()));
    }
}

void Saving::checkpoint_after_error(const CheckpointState& state, const offload::ModelData& data) {
    if (config_.output.empty() || state.step == tried_step_) return;
    auto tell = [&](const std::exception& error) {
        listener_.warning(fmt::format("no checkpoint of step {} could be saved: {}", state.step, error.what()));
    };
    try {
        checkpoint(state, data);
    } catch (const WorldError& error) {
        tell(error);
    } catch (const Error& error) {
        tell(error);
    }
}

std::string Saving::outlook() const {
    if (config_.output.empty()) return {};
    return saved_step_ > 0 ? fmt::format("; --resume goes on from step {}", saved_step_) : "; nothing was saved";
}

std::string Saving::way_around() const {
    const std::string back = way_back();
    if (suspected_step_ == 0) return "A lower learning rate or --clip may help" + (back.empty() ? "" : ", or " + back);
    return fmt::format("The checkpoint of step {} itself gives no finite loss: only {}a new run in another --output "
                       "helps",
                       suspected_step_, back.empty() ? "" : back + ", or ");
}

std::string Saving::way_back() const {
    if (config_.output.empty()) return {};
    return comm::first_decides(group_, [&]() -> std::string {
        const auto step = confirmed_step(config_.output);
        return step ? fmt::format("--resume-from {}, the newest checkpoint that a finite step followed", *step) : "";
    });
}

std::string Saving::model(const offload::ModelData& data, bool trained) {
    const fs::path folder = fs::path(config_.output) / "model";
    if (!trained) { // the run was finished before
        const std::string there = comm::first_decides(
            group_, [&] { return is_there(folder / "config.json") ? folder.string() : std::string(); });
        if (!there.empty()) return there;
    }
    listener_.waiting("saving the model");
    const fs::path previous = save_model(group_, source_, stored_, data, folder);
    if (!previous.empty())
        listener_.warning(fmt::format("the model that was in {} is kept as {}", folder.string(), previous.string()));
    listener_.saved(folder.string());
    return folder.string();
}

} // namespace tutti::checkpoints
