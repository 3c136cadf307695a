// Small clusters and small models to plan for.
#pragma once

#include "ops/operators.h"
#include "planner/joint.h"

namespace tutti {

inline costs::NodeKind node_of(int devices, double gigabytes, double speed = 1) {
    costs::NodeKind kind;
    kind.device = *costs::find_device_preset("a100-80");
    kind.device.name = "small";
    kind.device.memory = {static_cast<std::int64_t>(gigabytes * 1e9)};
    kind.device.flops16 *= 0.01 * speed;
    kind.device.bandwidth *= 0.01 * speed;
    kind.devices = devices;
    kind.link = {.latency = 5e-6, .bytes = 5e9};
    kind.host_memory = {std::int64_t{1} << 40};
    kind.host_copy = {.latency = 1e-5, .bytes = 2e10};
    return kind;
}

inline costs::Cluster small_cluster(int nodes, int devices, double gigabytes) {
    return costs::uniform_cluster(node_of(devices, gigabytes), nodes,
                                  {.name = "fabric", .speed = {.latency = 1e-5, .bytes = 1e9}});
}

inline costs::NodeKind device_of(const std::string& name, double speed, LinkSpeed link) {
    costs::NodeKind kind;
    kind.device = *costs::find_device_preset("a100-80");
    kind.device.name = name;
    kind.device.flops16 *= 0.01 * speed;
    kind.device.bandwidth *= 0.01 * speed;
    kind.link = link;
    return kind;
}

// Four nodes of one device each, in pairs: two of `speed` times the speed of the others, joined by faster links.
inline costs::Cluster mixed_cluster(double speed) {
    const LinkSpeed quick{.latency = 5e-6, .bytes = 5e9}, slow{.latency = 2e-5, .bytes = 5e8};
    costs::Cluster cluster{.name = "mixed",
                           .kinds = {device_of("slow", 1, slow), device_of("fast", speed, quick)},
                           .nodes = {0, 0, 1, 1},
                           .levels = {{.name = "node", .size = 1, .speed = slow},
                                      {.name = "pair", .size = 2, .speed = quick},
                                      {.name = "fabric", .size = 2, .speed = slow, .unit_devices = 2}}};
    costs::check(cluster);
    return cluster;
}

inline models::ModelSource small_model(const std::string& name, int layers) {
    nlohmann::json config = models::open_model(name).config();
    config[config.contains("n_layer") ? "n_layer" : "num_hidden_layers"] = layers;
    return {config, "a small model"};
}

struct Setting {
    costs::Cluster cluster;
    costs::RooflineCost costs;
    planner::PlannerWorkload workload;
    models::ModelSource source;
    planner::BlockChain chain;
    planner::PlanModel model;

    Setting(costs::Cluster machines, models::ModelSource trained, std::int64_t global_batch, int threads = 2)
        : cluster(std::move(machines)),
          costs(cluster, ops::all_operators()), workload{.sequence = 128,
                                                         .global_batch = global_batch,
                                                         .precision = {.compute = DType::bfloat16}},
          source(std::move(trained)), chain(planner::chain_of(source, 128, DType::bfloat16)),
          model(chain, costs, workload, {.kept_free_share = 0, .kept_free = {0}, .threads = threads}) {}
    Setting(costs::Cluster machines, int layers, std::int64_t global_batch, int threads = 2)
        : Setting(std::move(machines), small_model("gpt2-tiny", layers), global_batch, threads) {}
};

} // namespace tutti
