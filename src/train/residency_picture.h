// The picture of this rank's residency plan, for report/ to draw.
#pragma once

#include "offload/offload_plan.h"
#include "report/residency_page.h"
#include "run/listener.h"
#include "train/session/session.h"

namespace tutti::train {

// `budget`: device memory for chunks.
report::ResidencyPicture picture_of(const Program& program, const offload::OffloadPlan& plan, Bytes budget);

// A rank's picture as a page at config.report; where there is nothing to draw, the listener is told.
void write_residency_page(const run::RunConfig& config, const Session& session, run::TrainListener& listener);

} // namespace tutti::train
