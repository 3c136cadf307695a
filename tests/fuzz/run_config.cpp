// The config file of a run: what is read is written, and reads back the same; then it is checked as a run does.
#include "fuzz.h"
#include "run/layout.h"
#include "run/run_options.h"

#include <cmath>

using namespace tutti;
using namespace tutti::run;

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        RunConfig config, again;
        run::parse_run_config(config, fuzz::text_of(data, size), "config.toml");
        const std::string text = run::to_toml(config);
        const bool read = fuzz::accepts([&] { run::parse_run_config(again, text, "again"); });
        TUTTI_CHECK(read && again == config, "{}", text);
        TUTTI_CHECK(!run::to_lines(config, 80).empty(), "{}", text);
        check(config);
        for (const std::int64_t step : {std::int64_t{0}, config.steps / 2, config.steps - 1})
            TUTTI_CHECK(std::isfinite(learning_rate(config, step)), "{}", text);
        const RunConfig whole = with_layout(config, 0);
        TUTTI_CHECK(whole.mesh && whole.mesh->ranks() == whole.ranks, "{}", text);
    });
    return 0;
}
