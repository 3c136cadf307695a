// DeviceWork: whether the device is at work in which all ranks take part. Where that throws, the others may be in the
// midst of a step, and model data between two states: nothing can be saved then.
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
