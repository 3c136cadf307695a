// Where tests run and find their data: the CPU and the source tree, unless the environment says otherwise. So the same
// tests run on a GPU: TUTTI_TEST_DEVICE=cuda build/train_test.
#pragma once

#include <cstdlib>
#include <string>

namespace tutti::test {

inline std::string device_to_test() {
    const char* name = std::getenv("TUTTI_TEST_DEVICE");
    return name ? name : "cpu";
}

inline std::string test_data() {
    const char* folder = std::getenv("TUTTI_TEST_DATA");
    return folder ? folder : TUTTI_TEST_DATA;
}

} // namespace tutti::test
