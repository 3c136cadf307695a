#include "cli/used_files.h"

#include "base/error.h"
#include "formats/json.h"

#include <algorithm>

namespace tutti::cli {
namespace {

bool are_one(const fs::path& a, const fs::path& b) {
    std::error_code ignored; // what cannot be looked at is told when it is opened
    if (fs::equivalent(a, b, ignored)) return fs::is_regular_file(a, ignored); // devices hold nothing
    return !fs::exists(a, ignored) && fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

bool is_of_model(const fs::path& path) {
    const std::string name = path.filename().string();
    return name == "config.json" || name.starts_with("tokenizer") || name.ends_with(".safetensors") ||
           name.ends_with(".safetensors.index.json");
}

} // namespace

bool is_free(const fs::path& path) {
    std::error_code ignored;
    return !fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) == 0;
}

bool holds_keys(const fs::path& path, std::initializer_list<std::string_view> keys) {
    try {
        const nlohmann::json json = formats::read_json(path);
        return json.is_object() && std::ranges::all_of(keys, [&](std::string_view key) { return json.contains(key); });
    } catch (const Error&) {
        return false;
    }
}

void UsedFiles::reads(const std::string& what, const fs::path& path) { used_.push_back({what, path}); }

void UsedFiles::reads(const CLI::Option* option) {
    if (const auto path = text_of(option)) reads(option->get_name(), *path);
}

void UsedFiles::reads_model(const std::string& name) {
    std::error_code ignored;
    if (!fs::is_directory(name, ignored)) return;
    for (const fs::directory_entry& entry : fs::directory_iterator(name, ignored))
        if (is_of_model(entry.path())) reads("the model " + name, entry.path());
}

void UsedFiles::writes(const CLI::Option* option) {
    const auto path = text_of(option);
    if (!path) return;
    check_writable(*path);
    const std::string what = option->get_name();
    for (const Used& other : used_) {
        if (!are_one(*path, other.path)) continue;
        if (other.written)
            fail("{} and {} are both {}; each needs a file of its own", other.what, what, formats::in_quotes(*path));
        fail("{} is {}, which is read as {}, and would be lost; give another file", what, formats::in_quotes(*path),
             other.what);
    }
    used_.push_back({what, *path, true});
}

void UsedFiles::writes_plan(const CLI::Option* option) {
    writes(option);
    if (const auto path = text_of(option); path && !is_free(*path) && !holds_keys(*path, {"tutti_plan"}))
        fail("{} is {}, which is there and is no plan: it would be lost; give another file", option->get_name(),
             formats::in_quotes(*path));
}

} // namespace tutti::cli
