// Where tests compute: on the CPU, unless the environment says otherwise, as in TUTTI_TEST_DEVICE=cuda
// build/train_test.
#pragma once

#include <cstdlib>
#include <string>

namespace tutti::test {

inline std::string device_to_test() {
    const char* name = std::getenv("TUTTI_TEST_DEVICE");
    return name ? name : "cpu";
}

} // namespace tutti::test
