// A stream of the stand-in device, as its queues and the stand-in of NCCL know it.
#pragma once

#include <functional>

namespace tutti::test {

class StandInStream {
  public:
    virtual ~StandInStream() = default;
    virtual void give(std::function<void()> work) = 0; // done some time later, in the order it is given
};

} // namespace tutti::test
