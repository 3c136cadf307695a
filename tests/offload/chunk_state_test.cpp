#include "offload/execution/chunk_state.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace offload;
namespace {

using enum ChunkState;

TEST(ChunkState, WhatIsOnTheDeviceNeitherComesAgainNorIsWorkedOnAtHome) {
    EXPECT_FALSE(may_turn(here, coming));
    EXPECT_FALSE(may_turn(here, working));
    EXPECT_FALSE(may_turn(here, here));
    EXPECT_FALSE(may_turn(coming, working));
    EXPECT_FALSE(may_turn(coming, leaving));
}

TEST(ChunkState, OnlyWhatIsHereLeaves) {
    for (ChunkState from : {home, coming, leaving, working}) EXPECT_FALSE(may_turn(from, leaving)) << name_of(from);
    EXPECT_TRUE(may_turn(here, leaving));
}

TEST(ChunkState, EveryStateCanBeSettled) {
    for (ChunkState from : {coming, here, leaving, working}) EXPECT_TRUE(may_turn(from, home)) << name_of(from);
}

} // namespace
} // namespace tutti
