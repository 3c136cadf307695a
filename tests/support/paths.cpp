// The only source of the tests that knows the source tree's path: the objects of all others are the same in any clone,
// so that a compiler cache serves them.
#include "support/paths.h"

#include <cstdlib>

namespace tutti::test {

fs::path test_data() {
    const char* folder = std::getenv("TUTTI_TEST_DATA");
    return folder ? folder : TUTTI_TEST_DATA;
}

fs::path the_program() {
    static const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
    return folder / "tutti";
}

} // namespace tutti::test
