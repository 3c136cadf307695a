// What is known of a run before its first step, gathered for people.
#pragma once

#include "train/session.h"

namespace tutti {

// All ranks call it. Steps are counted by the caller.
RunSummary summary_of(const Session& session, Group& group);

} // namespace tutti
