// OpenedRun: the inputs of a rank before anything is planned: the model's source, the data, the device, and its links
// to other ranks.
#pragma once

#include "backend/device.h"
#include "base/file.h"
#include "models/model.h"
#include "plan/plan.h"
#include "run/listener.h"
#include "runtime/device_links.h"
#include "runtime/group_table.h"
#include "train/session/batches.h"

#include <memory>
#include <optional>

namespace tutti::train {

struct OpenedRun {
    // Tells the listener of doubts about the model's folder, the data and the device.
    // `given`: the plan to follow; null: that of the config's plan file, if it names one.
    OpenedRun(const run::RunConfig& config, run::TrainListener& listener, comm::World& world, const Plan* given);

    comm::World& world() const { return groups.world(); }
    // Works on model data in its backing tier.
    const backend::Device& host() const { return own_host ? *own_host : *device; }
    Bytes usable_memory() const; // by this rank
    // Why the weights in the model's folder do not fit, as warnings; none where training begins with new ones.
    std::vector<std::string> check_weights(const models::Model& model) const;
    // No communication follows.
    void end_groups() {
        links.reset();
        groups.end();
    }

    runtime::GroupTable groups;
    std::optional<Plan> followed; // none: the run makes its own
    models::ModelSource source;
    OpenedData data;
    std::unique_ptr<backend::Device> device;
    std::unique_ptr<backend::Device> own_host;   // where the device's memory is not the host's
    std::unique_ptr<runtime::DeviceLinks> links; // null: communication is by way of the host
    bool has_weights = false;                    // to begin with, in the model's folder
    fs::path disk;                               // folder for model data, or none
};

} // namespace tutti::train
