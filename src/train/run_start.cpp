#include "train/run_start.h"

#include "base/error.h"
#include "checkpoints/old_checkpoints.h"
#include "checkpoints/weights.h"
#include "comm/agree.h"
#include "train/memory_advice.h"
#include "train/residency_picture.h"
#include "train/run_summary.h"

namespace tutti::train {

void RunStart::take_folder(std::optional<run::RunLock>& lock) {
    if (config_.dry_run || config_.output.empty()) return;
    comm::first_does(group_, [&] {
        lock.emplace(config_.output);
        checkpoints::expect_folder(config_.output);
        checkpoints::remove_leftovers(config_.output);
    });
}

void RunStart::announce(std::int64_t first_step) {
    run::RunSummary summary = summary_of(session_, group_);
    summary.steps = config_.steps;
    summary.first_step = first_step;
    listener_.planned(summary);
    if (const auto& offload = session_.offload())
        if (const auto slow = offload::slow_disk(*offload, config_.disk)) listener_.warning(*slow);
    if (!config_.report.empty()) comm::first_does(group_, [&] { write_residency_page(config_, session_, listener_); });
}

bool RunStart::goes_on() {
    const std::string lack = lack_of_room(group_, session_);
    if (config_.dry_run) {
        if (!lack.empty()) listener_.warning(lack);
        return false;
    }
    if (!config_.output.empty())
        comm::first_does(
            group_, [&] { write_text_atomically(fs::path(config_.output) / "plan.json", to_json(session_.plan())); });
    comm::agree(group_, [&] { // before any rank takes its memory
        if (!lack.empty()) fail_world("{}", lack);
    });
    return true;
}

checkpoints::CheckpointState RunStart::load(const std::optional<checkpoints::CheckpointInfo>& checkpoint,
                                            offload::ModelData& data) {
    if (!checkpoint) {
        load_weights(data);
        return {.seed = config_.seed};
    }
    listener_.waiting("loading " + checkpoint->folder.string());
    checkpoints::load_checkpoint(group_, *checkpoint, session_.stored(), data);
    return checkpoint->state;
}

void RunStart::load_weights(offload::ModelData& data) {
    if (session_.has_weights()) {
        listener_.waiting("loading " + session_.source().folder().string());
        comm::agree(group_, [&] { checkpoints::load_weights(session_.source(), data); });
    } else {
        listener_.waiting("initialising weights");
        checkpoints::initialise_weights(session_.stored(), session_.initialisation(), config_.seed, data);
    }
}

} // namespace tutti::train
