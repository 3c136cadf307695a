#include "base/error.h"
#include "costs/cluster_file.h"
#include "formats/json.h"

#include <algorithm>
#include <cmath>

namespace tutti::costs {
namespace {

std::string text_of(const std::string& text) {
    return formats::json_string(text);
} // of printable texts TOML's is the same

// With a point or an exponent, as TOML wants it of a float; the shortest that reads back the same.
std::string number(double value) {
    const std::string text = fmt::format("{}", value);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string link_lines(const LinkSpeed& link) {
    return fmt::format("latency = {}\nbandwidth = {}\nlink_efficiency = 1.0\n", number(link.latency),
                       number(link.bytes));
}

std::string device_lines(const DeviceKind& device) {
    const Efficiency& share = device.efficiency;
    return fmt::format(
        "\n[[devices]]\nname = {}\nmemory = {}\nflops16 = {}\nflops32 = {}\nbandwidth = {}\nlaunch = {}\n"
        "efficiency = {{ products = {}, head = {}, attention = {}, attention_gradient = {}, memory = {}, "
        "optimizer = {} }}\n",
        text_of(device.name), device.memory.count, number(device.flops16), number(device.flops32),
        number(device.bandwidth), number(device.launch), number(share.products), number(share.head),
        number(share.attention), number(share.attention_gradient), number(share.memory), number(share.optimizer));
}

std::string node_lines(const NodeKind& kind, std::size_t count) {
    return fmt::format("\n[[nodes]]\ncount = {}\ndevices = {}\ndevice = {}\n{}host_memory = {}\nhost_latency = {}\n"
                       "host_bandwidth = {}\n",
                       count, kind.devices, text_of(kind.device.name), link_lines(kind.link), kind.host_memory.count,
                       number(kind.host_copy.latency), number(kind.host_copy.bytes));
}

} // namespace

std::string to_toml(const Cluster& cluster) {
    std::string text;
    if (!cluster.name.empty()) text += fmt::format("name = {}\n", text_of(cluster.name));
    std::vector<std::string> written;
    for (const NodeKind& kind : cluster.kinds) {
        const DeviceKind* preset = find_device_preset(kind.device.name);
        if ((preset && *preset == kind.device) || std::ranges::count(written, kind.device.name) > 0) continue;
        text += device_lines(kind.device);
        written.push_back(kind.device.name);
    }
    for (std::size_t first = 0; first < cluster.nodes.size();) {
        std::size_t end = first;
        while (end < cluster.nodes.size() && cluster.nodes[end] == cluster.nodes[first]) ++end;
        text += node_lines(cluster.kinds[static_cast<std::size_t>(cluster.nodes[first])], end - first);
        first = end;
    }
    for (std::size_t i = 1; i < cluster.levels.size(); ++i) {
        const LinkLevel& level = cluster.levels[i];
        text += fmt::format("\n[[levels]]\nname = {}\nsize = {}\n{}", text_of(level.name), level.size,
                            link_lines(level.speed));
        if (std::isfinite(level.unit_bytes))
            text += fmt::format("links_per_unit = {}\n", std::llround(level.unit_bytes / level.speed.bytes));
    }
    return text;
}

} // namespace tutti::costs
