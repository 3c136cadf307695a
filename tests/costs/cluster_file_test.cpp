#include "costs/cluster_file.h"

#include "base/error.h"
#include "costs/quantity.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace costs;
namespace {

const std::string node = "[[nodes]]\ncount = 4\ndevices = 8\ndevice = \"a100-80\"\nlink = \"nvlink3\"\n";
const std::string fabric = "[[levels]]\nname = \"fabric\"\nlink = \"infiniband-hdr\"\n";

std::string all_devices() {
    std::string names;
    for (const DevicePreset& preset : device_presets()) names += (names.empty() ? "" : ", ") + preset.name;
    return names;
}

std::string sentence_of(const std::string& text) {
    try {
        parse_cluster(text, "c.toml");
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

TEST(ClusterFile, ExamplesHoldWhatTheirNamesSay) {
    const fs::path folder = fs::path(TUTTI_EXAMPLES) / "clusters";
    EXPECT_EQ(read_cluster(folder / "1024-a100.toml").device_count(), 1024);
    EXPECT_EQ(read_cluster(folder / "512-h100.toml").device_count(), 512);
    EXPECT_EQ(read_cluster(folder / "64-rtx3090.toml").device_count(), 64);
    const Cluster large = read_cluster(folder / "16384-h100.toml");
    EXPECT_EQ(large.device_count(), 16384);
    EXPECT_EQ(large.levels.size(), 3u);
    EXPECT_EQ(large.levels[2].unit_devices, 2048);
    EXPECT_DOUBLE_EQ(large.levels[2].bytes_per_device(), large.levels[1].bytes_per_device() / 4);
    EXPECT_EQ(large.nodes_per_unit(1), 256);
    const Cluster mixed = read_cluster(folder / "mixed.toml");
    EXPECT_EQ(describe(mixed), "2 nodes of 8 a100-40 (40.00 GiB) and 4 nodes of 4 rtx3090 (24.00 GiB): 32 devices");
    EXPECT_FALSE(mixed.is_uniform());
    EXPECT_DOUBLE_EQ(mixed.levels[0].speed.bytes, 31.5e9 * 0.8); // the slower node's
    EXPECT_DOUBLE_EQ(mixed.levels_of(0)[0].speed.bytes, 300e9 * 0.8);
    EXPECT_EQ(mixed.levels[1].unit_devices, 8);
}

TEST(ClusterFile, EveryExampleReadsBackTheSame) {
    for (const auto& file : fs::directory_iterator(fs::path(TUTTI_EXAMPLES) / "clusters")) {
        const Cluster cluster = read_cluster(file.path());
        EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster) << file.path() << to_toml(cluster);
    }
}

TEST(ClusterFile, OwnDevicesTakeTheRestFromAPreset) {
    const Cluster cluster = parse_cluster(
        "[[devices]]\nname = \"mine\"\nlike = \"a100-40\"\nmemory = \"48 GB\"\nefficiency = { products = 0.5 }\n"
        "[[nodes]]\ndevices = 1\ndevice = \"mine\"\nhost_bandwidth = \"80 Gb/s\"\n",
        "c.toml");
    const DeviceKind& device = cluster.kinds[0].device;
    EXPECT_EQ(device.memory.count, 48'000'000'000);
    EXPECT_EQ(device.flops16, 312e12);
    EXPECT_EQ(device.efficiency.products, 0.5);
    EXPECT_EQ(device.efficiency.memory, Efficiency{}.memory);
    EXPECT_DOUBLE_EQ(cluster.kinds[0].host_copy.bytes, 10e9);
    EXPECT_EQ(cluster.levels.size(), 1u);
    EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
}

TEST(ClusterFile, PresetsKnowWhatConnectsTheirBoards) {
    auto link_of = [](const std::string& device, const std::string& more = "") {
        const Cluster cluster = parse_cluster("[[nodes]]\ndevices = 2\ndevice = \"" + device + "\"\n" + more, "c.toml");
        return cluster.kinds[0].link.bytes;
    };
    EXPECT_DOUBLE_EQ(link_of("b200"), 900e9 * link_efficiency);
    EXPECT_DOUBLE_EQ(link_of("l4"), 31.5e9 * link_efficiency);
    EXPECT_DOUBLE_EQ(link_of("h100", "link_efficiency = 0.5\n"), 450e9 * 0.5);
    EXPECT_DOUBLE_EQ(link_of("h100", "link = \"pcie5\"\n"), 63e9 * link_efficiency);
}

TEST(ClusterFile, NodesThatAreAlikeAreOneKindWhereverTheyStand) {
    const std::string other = "[[nodes]]\ndevices = 3\ndevice = \"h200\"\nlatency = \"1 us\"\nbandwidth = 1e11\n";
    const Cluster cluster = parse_cluster(node + other + node + fabric, "c.toml");
    EXPECT_EQ(cluster.kinds.size(), 2u);
    EXPECT_EQ(cluster.nodes, (std::vector<int>{0, 0, 0, 0, 1, 0, 0, 0, 0}));
    EXPECT_EQ(cluster.device_count(), 67);
    const auto devices = cluster.devices();
    EXPECT_EQ(devices[34], (ClusterDevice{4, 2, 1}));
    EXPECT_EQ(devices[35], (ClusterDevice{5, 0, 0}));
}

TEST(ClusterFile, MistakesAreSentences) {
    const std::pair<std::string, std::string> cases[] = {
        {"", "c.toml: the cluster has no devices; [[nodes]] says which there are"},
        {"[[nodes]]\ndevices = 0\ndevice = \"h100\"\n",
         "c.toml, line 2: devices is 0, and should be an integer from 1 to 65536"},
        {"[[nodes]]\ncount = 0\ndevices = 1\ndevice = \"h100\"\n",
         "c.toml, line 2: count is 0, and should be an integer from 1 to 65536"},
        {"[[nodes]]\ndevices = 1\ndevice = \"a100-90\"\n",
         "c.toml, line 3: unknown device \"a100-90\"; did you mean a100-40?"},
        {"[[nodes]]\ndevices = 1\ndevice = \"tpu\"\n", "c.toml, line 3: unknown device \"tpu\"; known are " +
                                                           all_devices() +
                                                           "; a [[devices]] in this file can define others"},
        {"[[nodes]]\ndevices = 2\ndevice = \"h100\"\nlink = \"nvlnk4\"\n",
         "c.toml, line 4: unknown link \"nvlnk4\"; did you mean nvlink4?"},
        {"[[devices]]\nname = \"x\"\nlike = \"h100\"\n[[nodes]]\ndevices = 2\ndevice = \"x\"\n",
         "c.toml, line 4: nodes of several devices need to say what connects them: link = \"nvlink3\""},
        {"[[nodes]]\ndevices = 2\ndevice = \"h100\"\nlatency = \"1 us\"\n",
         "c.toml, line 1: latency is told without bandwidth; a link needs both, or the name of a preset"},
        {node + "[[levels]]\nlatency = \"1 us\"\nbandwidth = \"-5 GB/s\"\n",
         "c.toml, line 8: bandwidth is \"-5 GB/s\", and should be from 1 B/s to 1e+18 B/s"},
        {node + "[[levels]]\nlatency = \"1 us\"\nbandwidth = -5\n",
         "c.toml, line 8: bandwidth is -5, and should be from 1 B/s to 1e+18 B/s"},
        {node + "[[levels]]\nlatency = -1.0\nbandwidth = 5\n",
         "c.toml, line 7: latency is -1.0, and should be from 0 s to 1000000000 s"},
        {node + "[[levels]]\nlatency = \"1 us\"\nbandwidth = \"1e-300 GB/s\"\n",
         "c.toml, line 8: bandwidth is \"1e-300 GB/s\", and should be from 1 B/s to 1e+18 B/s"},
        {"name = \"a\\u001b[2J\"\n" + node + fabric,
         "c.toml, line 1: name is \"a\\u001b[2J\", and should be a text without control characters"},
        {node + "[[levels]]\nlatency = \"1 us\"\nbandwidth = \"5 GB\"\n",
         "c.toml, line 8: bandwidth is \"5 GB\", and should be as in \"25 GB/s\" or \"200 Gb/s\""},
        {node + "[[levels]]\nlatency = \"1 us\"\nbandwidth = nan\n",
         "c.toml, line 8: bandwidth is nan, and should be as in \"25 GB/s\" or \"200 Gb/s\""},
        {node, "c.toml: there are 4 nodes, and no [[levels]] says what connects them"},
        {node + fabric + "size = 3\n",
         "c.toml: level fabric joins 3 nodes each, which does not divide the 4 there are; 2 or 4 would"},
        {node + fabric + "size = 2\n",
         "c.toml: the levels leave 2 units apart from each other: a last level should join 2, or leave out its size"},
        {node + fabric + fabric, "c.toml, line 6: level fabric needs a size; only the last may leave it out"},
        {node + "[[levels]]\nname = \"x\"\n", "c.toml, line 6: level x needs a link: link = \"infiniband-hdr\""},
        {node + fabric + "links_per_node = 2\n",
         "c.toml, line 9: unknown key \"links_per_node\"; did you mean links_per_unit?"},
        {"nods = 3\n" + node + fabric, "c.toml, line 1: unknown key \"nods\"; did you mean nodes?"},
        {"nodes = 3\n", "c.toml, line 1: nodes is 3, and should be tables: [[nodes]]"},
        {"[[devices]]\nname = \"x\"\nmemory = \"1 GiB\"\n",
         "c.toml, line 1: device \"x\" needs flops16, or `like` and a preset"},
        {"[[devices]]\nname = \"x\"\nlike = \"h100\"\nefficiency = { products = 1.5 }\n",
         "c.toml, line 4: products is 1.5, and should be a number from 0.001 to 1"},
        {"[[devices]]\nname = \"x\"\nlike = \"h100\"\n[[devices]]\nname = \"x\"\nlike = \"h200\"\n",
         "c.toml, line 4: device \"x\" is described twice"},
    };
    for (const auto& [text, expected] : cases) EXPECT_EQ(sentence_of(text), expected) << text;
    EXPECT_TRUE(sentence_of("[[nodes]\n").starts_with("c.toml, line 1: "));
    EXPECT_TRUE(sentence_of("[[nodes]]\ncount = 65536\ndevices = 65536\ndevice = \"h100\"\nlink = \"pcie3\"\n" + fabric)
                    .ends_with("and may have at most 65536"));
}

TEST(Quantity, UnitsMeanWhatTheySay) {
    EXPECT_EQ(parse_quantity("80 GiB", Measure::bytes), 80.0 * (1ll << 30));
    EXPECT_EQ(parse_quantity("1.5kB", Measure::bytes), 1500.0);
    EXPECT_EQ(parse_quantity("200 Gb/s", Measure::rate), 25e9);
    EXPECT_EQ(parse_quantity("25 GB/s", Measure::rate), 25e9);
    EXPECT_EQ(parse_quantity("312 TFLOP/s", Measure::flops), 312e12);
    EXPECT_DOUBLE_EQ(parse_quantity("5 us", Measure::seconds).value(), 5e-6);
    for (const char* bad : {"", " ", "GB", "5", "5 XB", "5 GB/h", "5 GB x", "inf GB", "1e999 GB", "5 GB"})
        EXPECT_FALSE(parse_quantity(bad, Measure::rate)) << bad;
}

} // namespace
} // namespace tutti
