// Outboxes: how many messages of a stage may be on their way at once. With two slots, the next message is made while
// the last is sent. But a rank that waits for a free slot may hold up the very receiver it waits for: a deadlock.
// Deadlocks do not depend on timing, only on the task orders of all ranks, so replaying the orders finds how many slots
// avoid them.
#pragma once

#include "program/program.h"

#include <span>
#include <vector>

namespace tutti::compile {

// Per rank of the pipeline and stage of that rank.
std::vector<std::vector<std::int32_t>> outbox_sizes(std::span<const Program> pipeline);

} // namespace tutti::compile
