// The loss over samples that training does not see.
#pragma once

#include "train/session/session.h"

#include <exception>

namespace tutti::train {

struct EvaluationLoss {
    double loss = 0;
    std::exception_ptr unread; // why this rank could not read its samples, of which none counted; mostly null
};

// The mean over the targets of up to config.eval_batches micro-batches, the same on all ranks, which call it together.
// Uses the executors' scratch: training is bound to it again afterwards. `residence`: of offloaded model data.
EvaluationLoss evaluation_loss(Session& session, const run::RunConfig& config, offload::ModelData& data,
                               std::byte* scratch, offload::Residence* residence);

} // namespace tutti::train
