// Times what ranks exchange and copy: collectives by group size and bytes, messages, copies between device and host,
// and how computing and communicating slow each other down. Every rank of the world calls these in the same order, and
// all get the same figures: the slowest rank's.
#pragma once

#include "backend/device.h"
#include "cluster/profile.h"
#include "comm/group.h"

#include <array>

namespace tutti {

constexpr std::array timed_sizes = {Bytes{1 << 10}, Bytes{16 << 10}, Bytes{256 << 10}, Bytes{2 << 20}, Bytes{16 << 20}};

// In groups of neighbours, for every size that divides the world: all groups at once, and between products of `dtype`,
// as in training.
std::vector<CollectiveSample> time_collectives(const Device& device, DType dtype, World& world,
                                               std::span<const Bytes> sizes = timed_sizes);
std::vector<MessageSample> time_messages(World& world, std::span<const Bytes> sizes = timed_sizes);
// Of memory that queues copy from and to; all ranks at once.
LinkSpeed time_host_copies(const Device& device, World& world);
// A product is computed over and over while all ranks sum.
Contention time_contention(const Device& device, DType dtype, World& world);

} // namespace tutti
