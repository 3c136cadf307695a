// The main function of every test program: GoogleTest's, and a filter whose pattern names no test is an error.
// GoogleTest itself would run nothing and call that a success.
#include <gtest/gtest.h>

#include <fnmatch.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> names_of_all_tests() {
    std::vector<std::string> names;
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int i = 0; i < all.total_test_suite_count(); ++i) {
        const testing::TestSuite& suite = *all.GetTestSuite(i);
        for (int j = 0; j < suite.total_test_count(); ++j)
            names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(j)->name());
    }
    return names;
}

// The patterns of "a*:b.c-d*", also those behind the '-'.
bool every_pattern_names_a_test(std::string filter) {
    const std::vector<std::string> names = names_of_all_tests();
    if (const auto excluded = filter.find('-'); excluded != std::string::npos) filter[excluded] = ':';
    std::istringstream patterns(filter);
    bool all_do = true;
    for (std::string pattern; std::getline(patterns, pattern, ':');) {
        bool found = pattern.empty();
        for (const std::string& name : names) found = found || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
        if (!found) std::cerr << "no test is called " << pattern << '\n';
        all_do = all_do && found;
    }
    return all_do;
}

} // namespace

int main(int count, char** words) {
    testing::InitGoogleTest(&count, words);
    if (!every_pattern_names_a_test(GTEST_FLAG_GET(filter))) return 2;
    return RUN_ALL_TESTS();
}
