// CommunicationUnderWay: messages and collectives that have started and are not finished yet, by who waits for them.
//
//   of the segment   an instruction that names it; at the latest the end of the segment
//   messages         a task that names the message's task; at the latest the end of the step
//   detached         reductions of whole chunks: the tasks that reduce or take the norm
//   of chunks        with offloading: the end of the task; few are under way at a time
#pragma once

#include "runtime/communication.h"
#include "runtime/step_timer.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::runtime {

class CommunicationUnderWay {
  public:
    CommunicationUnderWay(const Program& program, StepTimer& timer)
        : program_(program), timer_(timer), messages_(program.step.size()) {}

    // What a task needs from other ranks before it can begin.
    void finish_before(const Task& task);

    void begin_segment(std::size_t instructions);
    void started(std::size_t instruction, Communication& communication); // of the segment
    void started_message(const Task& task, Communication& communication);
    void started_detached(Communication& communication);
    void finish_for(const Instruction& instruction); // what it waits for, of the segment
    void finish_segment();

    // A collective of chunks that has started in one of the ways above.
    void add_of_chunks(Communication& communication);
    void make_room_for_chunks(); // before another starts
    void finish_of_chunks();

    void finish_all(); // at the end of a step: also messages that no task waits for

  private:
    void finish_message(std::size_t task);
    void finish_detached();

    const Program& program_;
    StepTimer& timer_;
    std::vector<Communication*> of_segment_;            // per instruction
    std::vector<std::vector<Communication*>> messages_; // per task of the step
    std::vector<Communication*> detached_;
    std::vector<Communication*> of_chunks_; // in the order they started
};

} // namespace tutti::runtime
