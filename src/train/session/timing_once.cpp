#include "train/session/timing_once.h"

namespace tutti::train {

profiling::OffloadTiming& TimingOnce::operator()(DType compute, Bytes room) {
    if (!timing_) {
        if (!speeds_) listener_.waiting("timing kernels and copies, to plan which model data is where");
        timing_.emplace(*opened_.device, opened_.host(), opened_.world(), compute, room, speeds_,
                        [this](const std::string& what) { listener_.waiting(what); });
    }
    return *timing_;
}

} // namespace tutti::train
