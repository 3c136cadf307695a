// What is planned of model data that comes and goes, as report/ draws it.
#pragma once

#include "offload/offload_plan.h"
#include "report/residency_page.h"

namespace tutti::train {

// `budget`: device memory for chunks.
report::ResidencyPicture picture_of(const Program& program, const offload::OffloadPlan& plan, Bytes budget);

} // namespace tutti::train
