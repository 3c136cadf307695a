#include "runtime/communication_under_way.h"

#include "offload/time_points.h"

namespace tutti::runtime {

void CommunicationUnderWay::finish_before(const Task& task) {
    for (std::int32_t wait : task.waits) finish_message(static_cast<std::size_t>(wait));
    if (task.kind == TaskKind::reduce || task.kind == TaskKind::norm) finish_detached();
}

void CommunicationUnderWay::begin_segment(std::size_t instructions) { of_segment_.assign(instructions, nullptr); }

void CommunicationUnderWay::started(std::size_t instruction, Communication& communication) {
    of_segment_[instruction] = &communication;
}

void CommunicationUnderWay::started_message(const Task& task, Communication& communication) {
    messages_[static_cast<std::size_t>(index_in_step(program_, task))].push_back(&communication);
}

void CommunicationUnderWay::started_detached(Communication& communication) { detached_.push_back(&communication); }

void CommunicationUnderWay::finish_for(const Instruction& instruction) {
    for (std::int32_t wait : instruction.waits)
        if (Communication* communication = of_segment_[static_cast<std::size_t>(wait)]) timer_.finish(*communication);
}

void CommunicationUnderWay::finish_segment() {
    for (Communication* communication : of_segment_)
        if (communication != nullptr) timer_.finish(*communication);
}

void CommunicationUnderWay::add_of_chunks(Communication& communication) { of_chunks_.push_back(&communication); }

void CommunicationUnderWay::make_room_for_chunks() {
    std::erase_if(of_chunks_, [](const Communication* communication) { return !communication->under_way(); });
    if (of_chunks_.size() < offload::most_chunk_communications) return;
    timer_.finish(*of_chunks_.front());
    of_chunks_.erase(of_chunks_.begin());
}

void CommunicationUnderWay::finish_of_chunks() {
    for (Communication* communication : of_chunks_) timer_.finish(*communication);
    of_chunks_.clear();
}

void CommunicationUnderWay::finish_message(std::size_t task) {
    std::vector<Communication*>& messages = messages_[task];
    for (Communication* message : messages) timer_.finish(*message);
    messages.clear();
}

void CommunicationUnderWay::finish_detached() {
    for (Communication* communication : detached_) timer_.finish(*communication);
    detached_.clear();
}

void CommunicationUnderWay::finish_all() {
    for (std::size_t task = 0; task < messages_.size(); ++task) finish_message(task);
    finish_detached();
}

} // namespace tutti::runtime
