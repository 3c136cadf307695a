#include "plan/settings_table.h"

#include "base/checked.h"
#include "base/error.h"
#include "formats/json.h"

#include <algorithm>
#include <map>

namespace tutti {
namespace {

using S = PlanSettings;

// A field in a plan's file, by its type.

nlohmann::ordered_json json_of(const std::string& field) { return field; }
nlohmann::ordered_json json_of(std::int64_t field) { return field; }
nlohmann::ordered_json json_of(bool field) { return field; }
nlohmann::ordered_json json_of(Zero field) { return field.stage(); }
nlohmann::ordered_json json_of(Bytes field) { return field.count; }
template <class T>
requires std::is_enum_v<T> nlohmann::ordered_json json_of(T field) { return name_of(field); }

using Json = formats::JsonObject;

void read(const Json& json, std::string_view name, std::string& field) { field = json.string(name); }
void read(const Json& json, std::string_view name, std::int64_t& field) { field = json.integer(name); }
void read(const Json& json, std::string_view name, bool& field) { field = json.boolean(name); }
void read(const Json& json, std::string_view name, Zero& field) { field = clamp_to_int(json.integer(name)); }
void read(const Json& json, std::string_view name, Bytes& field) { field = {json.integer(name)}; }

void read(const Json& json, std::string_view name, DType& field) {
    const std::string word = json.string(name);
    const auto dtype = parse_dtype(word);
    if (!dtype || !is_floating(*dtype))
        fail("{}: {} is {}, which is no floating type", json.where(), name, formats::in_quotes(word));
    field = *dtype;
}

// One of few words.
template <class T>
void read_word(const Json& json, std::string_view name, T& field, std::optional<T> parse(std::string_view),
               const char* words) {
    const std::string word = json.string(name);
    const std::optional<T> parsed = parse(word);
    if (!parsed) fail("{}: {} is {}; it has to be one of {}", json.where(), name, formats::in_quotes(word), words);
    field = *parsed;
}
void read(const Json& json, std::string_view name, offload::OptimizerPlacement& field) {
    read_word(json, name, field, offload::parse_optimizer_placement, "auto, device, host");
}
void read(const Json& json, std::string_view name, offload::Eviction& field) {
    read_word(json, name, field, offload::parse_eviction, "farthest, lru, fifo");
}
void read(const Json& json, std::string_view name, offload::UpdateTime& field) {
    read_word(json, name, field, offload::parse_update_time, "auto, backward, end, next");
}

// What flags and TOML take.

template <class Path>
Setting<S> word_setting(Path path, const char* expected, auto parse) {
    return text_setting<S>(path, expected, parse, [](auto one) { return name_of(one); });
}

template <class Path>
Setting<S> wide_type(Path path) {
    return word_setting(path, "float32, bf16, or (with --device reference) float64",
                        [](std::string_view name) -> std::optional<DType> {
                            const auto type = parse_dtype(name);
                            return type && (is_floating(*type) && *type != DType::float16) ? type : std::nullopt;
                        });
}

template <class Path>
Setting<S> narrow_type(Path path) {
    return word_setting(path, "float32 or bf16", [](std::string_view name) -> std::optional<DType> {
        const auto type = parse_dtype(name);
        return type == DType::float32 || type == DType::bfloat16 ? type : std::nullopt;
    });
}

// Rows are added in the order of a plan's file.
class Table {
  public:
    std::vector<PlanSetting> rows{};

    template <class Path>
    void add(PlanSetting row, Path path, Setting<S> given) {
        if (row.name.empty()) row.name = row.key;
        row.given = std::move(given);
        row.to_json = [path](const S& settings) { return json_of(path(settings)); };
        row.read = [path](S& settings, const Json& json, std::string_view name) { read(json, name, path(settings)); };
        rows.push_back(std::move(row));
    }
    template <class Path>
    void add_plain(PlanSetting row, Path path) {
        add(std::move(row), path, plain_setting<S>(path));
    }
};

void add_batches_and_types(Table& table) {
    table.add_plain({.key = "device"}, path(&S::device));
    table.add_plain({.key = "sequence", .section = "workload"}, path(&S::workload, &Workload::sequence));
    table.add_plain({.key = "global_batch", .section = "workload"}, path(&S::workload, &Workload::global_batch));
    table.add_plain({.key = "micro_batch", .section = "workload"}, path(&S::workload, &Workload::micro_batch));
    const auto compute = path(&S::precision, &Precision::compute);
    table.add({.key = "dtype", .section = "precision", .name = "compute"}, compute, wide_type(compute));
    auto add_narrow = [&](std::string_view key, auto type) {
        table.add({.key = key, .section = "precision", .first_name = "states"}, type, narrow_type(type));
    };
    add_narrow("gradients", path(&S::precision, &Precision::gradients));
    add_narrow("master", path(&S::precision, &Precision::master));
    add_narrow("moments", path(&S::precision, &Precision::moments));
    table.add_plain({.key = "chunk_elements"}, path(&S::chunk_elements));
    table.add_plain({.key = "split_backward"}, path(&S::split_backward));
}

void add_layout(Table& table) {
    auto add_switch = [&](PlanSetting row, auto field) {
        row.since = 4;
        table.add(std::move(row), field, switch_setting<S>(field));
    };
    auto add_optional = [&](std::string_view key, auto field, Setting<S> given) {
        table.add({.key = key, .since = 4, .optional = true}, field, std::move(given));
    };
    table.add_plain({.key = "zero", .since = 4}, path(&S::zero));
    for (auto [key, size] : {std::pair("device_memory", &S::device_memory), std::pair("host_memory", &S::host_memory)})
        add_optional(key, path(size), size_setting<S>(path(size)));
    const auto placement = path(&S::optimizer_placement);
    add_optional("optimizer_placement", placement,
                 word_setting(placement, "auto, device or host", offload::parse_optimizer_placement));
    const auto eviction = path(&S::eviction);
    add_optional("eviction", eviction, word_setting(eviction, "farthest, lru or fifo", offload::parse_eviction));
    add_switch({.key = "prefetch", .optional = true}, path(&S::prefetch));
    const auto updates = path(&S::updates);
    add_optional("updates", updates, word_setting(updates, "auto, backward, end or next", offload::parse_update_time));
    add_switch({.key = "over_weights", .name = "gradients_over_weights", .optional = true},
               path(&S::gradients_over_weights));
    add_switch({.key = "sequence_parallel"}, path(&S::sequence_parallel));
    add_switch({.key = "sub_pipeline"}, path(&S::sub_pipeline));
}

} // namespace

std::span<const PlanSetting> plan_settings() {
    static const std::vector<PlanSetting> rows = [] {
        Table table;
        add_batches_and_types(table);
        add_layout(table);
        return std::move(table.rows);
    }();
    return rows;
}

const PlanSetting& plan_setting(std::string_view key) {
    const auto found = std::ranges::find(plan_settings(), key, &PlanSetting::key);
    TUTTI_CHECK(found != plan_settings().end(), "there is no setting {} of plans", key);
    return *found;
}

void add_settings(nlohmann::ordered_json& json, const PlanSettings& settings, std::int64_t since) {
    for (const PlanSetting& setting : plan_settings()) {
        nlohmann::ordered_json value = setting.to_json(settings);
        if (setting.since != since || (setting.optional && value == setting.to_json({}))) continue;
        (setting.section.empty() ? json : json[setting.section])[setting.name] = std::move(value);
    }
}

void read_settings(PlanSettings& settings, const formats::JsonObject& json, std::int64_t version) {
    std::map<std::string_view, Json> sections;
    for (const PlanSetting& setting : plan_settings()) {
        if (setting.since > version) continue;
        const bool renamed = version == 1 && !setting.first_name.empty();
        const std::string_view name = renamed ? setting.first_name : setting.name;
        if (!setting.section.empty() && !sections.contains(setting.section))
            sections.emplace(setting.section, json.object(setting.section));
        const Json& object = setting.section.empty() ? json : sections.at(setting.section);
        if (!setting.optional || object.find(name)) setting.read(settings, object, name);
    }
    for (const auto& [name, section] : sections) section.expect_no_others();
}

} // namespace tutti
