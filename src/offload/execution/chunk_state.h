// Where a chunk is on its way between home and device, in the order in which work is given: the copies and kernels
// behind it may run later, and wait for each other by events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::offload {

enum class ChunkState : std::uint8_t {
    home,    // nothing goes on; a chunk that is nobody's between its stays counts as at home, too
    coming,  // a copy to the device is under way
    here,    // on the device: kernels use it
    leaving, // a copy home is under way
    working, // the host works on it at home
};
constexpr std::size_t chunk_state_count = 5;

// What may follow what. A chunk that comes again while it still leaves waits for that; so does work at home.
constexpr std::array<std::array<bool, chunk_state_count>, chunk_state_count> legal_chunk_turns = {{
    // home   coming here   leaving working
    {false, true, true, false, true},  // home
    {true, false, true, false, false}, // coming: home, where it is given up before its stay began
    {true, false, false, true, false}, // here: home, where nothing has to be copied
    {true, true, true, false, true},   // leaving: here, where what it held is not needed
    {true, true, true, false, true},   // working
}};

constexpr bool may_turn(ChunkState from, ChunkState to) {
    return legal_chunk_turns[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

constexpr std::string_view name_of(ChunkState state) {
    constexpr std::array<std::string_view, chunk_state_count> names = {"home", "coming", "here", "leaving", "working"};
    return names[static_cast<std::size_t>(state)];
}

} // namespace tutti::offload
