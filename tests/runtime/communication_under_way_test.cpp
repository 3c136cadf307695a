#include "runtime/communication_under_way.h"

#include "offload/time_points.h"
#include "runtime/late_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>

namespace tutti {

using namespace runtime;
namespace {

// A communication that is under way from the beginning on and writes its name down when it is finished.
class Named final : public Communication {
  public:
    Named(std::string name, std::string& finished) : Communication(any_), name_(std::move(name)), finished_(finished) {}
    void start(std::span<const std::byte* const>, std::span<std::byte* const>, backend::Queue&) override {}
    void finish() override {
        if (std::exchange(under_way_, false)) finished_ += name_;
    }
    bool under_way() const override { return under_way_; }

  private:
    static inline const Instruction any_{
        .op = "all_reduce", .kind = InstructionKind::all_reduce, .lane = Lane::communication};
    std::string name_;
    std::string& finished_;
    bool under_way_ = true;
};

struct Step {
    explicit Step(std::vector<Task> tasks = {}) { program.step = std::move(tasks); }

    Communication& named(const char* name) { return all.emplace_back(name, finished); }

    Program program;
    test::LateQueue queue;
    DeviceWaits waits{queue, nullptr};
    StepTimer timer{program, waits};
    std::string finished; // names, in this order
    std::deque<Named> all;
};

TEST(CommunicationUnderWay, OfASegmentEndsWithWhoNamesItOrWithTheSegment) {
    Step step;
    CommunicationUnderWay communication(step.program, step.timer);
    communication.begin_segment(4);
    communication.started(0, step.named("a"));
    communication.started(1, step.named("b"));
    communication.started(2, step.named("c"));
    communication.finish_for({.waits = {1}});
    EXPECT_EQ(step.finished, "b");
    communication.finish_for({.waits = {1, 3}}); // done before; not a communication
    EXPECT_EQ(step.finished, "b");
    communication.finish_segment();
    EXPECT_EQ(step.finished, "bac");
    communication.begin_segment(2); // nothing is left over
    communication.finish_segment();
    EXPECT_EQ(step.finished, "bac");
}

TEST(CommunicationUnderWay, MessagesEndWithTheTaskThatNamesTheirs) {
    Step step({{.kind = TaskKind::receive}, {.kind = TaskKind::receive}, {.waits = {1}}});
    CommunicationUnderWay communication(step.program, step.timer);
    communication.started_message(step.program.step[0], step.named("a"));
    communication.started_message(step.program.step[1], step.named("b"));
    communication.begin_segment(0);
    communication.finish_segment();
    EXPECT_EQ(step.finished, "");
    communication.finish_before(step.program.step[2]);
    EXPECT_EQ(step.finished, "b");
    communication.finish_all(); // nobody waits for the other
    EXPECT_EQ(step.finished, "ba");
}

TEST(CommunicationUnderWay, DetachedReductionsEndWithTheTasksThatNeedThemAll) {
    for (const TaskKind kind : {TaskKind::reduce, TaskKind::norm}) {
        Step step({{.kind = TaskKind::backward}, {.kind = kind}});
        CommunicationUnderWay communication(step.program, step.timer);
        communication.started_detached(step.named("a"));
        communication.started_detached(step.named("b"));
        communication.finish_before(step.program.step[0]);
        EXPECT_EQ(step.finished, "");
        communication.finish_before(step.program.step[1]);
        EXPECT_EQ(step.finished, "ab");
    }
}

TEST(CommunicationUnderWay, FewCollectivesOfChunksGoOnAtATimeAndTheOldestEndsFirst) {
    static_assert(offload::most_chunk_communications == 2);
    Step step;
    CommunicationUnderWay communication(step.program, step.timer);
    for (const char* name : {"a", "b", "c", "d"}) {
        communication.make_room_for_chunks();
        communication.add_of_chunks(step.named(name));
    }
    EXPECT_EQ(step.finished, "ab");
    step.all[2].finish(); // somebody needed it
    communication.make_room_for_chunks();
    EXPECT_EQ(step.finished, "abc");
    communication.finish_of_chunks();
    EXPECT_EQ(step.finished, "abcd");
}

} // namespace
} // namespace tutti
