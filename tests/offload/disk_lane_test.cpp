// Copies between a file and a device.
#include "offload/execution/disk_lane.h"

#include "backend/reference/reference.h"
#include "base/error.h"
#include "support/open_files.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti {

using namespace backend;
using namespace backend::reference;
using namespace offload;
namespace {

class DiskLanes : public ::testing::Test {
  protected:
    std::span<std::byte> memory(std::int64_t offset, std::size_t size) const { return {arena->data() + offset, size}; }

    test::TemporaryFolder folder;
    std::unique_ptr<Device> device = make_reference_device();
    std::unique_ptr<Arena> arena = device->allocate({1 << 20});
    SpillFile file{folder / ".", {1 << 20}};
    DiskLane in{*device, file, {8192}}, out{*device, file, {8192}}; // so that most copies are in many pieces
};

TEST_F(DiskLanes, WhatIsWrittenIsRead) {
    std::int64_t offset = 0;
    for (const std::size_t size : {1u, 4095u, 4096u, 8192u, 8193u, 50'001u, 81'920u}) {
        const std::span<std::byte> from = memory(0, size), to = memory(1 << 19, size + 1);
        for (std::size_t i = 0; i < size; ++i) from[i] = static_cast<std::byte>(i % 253 + size % 3);
        std::ranges::fill(to, std::byte{255});
        const auto written = out.write(offset, from, {});
        in.read(offset, to.first(size), {written})->synchronize();
        EXPECT_TRUE(std::ranges::equal(from, to.first(size))) << size;
        EXPECT_EQ(to.back(), std::byte{255});
        offset += 100 * disk_alignment / 4;
    }
}

TEST_F(DiskLanes, OneAfterTheOtherAndNeighboursStayWhole) {
    std::vector<std::shared_ptr<const Event>> done;
    for (std::int64_t i = 0; i < 20; ++i) {
        std::ranges::fill(memory(i * 4096, 4000), static_cast<std::byte>(i));
        done.push_back(out.write(i * disk_alignment, memory(i * 4096, 4000), {}));
    }
    for (std::int64_t i = 19; i >= 0; --i)
        in.read(i * disk_alignment, memory((1 << 19) + i * 4096, 4000), {done[static_cast<std::size_t>(i)]});
    in.synchronize();
    for (std::int64_t i = 0; i < 20; ++i)
        for (std::byte one : memory((1 << 19) + i * 4096, 4000)) ASSERT_EQ(one, static_cast<std::byte>(i));
}

TEST_F(DiskLanes, AFileCutShortIsToldToWhoeverWaits) {
    fs::resize_file(test::nameless_files_of(folder / ".").at(0), 5000);
    EXPECT_THROW(in.read(0, memory(0, 100), {})->synchronize(), WorldError);
    EXPECT_THROW(out.write(0, memory(0, 100), {})->synchronize(), WorldError);
    EXPECT_THROW(in.synchronize(), WorldError);
}

} // namespace
} // namespace tutti
