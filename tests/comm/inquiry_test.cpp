#include "comm/inquiry.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace comm;
namespace {

using namespace std::chrono_literals;

OperationLabel collective(std::int64_t sequence, std::vector<int> members, int rank) {
    return {
        .group = "data", .members = std::move(members), .channel = 3, .sequence = sequence, .bytes = 8, .rank = rank};
}

Standing with_counts(std::vector<int> members, std::int64_t collectives) {
    const auto size = members.size();
    Standing standing;
    standing.counts.push_back({.members = std::move(members),
                               .channel = 3,
                               .collectives = collectives,
                               .sends = std::vector<std::int64_t>(size),
                               .receives = std::vector<std::int64_t>(size)});
    return standing;
}

Standing complaining(std::int64_t sequence, const std::vector<int>& members, int rank) {
    Standing standing = with_counts(members, sequence);
    standing.late = collective(sequence, members, rank);
    standing.complaint = "is late";
    return standing;
}

std::string fault(const std::vector<std::optional<Standing>>& standings) {
    return find_fault(standings, std::vector<bool>(standings.size(), false));
}

TEST(Inquiry, NamesThoseThatDoNotAnswerBeforeThoseThatDidNotArrive) {
    const std::vector<int> all{0, 1, 2, 3};
    EXPECT_EQ(fault({complaining(5, all, 0), with_counts(all, 4), with_counts(all, 5), std::nullopt}),
              "all_reduce 5 of group data (8 B) is late: rank 3 does not answer (it was killed or stopped)");
    EXPECT_EQ(fault({std::nullopt, complaining(5, all, 1), with_counts(all, 5), std::nullopt}),
              "all_reduce 5 of group data (8 B) is late: ranks 0, 3 do not answer (they were killed or stopped)");
}

// Rank 2 is only slow to answer; rank 1 was asked in vain for long before.
TEST(Inquiry, NamesThoseThatWereSilentBefore) {
    const std::vector<int> all{0, 1, 2, 3};
    Standing accusing = complaining(5, all, 0);
    accusing.complaint = held_up;
    accusing.silent = {1};
    EXPECT_EQ(fault({accusing, std::nullopt, std::nullopt, with_counts(all, 5)}),
              "all_reduce 5 of group data (8 B) is held up: rank 1 does not answer (it was killed or stopped)");
    Standing other = with_counts(all, 5);
    other.silent = {2};
    EXPECT_EQ(fault({accusing, std::nullopt, std::nullopt, other}),
              "all_reduce 5 of group data (8 B) is held up: ranks 1, 2 do not answer (they were killed or stopped)");
    EXPECT_EQ(fault({accusing, with_counts(all, 4), with_counts(all, 5), with_counts(all, 5)}), // it goes on
              "all_reduce 5 of group data (8 B) is held up: rank 1 did not answer for long (stopped, or on a machine "
              "without time for it)");
}

TEST(Inquiry, NamesThoseThatDidNotArrive) {
    const std::vector<int> all{2, 1, 0};
    EXPECT_EQ(fault({with_counts(all, 4), complaining(5, all, 1), with_counts(all, 9)}),
              "all_reduce 5 of group data (8 B) is late: rank 0 did not arrive");
    EXPECT_EQ(fault({Standing{}, complaining(5, all, 1), with_counts({2, 1}, 9)}), // they have not made the group
              "all_reduce 5 of group data (8 B) is late: ranks 0, 2 did not arrive");
    EXPECT_EQ(fault({with_counts(all, 5), complaining(5, all, 1), with_counts(all, 5)}),
              "all_reduce 5 of group data (8 B) is late, though all ranks arrived");
}

TEST(Inquiry, FollowsWhoWaitsForWhom) {
    Standing waiting = with_counts({0, 1}, 4);
    waiting.awaited = collective(7, {1, 2}, 0);
    EXPECT_EQ(fault({complaining(5, {0, 1}, 0), waiting, with_counts({1, 2}, 6)}),
              "all_reduce 5 of group data (8 B) is late: it is held up by all_reduce 7 of group data (8 B): rank 2 did "
              "not arrive");
}

TEST(Inquiry, EndsWhereRanksWaitForEachOther) {
    Standing one = complaining(5, {0, 1}, 0), other = with_counts({0, 1}, 4);
    one.awaited = one.late;
    other.awaited = collective(1, {1, 0}, 0);
    EXPECT_EQ(fault({one, other}), "all_reduce 5 of group data (8 B) is late: rank 1 did not arrive");
}

TEST(Inquiry, CountsMessagesByPeer) {
    const std::vector<int> all{0, 1, 2};
    Standing receiver = with_counts(all, 0), sender = with_counts(all, 0);
    receiver.late = OperationLabel{.group = "pipe",
                                   .members = all,
                                   .channel = 3,
                                   .kind = OperationKind::receive,
                                   .sequence = 2,
                                   .rank = 2,
                                   .peer = 1};
    receiver.complaint = "is late";
    sender.counts[0].sends = {5, 0, 1}; // rank 2 was sent one
    EXPECT_EQ(fault({Standing{}, sender, receiver}),
              "receive 2 of group pipe from rank 1 (0 B) is late: rank 1 did not arrive");
    sender.counts[0].sends = {0, 0, 2};
    EXPECT_EQ(fault({Standing{}, sender, receiver}),
              "receive 2 of group pipe from rank 1 (0 B) is late, though all ranks arrived");
}

TEST(Inquiry, IsDecidedByTheLowestThatAnswers) {
    const std::vector<int> all{0, 1, 2};
    const Clock::time_point begin{};
    Inquiry first(1, 3), second(2, 3); // of ranks 1 and 2; rank 0 is dead
    EXPECT_FALSE(first.sentence(begin + 1h));
    first.begin(complaining(5, all, 1), begin);
    first.answer(2, with_counts(all, 5));
    second.begin(with_counts(all, 5), begin);
    second.answer(1, complaining(5, all, 1));
    EXPECT_FALSE(first.sentence(begin + time_to_answer - 1ms));
    EXPECT_TRUE(first.sentence(begin + time_to_answer));
    EXPECT_FALSE(second.sentence(begin + time_to_answer));
    EXPECT_TRUE(second.sentence(begin + time_to_answer + time_to_speak)); // rank 1 has died, too
    EXPECT_EQ(first.sentence(begin + 1h), second.sentence(begin + 1h));
}

TEST(Inquiry, NeedsNoTimeWhenAllHaveAnsweredOrLeft) {
    const std::vector<int> all{0, 1, 2};
    Inquiry inquiry(0, 3);
    inquiry.begin(complaining(5, all, 0), {});
    inquiry.answer(1, with_counts(all, 5));
    EXPECT_FALSE(inquiry.sentence({}));
    inquiry.leave(2);
    EXPECT_EQ(inquiry.sentence({}), "all_reduce 5 of group data (8 B) is late: rank 2 had already ended");
}

TEST(Control, ArrivesAsItWasSent) {
    Standing sent = complaining(5, {4, 0, 2}, 1);
    sent.counts[0].sends[1] = std::int64_t{1} << 40;
    sent.awaited = collective(9, {}, 0);
    sent.silent = {7, 1};
    const auto got = std::get<Standing>(decode(encode(sent)));
    EXPECT_EQ(got.counts[0].members, sent.counts[0].members);
    EXPECT_EQ(got.counts[0].sends, sent.counts[0].sends);
    EXPECT_EQ(got.late->group, "data");
    EXPECT_EQ(got.late->sequence, 5);
    EXPECT_EQ(got.awaited->members, std::vector<int>{});
    EXPECT_EQ(got.complaint, "is late");
    EXPECT_EQ(got.silent, sent.silent);
    EXPECT_EQ(std::get<Verdict>(decode(encode(Verdict{{"why", 2}}))).failure, (Failure{"why", 2}));
    EXPECT_TRUE(std::holds_alternative<Heard>(decode(encode(Heard{}))));
    EXPECT_TRUE(std::holds_alternative<Leaving>(decode(encode(Leaving{}))));
    EXPECT_TRUE(std::holds_alternative<Ask>(decode(encode(Ask{}))));
    EXPECT_TRUE(std::holds_alternative<Here>(decode(encode(Here{}))));
    auto half = encode(sent);
    half.resize(half.size() / 2);
    EXPECT_ANY_THROW(decode(half));
}

} // namespace
} // namespace tutti
