// The loss over samples that training does not see.
#pragma once

#include "train/session.h"

namespace tutti {

// The mean over the targets of up to config.eval_batches micro-batches, the same on all ranks, which call it together.
// Uses the executors' scratch: training is bound to it again afterwards. `residence`: of model data that comes and
// goes.
double evaluation_loss(Session& session, const RunConfig& config, ModelData& data, std::byte* scratch,
                       Residence* residence);

} // namespace tutti
