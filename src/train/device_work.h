// DeviceWork: whether work of the device that all ranks take part in has been interrupted by an exception. Other ranks
// may then be in the middle of a step, and model data between two states, so nothing can be saved.
#pragma once

#include <utility>

namespace tutti::train {

class DeviceWork {
  public:
    template <class Work>
    void run(const Work& work) { // may be part of other such work
        const bool before = std::exchange(interrupted_, true);
        work();
        interrupted_ = before;
    }
    bool is_interrupted() const { return interrupted_; }

  private:
    bool interrupted_ = false;
};

} // namespace tutti::train
