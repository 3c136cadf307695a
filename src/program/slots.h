// Slots: buffers for values that one task leaves for a later task of the same stage and micro-batch. They come from
// replaying the task order, so a program has exactly as many as its schedule needs.
#pragma once

#include "program/program.h"

namespace tutti {

// Gives every task of the step its slots, and every stage their number. Stages with other than two messages on their
// way at once have their number in `outboxes`, by their place among the rank's: the next is made while the last is
// sent.
void assign_slots(Program& program, const std::vector<std::int32_t>& outboxes = {});

// A task that writes an outbox slot waits for the send that used it before.
void wait_for_outboxes(Program& program);

} // namespace tutti
