// cluster.toml. Quantities are texts with their unit ("80 GiB", "25 GB/s", "200 Gb/s", "5 us") or numbers in bytes,
// bytes per second and seconds.
//
//   name = "16 H100 and 8 RTX 3090"
//   [[nodes]]
//   count = 2
//   devices = 8
//   device = "h100"               # a preset, or one of [[devices]]
//   link = "nvlink4"              # a preset, or latency = .. and bandwidth = ..; left out: as boards of a preset have
//   host_memory = "1 TiB"
//   host_link = "pcie5"
//   [[levels]]                    # above nodes, innermost first
//   name = "fabric"
//   size = 3                      # units of the level beneath; the last level may leave it out: all
//   link = "infiniband-ndr"
//   links_per_unit = 8            # that the devices of a unit share; left out: one for each device
//   [[devices]]
//   name = "mine"
//   like = "a100-40"              # what is not told is as there
//   memory = "48 GiB"
#pragma once

#include "base/file.h"
#include "costs/cluster.h"

namespace tutti::costs {

// Error with file, line, key, and what would be right. Unknown keys are errors.
Cluster parse_cluster(std::string_view text, const std::string& where);
Cluster read_cluster(const fs::path& path);
std::string to_toml(const Cluster& cluster); // reads back the same

} // namespace tutti::costs
