// The trace of a run: it is compared with its simulation and drawn, as `tutti report` does, and written again.
#include "formats/json.h"
#include "fuzz.h"
#include "report/comparison.h"
#include "report/terminal.h"

#include <array>
#include <cmath>

using namespace tutti;
using namespace tutti::formats;
using namespace tutti::report;

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        const RunTrace trace = parse_run_trace(fuzz::text_of(data, size), "trace.json");
        const Comparison comparison = compare(trace);
        TUTTI_CHECK(std::isfinite(comparison.time.difference()), "step {}", comparison.step);
        const std::array timelines = {comparison.measured, comparison.simulated};
        TUTTI_CHECK(!terminal_picture(timelines, {}).empty(), "step {}", comparison.step);
        const std::string text = to_chrome(trace);
        TUTTI_CHECK(parse_json(text, "again").is_object(), "{}", text);
    });
    return 0;
}
