#include "base/clock.h"

#include <chrono>

namespace tutti {

Seconds steady_now() {
    return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

} // namespace tutti
