// What the table says of devices is what they do once they are open. CUDA's own entry is tried where there is a GPU
// (tests/operators), and here by what stands in for one.
#include "devices/devices.h"

#include "support/temporary_folder.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace devices;
namespace {

constexpr Bytes memory{std::int64_t{80} << 30};

TEST(Devices, AreOpenedByTheirNames) {
    for (const char* name : {"cpu", "reference"}) {
        const auto device = open_device(name, 1);
        EXPECT_EQ(device->name(), name);
        EXPECT_EQ(device->memory().has_value(), has_own_memory(name)) << name;
    }
    EXPECT_EQ(open_host_device(1)->name(), "cpu");
}

TEST(Devices, OnlyGpusStandInForOnesThatAreNotHere) {
    for (const DeviceEntry& entry : all_devices()) {
        EXPECT_EQ(entry.open_absent != nullptr, entry.name == "cuda") << entry.name;
        if (!entry.open_absent) continue;
        const auto device = entry.open_absent("h100", memory);
        EXPECT_EQ(device->name(), entry.name);
        ASSERT_EQ(device->memory().has_value(), entry.has_own_memory);
        EXPECT_EQ(device->memory()->total, memory);
    }
}

// The CPU's memory is the host's; of a device in a profile that another version wrote, nobody knows.
TEST(Devices, GpusHaveMemoryOfTheirOwn) {
    EXPECT_FALSE(has_own_memory("cpu"));
    EXPECT_FALSE(has_own_memory("reference"));
    EXPECT_TRUE(has_own_memory("cuda"));
    EXPECT_TRUE(has_own_memory("an accelerator of another version"));
}

// A search would time naive kernels for hours.
TEST(Devices, NothingIsPlannedForTheReference) {
    EXPECT_FALSE(find_device("reference")->is_planned_for);
    EXPECT_TRUE(find_device("cpu")->is_planned_for);
    EXPECT_TRUE(find_device("cuda")->is_planned_for);
}

TEST(Devices, FusedHeadsTakeASixteenthOfTheMemory) {
    EXPECT_EQ(head_logits_of(*find_device("cuda")->open_absent("h100", memory)), Bytes{memory.count / 16});
}

TEST(Devices, AnUnknownOneIsRefusedWithThoseThatThereAre) {
    EXPECT_EQ(find_device("abacus"), nullptr);
    EXPECT_EQ(test::error_of([] { open_device("abacus", 1); }),
              "there is no device \"abacus\"; there are cpu, cuda and reference");
}

} // namespace
} // namespace tutti
