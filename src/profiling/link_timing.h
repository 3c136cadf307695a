// Times communication and copies: collectives by group size and bytes, messages, copies between device and host, and
// how computation and communication slow each other down. Every rank of the world calls these in the same order, and
// all get the same figures: those of the slowest rank.
#pragma once

#include "backend/device.h"
#include "comm/group.h"
#include "costs/profile.h"

#include <array>

namespace tutti::profiling {

constexpr std::array timed_sizes = {Bytes{1 << 10}, Bytes{16 << 10}, Bytes{256 << 10}, Bytes{2 << 20}, Bytes{16 << 20}};

// In groups of neighbours, for every size that divides the world: all groups at once, and between matmuls of `dtype`,
// as in training.
std::vector<costs::CollectiveSample> time_collectives(const backend::Device& device, DType dtype, comm::World& world,
                                                      std::span<const Bytes> sizes = timed_sizes);
std::vector<costs::MessageSample> time_messages(comm::World& world, std::span<const Bytes> sizes = timed_sizes);
// Of memory that queues copy from and to; all ranks at once.
LinkSpeed time_host_copies(const backend::Device& device, comm::World& world);
// A product is computed over and over while all ranks sum.
costs::Contention time_contention(const backend::Device& device, DType dtype, comm::World& world);

} // namespace tutti::profiling
