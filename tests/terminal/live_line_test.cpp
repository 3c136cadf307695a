#include "terminal/live_line.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace tutti {

using terminal::LiveLine;
namespace {

// What is printed where there is no terminal.
std::string printed(const std::function<void()>& work) {
    testing::internal::CaptureStdout();
    work();
    return testing::internal::GetCapturedStdout();
}

constexpr LiveLine::Clock::time_point begin{};

TEST(LiveLine, WithoutATerminalTellsOfALongWaitNowAndThen) {
    const std::string text = printed([] {
        LiveLine line(false);
        for (int tenth = 0; tenth <= 250; ++tenth)
            line.draw(std::to_string(tenth), begin + std::chrono::milliseconds(100 * tenth));
    });
    EXPECT_EQ(text, "100\n200\n");
}

TEST(LiveLine, WithoutATerminalSaysNothingOfShortWaits) {
    const std::string text = printed([] {
        LiveLine line(false);
        for (int second = 0; second < 100; second += 6) {
            line.draw("busy", begin + std::chrono::seconds(second));
            if (second % 12 == 0) line.say("done " + std::to_string(second));
        }
    });
    EXPECT_EQ(text.find("busy"), std::string::npos) << text;
    EXPECT_EQ(text.find("done 0\ndone 12\n"), 0U) << text;
}

TEST(LiveLine, IsSilentWhereOutputIsForPrograms) {
    EXPECT_EQ(printed([] {
                  LiveLine line(true);
                  for (int minute = 0; minute < 10; ++minute) line.draw("busy", begin + std::chrono::minutes(minute));
                  line.say("done");
              }),
              "");
}

} // namespace
} // namespace tutti
