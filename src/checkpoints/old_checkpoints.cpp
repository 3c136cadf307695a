#include "checkpoints/old_checkpoints.h"

#include "base/error.h"
#include "run/run_folder.h"

#include <algorithm>

namespace tutti::checkpoints {

void remove_old_checkpoints(const fs::path& run, std::int64_t keep, bool confirmed) {
    try {
        const std::int64_t most = confirmed ? keep : std::max<std::int64_t>(keep, 2);
        std::int64_t kept = 0, finite_steps = -1;
        for (const CheckpointInfo& info : list_checkpoints(run).readable) {
            if (info.state.finite_steps() != finite_steps) ++kept;
            finite_steps = info.state.finite_steps();
            if (kept > most) remove_checkpoint(info.folder);
        }
    } catch (const Error&) { // a checkpoint that cannot be read now is not to be removed either
    } catch (const WorldError&) {
    }
}

std::optional<std::int64_t> confirmed_step(const fs::path& run) {
    const std::vector<CheckpointInfo> all = list_checkpoints(run).readable;
    for (const CheckpointInfo& info : all)
        if (info.state.finite_steps() < all.front().state.finite_steps()) return info.state.step;
    return std::nullopt;
}

void remove_leftovers(const fs::path& run) {
    try {
        for (const fs::path& entry : entries_of(checkpoints_of(run)))
            if (is_leftover(entry)) remove_quietly(entry);
    } catch (const Error&) { // it is told where checkpoints are looked for
    } catch (const WorldError&) {
    }
}

fs::path set_newer_aside(const fs::path& run, std::int64_t step) {
    const CheckpointList list = list_checkpoints(run);
    std::vector<fs::path> newer;
    for (const CheckpointInfo& info : list.readable)
        if (info.state.step > step) newer.push_back(info.folder);
    for (const DamagedCheckpoint& damaged : list.damaged)
        if (damaged.step > step) newer.push_back(damaged.folder);
    if (newer.empty()) return {};
    const fs::path aside = run::free_name(checkpoints_of(run));
    make_folders(aside);
    for (const fs::path& folder : newer) rename_durably(folder, aside / folder.filename());
    sync_folder(checkpoints_of(run));
    return aside;
}

} // namespace tutti::checkpoints
