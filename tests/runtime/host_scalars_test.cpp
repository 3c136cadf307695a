#include "runtime/host_updates.h"

#include "backend/reference/reference.h"
#include "runtime/late_queue.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

struct Copied {
    std::unique_ptr<backend::Device> device = backend::reference::make_reference_device();
    test::LateQueue queue;
    HostScalars scalars{2};
    StepScalars on_device;

    Copied() { scalars.allocate(*device); }
};

TEST(HostScalars, AreCopiedOncePerChange) {
    Copied copied;
    copied.on_device.loss = 1;
    const HostScalars::Copy& first = copied.scalars.current(copied.queue, &copied.on_device);
    EXPECT_EQ(&copied.scalars.current(copied.queue, &copied.on_device), &first);
    EXPECT_EQ(copied.queue.pending(), 1);
    first.there->synchronize();
    EXPECT_EQ(first.memory->loss, 1);
    copied.scalars.change();
    copied.on_device.loss = 2;
    const HostScalars::Copy& second = copied.scalars.current(copied.queue, &copied.on_device);
    second.there->synchronize();
    EXPECT_EQ(second.memory->loss, 2);
    EXPECT_EQ(first.memory->loss, 1); // an update of the step before may still read it
}

// Two copies: the third takes the place of the first, when whoever reads that is done.
TEST(HostScalars, AreOverwrittenOnlyWhenNobodyReadsThemAnyMore) {
    Copied copied;
    test::LateQueue updates;
    HostScalars::Copy& first = copied.scalars.current(copied.queue, &copied.on_device);
    updates.give([] {});
    first.used = updates.mark();
    copied.scalars.change();
    copied.scalars.current(copied.queue, &copied.on_device);
    EXPECT_EQ(updates.done(), 0);
    copied.scalars.change();
    EXPECT_EQ(&copied.scalars.current(copied.queue, &copied.on_device), &first);
    EXPECT_EQ(updates.done(), 1);
}

} // namespace
} // namespace tutti
