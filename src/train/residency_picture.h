// What is planned of model data that comes and goes, as report/ draws it.
#pragma once

#include "report/residency_page.h"
#include "train/offload.h"

namespace tutti {

// `budget`: device memory for chunks.
ResidencyPicture picture_of(const Program& program, const OffloadPlan& plan, Bytes budget);

} // namespace tutti
