// The policies of offloading that a user may choose: which chunks are evicted first, who updates offloaded chunks, and
// when.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::offload {

enum class Eviction : std::uint8_t {
    farthest_use, // Belady's rule, weighted by bytes: a chunk that need not be written back goes first
    least_recent,
    first_in,
};

std::string_view name_of(Eviction eviction); // farthest lru fifo
std::optional<Eviction> parse_eviction(std::string_view name);

// Where AdamW updates offloaded chunks: on the device, to which they are fetched; or on the host, in host memory.
// Automatic: whichever makes the step shorter.
enum class OptimizerPlacement : std::uint8_t { automatic, device, host };
std::string_view name_of(OptimizerPlacement placement); // auto device host
std::optional<OptimizerPlacement> parse_optimizer_placement(std::string_view name);

// When chunks are updated. End: at the end of the step. Backward: each chunk as soon as its gradients are final, before
// the norm is known, so that nothing can be clipped. Next: with offloading, in the next step, right before the chunk is
// used. Automatic: the faster of end and next.
enum class UpdateTime : std::uint8_t { automatic, backward, end, next };
std::string_view name_of(UpdateTime time); // auto backward end next
std::optional<UpdateTime> parse_update_time(std::string_view name);

} // namespace tutti::offload
