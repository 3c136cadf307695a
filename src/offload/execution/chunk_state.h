// The states of a chunk on its way between its backing tier and the device. A state changes when work is given to a
// queue; the copies and kernels themselves run later and wait for each other by events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::offload {

enum class ChunkState : std::uint8_t {
    offloaded, // in its backing tier, no work under way; also a chunk whose content is dead between its intervals
    fetching,  // a copy to the device is under way
    on_device, // kernels use it
    evicting,  // a copy to the backing tier is under way
    host_work, // the host updates it in host memory
};
constexpr std::size_t chunk_state_count = 5;

// Which state may follow which. A fetch that begins during an eviction waits for the eviction; so does work on the
// host.
constexpr std::array<std::array<bool, chunk_state_count>, chunk_state_count> legal_chunk_transitions = {{
    // to: offloaded fetching on_device evicting host_work
    {false, true, true, false, true},  // from offloaded
    {true, false, true, false, false}, // from fetching; back to offloaded if its interval is given up before it begins
    {true, false, false, true, false}, // from on_device; straight to offloaded if nothing has to be copied
    {true, true, true, false, true},   // from evicting; straight to on_device if its old content is not needed
    {true, true, true, false, true},   // from host_work
}};

constexpr bool may_follow(ChunkState from, ChunkState to) {
    return legal_chunk_transitions[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

constexpr std::string_view name_of(ChunkState state) {
    constexpr std::array<std::string_view, chunk_state_count> names = {"offloaded", "fetching", "on device", "evicting",
                                                                       "host work"};
    return names[static_cast<std::size_t>(state)];
}

} // namespace tutti::offload
