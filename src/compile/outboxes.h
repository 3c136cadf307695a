// Outboxes: how many messages of a stage are on their way at once. Two let the next be made while the last is sent; but
// a rank that waits for room in its outbox may be what the receiver itself waits for. Whether that happens does not
// depend on timing, only on the orders of all ranks, so it is found out by playing them through.
#pragma once

#include "program/program.h"

#include <span>
#include <vector>

namespace tutti::compile {

// Per rank of the pipeline and stage of that rank.
std::vector<std::vector<std::int32_t>> outbox_sizes(std::span<const Program> pipeline);

} // namespace tutti::compile
