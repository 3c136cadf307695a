// What becomes of exceptions that nothing catches.
#include "launch/failure.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace tutti::test {

using namespace launch;
namespace {

// As a destructor does, into which an exception must not lead.
void in_vain(void (*throws)()) noexcept {
    always_end_with_a_sentence();
    throws();
}

// Destructors of JSON values need memory: without it the process would end by SIGABRT, in the library's words.
TEST(Failure, ExceptionsThatNothingCatchesEndTheProcessWithTheirClass) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(in_vain([] { throw std::bad_alloc(); }), testing::ExitedWithCode(75), "^tutti: out of memory; .*\n$");
    EXPECT_EXIT(in_vain([] { throw std::runtime_error("it was two"); }), testing::ExitedWithCode(70),
                "^tutti: this is a defect in tutti: it was two\n$");
}

} // namespace
} // namespace tutti::test
