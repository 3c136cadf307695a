#include "runtime/device_waits.h"

#include "backend/reference/reference.h"
#include "runtime/late_queue.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

// The most instructions that the device is behind the host, of so many.
std::int64_t most_ahead(DeviceLinks* links, std::int64_t instructions) {
    test::LateQueue queue;
    DeviceWaits waits(queue, links);
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < instructions; ++i) {
        waits.keep_pace();
        queue.give([] {});
        most = std::max(most, queue.pending());
    }
    return most;
}

TEST(DeviceWaits, KeepsTheHostTwoStretchesAheadWhereThereAreLinks) {
    const auto device = backend::reference::make_reference_device();
    const auto world = comm::make_single_world();
    GroupTable groups(*world);
    DeviceLinks links(groups, *device, nullptr);
    EXPECT_EQ(most_ahead(&links, 10 * DeviceWaits::pace), 2 * DeviceWaits::pace);
    EXPECT_EQ(most_ahead(nullptr, 10 * DeviceWaits::pace), 10 * DeviceWaits::pace);
}

TEST(DeviceWaits, DrainsWhatWasGivenBefore) {
    test::LateQueue queue;
    DeviceWaits waits(queue, nullptr);
    for (int i = 0; i < 3; ++i) queue.give([] {});
    EXPECT_EQ(queue.done(), 0);
    waits.drain();
    EXPECT_EQ(queue.done(), 3);
}

} // namespace
} // namespace tutti
