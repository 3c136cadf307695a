#include "train/session/opened_run.h"

#include "base/error.h"
#include "base/process_memory.h"
#include "costs/device_kind.h"
#include "devices/devices.h"
#include "formats/tensor_store.h"
#include "models/checkpoint.h"
#include "resolve/run_plan.h"
#include "run/layout.h"

#include <algorithm>

namespace tutti::train {
namespace {

formats::TensorStore open_weights(const fs::path& folder) {
    try {
        return formats::TensorStore(folder);
    } catch (const Error& error) {
        if (formats::TensorStore::is_in(folder)) throw;
        fail("{}; --from-scratch begins with new weights", error.what());
    }
}

// That of the run; for a dry run, one that need not be here.
std::unique_ptr<backend::Device> open_device_of(const run::RunConfig& config, const comm::World& world) {
    const devices::DeviceEntry* entry = devices::find_device(config.device);
    const bool may_be_absent = entry && entry->open_absent;
    if (may_be_absent && !config.gpu.empty())
        return entry->open_absent(config.gpu, costs::find_device_preset(config.gpu)->memory);
    try {
        return devices::open_device(config.device, config.threads, run::local_rank_of(config, world));
    } catch (const Error& error) {
        if (!may_be_absent || !config.dry_run) throw;
        fail("{}. The memory table of a GPU that is not here is shown by --dry-run --gpu NAME, as in --gpu h200",
             error.what());
    }
}

} // namespace

OpenedRun::OpenedRun(const run::RunConfig& config, run::TrainListener& listener, comm::World& world, const Plan* given)
    : groups(world), followed(resolve::followed_plan(config, given)),
      source(resolve::open_planned_model(config, followed ? &*followed : nullptr)), data(open_data(config, source)),
      device(open_device_of(config, world)),
      links(runtime::link_devices(groups, *device, [&](const std::string& sentence) { listener.warning(sentence); })),
      has_weights(!config.from_scratch && !source.folder().empty()), disk(config.disk) {
    if (data.has_documents) source = source.with_documents();
    if (device->memory()) own_host = devices::open_host_device(config.threads);
    for (const std::string& warning : source.warnings()) listener.warning(warning);
    for (const std::string& warning : data.warnings) listener.warning(warning);
    if (!config.gpu.empty() && !costs::find_device_preset(config.gpu)->has_kernels())
        listener.warning(
            fmt::format("Tutti's CUDA kernels are for GPUs since Ampere (compute capability 8.0): the table "
                        "is what a run would take on {}, but it would not start there",
                        config.gpu));
    devices::check_computes(*device, config.precision.compute);
}

Bytes OpenedRun::usable_memory() const {
    if (const auto own = device->memory()) return own->total;
    return {machine_memory().count / std::max(1, world().size())};
}

std::vector<std::string> OpenedRun::check_weights(const models::Model& model) const {
    if (!has_weights) return {};
    return models::check_weights(source, model, open_weights(source.folder()));
}

} // namespace tutti::train
