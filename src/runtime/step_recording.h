// StepRecording: a step's work recorded by the device (a CUDA graph), if it can be, and replayed as a whole in later
// steps.
#pragma once

#include "backend/device.h"

#include <memory>

namespace tutti::runtime {

class StepRecording {
  public:
    // Does the work, or has it done as it was recorded. `repeats`: it is the same in every step, and all of it is given
    // to this queue. The first time is never recorded: libraries load then what they need.
    template <class Work>
    void run(backend::Queue& queue, bool repeats, const Work& work) {
        if (repeats && warm_ && !recording_) recording_ = queue.record(work);
        if (repeats && recording_)
            queue.replay(*recording_);
        else
            work();
        warm_ = true;
    }
    void forget() { // the work has changed
        recording_.reset();
        warm_ = false;
    }

  private:
    std::unique_ptr<backend::Recording> recording_;
    bool warm_ = false;
};

} // namespace tutti::runtime
