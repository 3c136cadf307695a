#include "terminal/shown.h"

#include "terminal/terminal.h"

namespace tutti::terminal {

std::string safe_to_show(std::string_view text) {
    SafeText safe;
    std::string shown = safe.add(text);
    return shown += safe.finish();
}

std::string name_to_show(std::string_view name) {
    std::string shown;
    for (const char c : safe_to_show(name)) {
        if (c == '\n')
            shown += "\\x0a";
        else if (c == '\t')
            shown += "\\x09";
        else
            shown += c;
    }
    return shown;
}

std::string json_to_show(const nlohmann::ordered_json& json, int indent) {
    return json.dump(indent, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace) + '\n';
}

} // namespace tutti::terminal
