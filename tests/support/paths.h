// Where tests find the program and their data: beside the test program, and in the source tree.
#pragma once

#include "base/file.h"

namespace tutti::test {

fs::path test_data();   // tests/data, or the folder that the environment's TUTTI_TEST_DATA names
fs::path the_program(); // tutti, as built with this test

} // namespace tutti::test
