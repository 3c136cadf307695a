// What groups must do, over whatever transport: every rank runs these with its world and compares with plain loops over
// all ranks' data, bit for bit. They throw std::runtime_error where something differs.
#pragma once

#include "comm/group.h"

namespace tutti {

// Every operation with every element type, uneven counts and counts of zero, waited for at once.
void exercise_operations(comm::World& world);

// Hundreds of operations of several groups under way, started in one order and waited for in another, which differs
// from rank to rank.
void exercise_many_at_once(comm::World& world, std::uint64_t seed, int operations);

// Messages in both directions: sends before and after their receives, in order, of all sizes.
void exercise_messages(comm::World& world);

} // namespace tutti
