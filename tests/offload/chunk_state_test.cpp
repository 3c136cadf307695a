#include "offload/execution/chunk_state.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace offload;
namespace {

using enum ChunkState;

TEST(ChunkState, WhatIsOnTheDeviceNeitherComesAgainNorIsWorkedOnAtHome) {
    EXPECT_FALSE(may_follow(on_device, fetching));
    EXPECT_FALSE(may_follow(on_device, host_work));
    EXPECT_FALSE(may_follow(on_device, on_device));
    EXPECT_FALSE(may_follow(fetching, host_work));
    EXPECT_FALSE(may_follow(fetching, evicting));
}

TEST(ChunkState, OnlyWhatIsHereLeaves) {
    for (ChunkState from : {offloaded, fetching, evicting, host_work})
        EXPECT_FALSE(may_follow(from, evicting)) << name_of(from);
    EXPECT_TRUE(may_follow(on_device, evicting));
}

TEST(ChunkState, EveryStateCanBeSettled) {
    for (ChunkState from : {fetching, on_device, evicting, host_work})
        EXPECT_TRUE(may_follow(from, offloaded)) << name_of(from);
}

} // namespace
} // namespace tutti
