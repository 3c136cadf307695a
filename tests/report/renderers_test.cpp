#include "report/chrome_trace.h"
#include "report/html.h"
#include "report/terminal.h"
#include "schedule/families.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace tutti {

using namespace report;
using namespace schedule;
namespace {

Timeline timeline_of(const std::string& family, int ranks, int micro_batches,
                     const StageCosts& share = {.forward = 1, .backward = 2, .weight_gradient = 0},
                     double communication = 0) {
    const ScheduleParameters p = resolve({.family = family, .ranks = ranks, .micro_batches = micro_batches});
    const Costs costs = uniform_costs(p, share, communication);
    const Schedule schedule = make_schedule(p, costs);
    return make_timeline(schedule, costs, evaluate(schedule, costs));
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
        lines.push_back(text.substr(begin, end - begin));
    return lines;
}

std::string without_colours(std::string text) {
    for (std::size_t begin = 0; (begin = text.find("\x1b[", begin)) != std::string::npos;)
        text.erase(begin, text.find('m', begin) + 1 - begin);
    return text;
}

TEST(Terminal, DrawsOneForwardOneBackwardAsWorkedOutByHand) {
    const Timeline timeline = timeline_of("1f1b", 2, 3);
    EXPECT_EQ(terminal_picture(std::span(&timeline, 1), {.columns = 64, .colours = false}),
              "1f1b: ranks 2, micro-batches 3, costs f 1 b 2\n"
              "time 12, bubble 25.0%, peak activations 2\n"
              "\n"
              "                                                            peak\n"
              "  rank 0  F0--F1--........B0------F2--B1------....B2------     2\n"
              "  rank 1  ....F0--B0------F1--B1------F2--B2------........     1\n"
              "          0       2       4       6       8       10      12\n"
              "\n"
              "  F forward   B backward   . waiting\n");
}

TEST(Terminal, ColoursChangeNothingOfTheLayoutAndHoldNumbers) {
    const Timeline timeline = timeline_of("1f1b", 2, 3);
    const TerminalStyle plain{.columns = 64, .colours = false}, coloured{.columns = 64, .colours = true};
    const auto letters = lines_of(terminal_picture(std::span(&timeline, 1), plain));
    const std::string picture = terminal_picture(std::span(&timeline, 1), coloured);
    const auto painted = lines_of(without_colours(picture));
    ASSERT_EQ(letters.size(), painted.size());
    for (std::size_t i = 0; i + 1 < letters.size(); ++i) EXPECT_EQ(letters[i].size(), painted[i].size());
    EXPECT_EQ(painted[4], "  rank 0  "
                          " 0   1  ........   0     2     1    ....   2    "
                          "     2");
    EXPECT_NE(picture.find("\x1b[48;5;"), std::string::npos);
}

TEST(Terminal, EveryRowFitsTheTerminal) {
    for (const char* family : {"gpipe", "interleaved", "chimera", "zb-v", "dualpipe"}) {
        for (const std::size_t columns : {40u, 80u, 100u, 237u}) {
            const Timeline timeline = timeline_of(family, 4, 16, {}, 0.07);
            for (const bool colours : {false, true}) {
                const auto lines =
                    lines_of(without_colours(terminal_picture(std::span(&timeline, 1), {columns, colours})));
                int rows = 0;
                for (const std::string& line : lines) {
                    if (!line.starts_with("  rank")) continue;
                    EXPECT_LE(line.size(), columns) << family << "\n" << line;
                    ++rows;
                }
                EXPECT_EQ(rows, 4) << family;
            }
        }
    }
}

TEST(Terminal, TwoSchedulesShareOneScale) {
    StageCosts share{.forward = 1, .backward = 2, .weight_gradient = 0, .recompute = 1};
    const std::vector<Timeline> both = {timeline_of("1f1b", 4, 8, share),
                                        timeline_of("shifted-critical-path", 4, 8, share)};
    const auto lines = lines_of(terminal_picture(both, {.columns = 120, .colours = false}));
    std::vector<std::string> last_ranks;
    for (const std::string& line : lines)
        if (line.starts_with("  rank 0")) last_ranks.push_back(line);
    ASSERT_EQ(last_ranks.size(), 2u);
    // 44 and 38 units of two characters each.
    EXPECT_EQ(last_ranks[0].find("  ", 10), 10u + 88);
    EXPECT_EQ(last_ranks[1].find("  ", 10), 10u + 76);
}

TEST(Page, HoldsItsDataAndNothingFromElsewhere) {
    Timeline timeline = timeline_of("zb-v", 4, 8, {});
    timeline.title = "</script><script>alert(1)</script>";
    const std::string page = html_page(std::span(&timeline, 1));
    EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
    for (const char* outside : {"http:", "https:", "src=", "url(", "@import", "fetch("})
        EXPECT_EQ(page.find(outside), std::string::npos) << outside;
    const std::string begin = "id=\"data\">";
    const std::size_t from = page.find(begin) + begin.size();
    const auto data = nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
    EXPECT_EQ(data["timelines"][0]["title"], timeline.title);
    EXPECT_EQ(data["timelines"][0]["rows"].size(), 4u);
    EXPECT_EQ(data["timelines"][0]["rows"][0]["boxes"].size(), 48u);
}

TEST(ChromeTrace, HasAProcessPerRankAndCounters) {
    const Timeline timeline = timeline_of("1f1b", 2, 3);
    const auto trace = nlohmann::json::parse(chrome_trace(std::span(&timeline, 1)));
    int named = 0, tasks = 0, backwards = 0;
    double most = 0, end = 0;
    for (const auto& event : trace["traceEvents"]) {
        if (event["ph"] == "M" && event["name"] == "process_name") {
            EXPECT_EQ(event["args"]["name"], "rank " + std::to_string(event["pid"].get<int>()));
            ++named;
        }
        if (event["ph"] == "X" && event["tid"] == 0) {
            ++tasks;
            end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
            if (event["pid"] == 0 && event["name"] == "BW1") {
                EXPECT_EQ(event["ts"], 7000.0);
                EXPECT_EQ(event["dur"], 2000.0);
                EXPECT_EQ(event["args"]["micro_batch"], 1);
                ++backwards;
            }
        }
        if (event["ph"] == "C" && event["pid"] == 0) most = std::max(most, event["args"]["activations"].get<double>());
    }
    EXPECT_EQ(named, 2);
    EXPECT_EQ(tasks, 12);
    EXPECT_EQ(backwards, 1);
    EXPECT_EQ(end, 12000.0);
    EXPECT_EQ(most, 2);
}

} // namespace
} // namespace tutti
