#include "terminal/terminal.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace terminal;
namespace {

TEST(SafeText, ReplacesWhatATerminalMustNotSee) {
    SafeText safe;
    EXPECT_EQ(safe.add("a\xc3"), "a"); // may still become ü
    EXPECT_EQ(safe.add("\xbc\n"), "ü\n");
    EXPECT_EQ(safe.add("\x1b[2J\a\x7f\xc2\x9b"), "\\x1b[2J\\x07\\x7f\\x9b");
    EXPECT_EQ(safe.add("\xe2\x80\xae\xe2\x81\xa6"), "\\u202e\\u2066"); // they would turn what follows
    EXPECT_EQ(safe.add("\xe2\x80\x8f"), "\xe2\x80\x8f");               // a mark of Arabic and Hebrew texts
    EXPECT_EQ(safe.add("\xff\x80z"), "\xef\xbf\xbd\xef\xbf\xbdz");
    EXPECT_EQ(safe.add("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); // a surrogate
    EXPECT_EQ(safe.add("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
    EXPECT_EQ(safe.add("\xe2\x82"), "");
    EXPECT_EQ(safe.finish(), "\xef\xbf\xbd");
    EXPECT_EQ(safe.finish(), "");
}

} // namespace
} // namespace tutti
