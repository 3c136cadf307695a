// What a user may ask of offloading: which chunks leave the device first, where chunks that do not stay on the device
// are updated, and when.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::offload {

enum class Eviction : std::uint8_t {
    farthest_use, // Belady's, weighted by what has to be copied: what need not be written back goes first
    least_recent,
    first_in,
};

std::string_view name_of(Eviction eviction); // farthest lru fifo
std::optional<Eviction> parse_eviction(std::string_view name);

// Where AdamW updates chunks that do not stay on the device: there, while they pass through it, or on the host, where
// they are at home; automatic: whichever makes the step shorter.
enum class OptimizerPlacement : std::uint8_t { automatic, device, host };
std::string_view name_of(OptimizerPlacement placement); // auto device host
std::optional<OptimizerPlacement> parse_optimizer_placement(std::string_view name);

// When chunks are updated: at the end of the step; each in the backward, as soon as its gradients are final, before the
// norm is known, so that nothing can be clipped; or, where chunks come and go, in the next step, right before it is
// used. Automatic: the faster of end and next.
enum class UpdateTime : std::uint8_t { automatic, backward, end, next };
std::string_view name_of(UpdateTime time); // auto backward end next
std::optional<UpdateTime> parse_update_time(std::string_view name);

} // namespace tutti::offload
