#include "costs/cluster_file.h"

#include "base/error.h"
#include "base/nearest.h"
#include "costs/toml_reader.h"
#include "formats/json.h"
#include "formats/text_file.h"
#include "formats/toml.h"

#include <algorithm>
#include <cmath>

namespace tutti::costs {
namespace {

template <class Preset>
std::vector<std::string> names_of(std::span<const Preset> presets) {
    std::vector<std::string> names;
    for (const Preset& preset : presets) names.push_back(preset.name);
    return names;
}

std::string unknown(std::string_view what, const std::string& name, const std::vector<std::string>& known,
                    std::string_view others = "") {
    const std::string meant = suggestion(name, known);
    return fmt::format("unknown {} {}{}", what, formats::in_quotes(name),
                       meant.empty() ? fmt::format("; known are {}{}", fmt::join(known, ", "), others) : meant);
}

Bytes whole_bytes(double count) { return {static_cast<std::int64_t>(std::llround(std::min(count, 9e18)))}; }

// `link = "nvlink3"`, or latency and bandwidth; and which share of the bandwidth messages reach. Where neither is
// there, the preset `otherwise`, or nothing.
std::optional<LinkSpeed> read_link(TomlReader& reader, const std::string& key, const std::string& otherwise = "") {
    auto name = reader.find_text(key);
    const auto latency = reader.find_quantity("latency", Measure::seconds, true);
    const auto bandwidth = reader.find_quantity("bandwidth", Measure::rate);
    const double share = reader.find_share("link_efficiency").value_or(link_efficiency);
    if (!name && !latency && !bandwidth && !otherwise.empty()) name = otherwise;
    LinkSpeed speed;
    if (name) {
        const LinkPreset* preset = find_link_preset(*name);
        if (!preset) reader.fail_at(reader.at(key), unknown("link", *name, names_of(link_presets())));
        speed = preset->speed;
    } else if (!latency && !bandwidth) {
        return std::nullopt;
    } else if (!latency || !bandwidth) {
        reader.fail_at(nullptr, fmt::format("{} is told without {}; a link needs both, or the name of a preset",
                                            latency ? "latency" : "bandwidth", latency ? "bandwidth" : "latency"));
    }
    return LinkSpeed{.latency = latency.value_or(speed.latency), .bytes = bandwidth.value_or(speed.bytes) * share};
}

Efficiency read_efficiency(const toml::table& table, const std::string& where, Efficiency share) {
    TomlReader reader(table, where);
    share.products = reader.find_share("products").value_or(share.products);
    share.head = reader.find_share("head").value_or(share.head);
    share.attention = reader.find_share("attention").value_or(share.attention);
    share.attention_gradient = reader.find_share("attention_gradient").value_or(share.attention_gradient);
    share.memory = reader.find_share("memory").value_or(share.memory);
    share.optimizer = reader.find_share("optimizer").value_or(share.optimizer);
    reader.finish();
    return share;
}

DeviceKind read_device(const toml::table& table, const std::string& where) {
    TomlReader reader(table, where);
    DeviceKind device;
    const auto name = reader.find_text("name");
    if (!name) reader.fail_at(nullptr, "a device needs a name");
    const auto like = reader.find_text("like");
    if (like) {
        const DeviceKind* preset = find_device_preset(*like);
        if (!preset) reader.fail_at(reader.at("like"), unknown("device", *like, names_of(device_presets())));
        device = *preset;
    }
    device.name = *name;
    auto take = [&](const char* key, Measure measure, double& into) {
        if (const auto value = reader.find_quantity(key, measure))
            into = *value;
        else if (!like)
            reader.fail_at(nullptr,
                           fmt::format("device {} needs {}, or `like` and a preset", formats::in_quotes(*name), key));
    };
    auto memory = static_cast<double>(device.memory.count);
    take("memory", Measure::bytes, memory);
    device.memory = whole_bytes(memory);
    take("flops16", Measure::flops, device.flops16);
    take("flops32", Measure::flops, device.flops32);
    take("bandwidth", Measure::rate, device.bandwidth);
    device.launch = reader.find_quantity("launch", Measure::seconds, true).value_or(device.launch);
    if (const toml::table* shares = reader.find_table("efficiency"))
        device.efficiency = read_efficiency(*shares, where, device.efficiency);
    reader.finish();
    return device;
}

struct NodeEntry {
    NodeKind kind;
    std::int64_t count = 1;
};

NodeEntry read_nodes(const toml::table& table, const std::string& where, const std::vector<DeviceKind>& own) {
    TomlReader reader(table, where);
    NodeEntry entry;
    entry.count = reader.find_integer("count", 1, most_devices).value_or(1);
    const auto devices = reader.find_integer("devices", 1, most_devices);
    if (!devices) reader.fail_at(nullptr, "nodes need to say how many devices each has: devices = 8");
    entry.kind.devices = static_cast<int>(*devices);
    const auto name = reader.find_text("device");
    if (!name) reader.fail_at(nullptr, "nodes need to say which device they have: device = \"a100-80\"");
    const auto mine = std::ranges::find(own, *name, &DeviceKind::name);
    const DeviceKind* device = mine != own.end() ? &*mine : find_device_preset(*name);
    if (!device) {
        auto known = names_of(device_presets());
        for (const DeviceKind& one : own) known.push_back(one.name);
        reader.fail_at(reader.at("device"),
                       unknown("device", *name, known, "; a [[devices]] in this file can define others"));
    }
    entry.kind.device = *device;
    const DevicePreset* preset_of_device = mine == own.end() ? find_device_preset(*name) : nullptr;
    const auto link = read_link(reader, "link", preset_of_device && *devices > 1 ? preset_of_device->link : "");
    if (!link && *devices > 1)
        reader.fail_at(nullptr, "nodes of several devices need to say what connects them: link = \"nvlink3\"");
    if (link) entry.kind.link = *link;
    entry.kind.host_memory = whole_bytes(reader.find_quantity("host_memory", Measure::bytes, true).value_or(0));
    const auto host = reader.find_text("host_link").value_or("pcie4");
    const LinkPreset* preset = find_link_preset(host);
    if (!preset) reader.fail_at(reader.at("host_link"), unknown("link", host, names_of(link_presets())));
    entry.kind.host_copy = {preset->speed.latency, preset->speed.bytes * link_efficiency};
    if (const auto rate = reader.find_quantity("host_bandwidth", Measure::rate)) entry.kind.host_copy.bytes = *rate;
    if (const auto latency = reader.find_quantity("host_latency", Measure::seconds, true))
        entry.kind.host_copy.latency = *latency;
    reader.finish();
    return entry;
}

LinkLevel read_level(const toml::table& table, const std::string& where, std::size_t number, int units, bool last) {
    TomlReader reader(table, where);
    LinkLevel level;
    level.name = reader.find_text("name").value_or(fmt::format("level {}", number));
    const auto size = reader.find_integer("size", 1, most_devices);
    if (!size && !last)
        reader.fail_at(nullptr, fmt::format("level {} needs a size; only the last may leave it out", level.name));
    level.size = size ? static_cast<int>(*size) : units;
    const auto link = read_link(reader, "link");
    if (!link) reader.fail_at(nullptr, fmt::format("level {} needs a link: link = \"infiniband-hdr\"", level.name));
    level.speed = *link;
    if (const auto links = reader.find_integer("links_per_unit", 1, most_devices))
        level.unit_bytes = static_cast<double>(*links) * level.speed.bytes;
    reader.finish();
    return level;
}

// Devices of the largest unit of so many nodes.
int most_devices_of(const Cluster& cluster, int nodes) {
    int most = 0;
    for (std::size_t first = 0; first < cluster.nodes.size(); first += static_cast<std::size_t>(nodes)) {
        int devices = 0;
        for (std::size_t i = first; i < std::min(cluster.nodes.size(), first + static_cast<std::size_t>(nodes)); ++i)
            devices += cluster.kinds[static_cast<std::size_t>(cluster.nodes[i])].devices;
        most = std::max(most, devices);
    }
    return most;
}

void add_nodes(Cluster& cluster, const NodeEntry& entry) {
    auto found = std::ranges::find(cluster.kinds, entry.kind);
    if (found == cluster.kinds.end()) found = cluster.kinds.insert(found, entry.kind);
    cluster.nodes.insert(cluster.nodes.end(), static_cast<std::size_t>(entry.count),
                         static_cast<int>(found - cluster.kinds.begin()));
}

LinkLevel node_level(const Cluster& cluster) {
    LinkLevel level{.name = "node", .size = 1, .speed = cluster.kinds[0].link};
    for (const NodeKind& kind : cluster.kinds) {
        level.size = std::max(level.size, kind.devices);
        level.speed.latency = std::max(level.speed.latency, kind.link.latency);
        level.speed.bytes = std::min(level.speed.bytes, kind.link.bytes);
    }
    return level;
}

} // namespace

Cluster parse_cluster(std::string_view text, const std::string& where) {
    const toml::table table = formats::parse_toml(text, where);
    TomlReader reader(table, where);
    Cluster cluster;
    cluster.name = reader.find_text("name").value_or("");
    std::vector<DeviceKind> own;
    for (const toml::table* one : reader.tables("devices")) {
        own.push_back(read_device(*one, where));
        if (std::ranges::count(own, own.back().name, &DeviceKind::name) > 1)
            reader.fail_at(one, fmt::format("device {} is described twice", formats::in_quotes(own.back().name)));
    }
    for (const toml::table* one : reader.tables("nodes")) {
        const NodeEntry entry = read_nodes(*one, where, own);
        if (entry.count + static_cast<std::int64_t>(cluster.nodes.size()) > most_devices)
            reader.fail_at(one, fmt::format("there are more than {} nodes", most_devices));
        add_nodes(cluster, entry);
    }
    const auto levels = reader.tables("levels");
    reader.finish();
    if (cluster.nodes.empty()) fail("{}: the cluster has no devices; [[nodes]] says which there are", where);
    cluster.levels.push_back(node_level(cluster));
    int units = static_cast<int>(cluster.nodes.size()), beneath = 1;
    if (units > 1 && levels.empty())
        fail("{}: there are {} nodes, and no [[levels]] says what connects them", where, units);
    for (std::size_t i = 0; i < levels.size(); ++i) {
        LinkLevel level = read_level(*levels[i], where, i + 1, units, i + 1 == levels.size());
        level.unit_devices = most_devices_of(cluster, beneath);
        beneath = std::min(beneath * level.size, most_devices);
        units = std::max(1, units / level.size);
        cluster.levels.push_back(std::move(level));
    }
    try {
        check(cluster);
    } catch (const Error& error) {
        fail("{}: {}", where, error.what());
    }
    return cluster;
}

Cluster read_cluster(const fs::path& path) {
    return parse_cluster(formats::read_text_file(path, "a cluster file", 1 << 20), path.string());
}

} // namespace tutti::costs
