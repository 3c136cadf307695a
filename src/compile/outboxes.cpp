#include "compile/outboxes.h"

#include "base/error.h"

#include <map>
#include <utility>

namespace tutti::compile {
namespace {

class Play {
  public:
    explicit Play(std::span<const Program> pipeline) : pipeline_(pipeline) {
        for (const Program& program : pipeline) {
            sizes_.emplace_back(program.stages.size(), 2);
            sent_.emplace_back(program.stages.size());
            next_.push_back(0);
            sends_.emplace_back(program.step.size(), -1);
            for (std::size_t i = 0; i < program.step.size(); ++i)
                if (program.step[i].kind == TaskKind::send)
                    sends_.back()[static_cast<std::size_t>(program.step[i].waits.front())] = static_cast<int>(i);
        }
    }

    std::vector<std::vector<std::int32_t>> run() {
        for (bool done = false; !done;) {
            bool moved = false;
            done = true;
            for (std::size_t rank = 0; rank < pipeline_.size(); ++rank) {
                while (next_[rank] < pipeline_[rank].step.size() && step(rank)) moved = true;
                done &= next_[rank] == pipeline_[rank].step.size();
            }
            if (!moved && !done) make_room();
        }
        return std::move(sizes_);
    }

  private:
    using Channel = std::pair<int, int>; // from, to

    // A message is gone when the receiver has a place for it.
    bool is_gone(const Channel& channel, int number) { return number < posted_[channel]; }

    bool has_room(std::size_t rank, const Task& send) {
        const auto& sent = sent_[rank][static_cast<std::size_t>(send.local)];
        const auto most = static_cast<std::size_t>(sizes_[rank][static_cast<std::size_t>(send.local)]);
        return sent.size() < most || is_gone(sent[sent.size() - most].first, sent[sent.size() - most].second);
    }

    bool step(std::size_t rank) {
        const Task& task = pipeline_[rank].step[next_[rank]];
        const int self = static_cast<int>(rank);
        if (task.kind == TaskKind::send) {
            const Channel channel{self, task.peer};
            sent_[rank][static_cast<std::size_t>(task.local)].push_back({channel, started_[channel]++});
        } else if (task.kind == TaskKind::receive) {
            received_[{self, next_[rank]}] = {{task.peer, self}, posted_[{task.peer, self}]++};
        } else {
            for (std::int32_t wait : task.waits)
                if (const auto message = received_.find({self, static_cast<std::size_t>(wait)});
                    message != received_.end() && message->second.second >= started_[message->second.first])
                    return false;
            if (const int send = sends_[rank][next_[rank]];
                send >= 0 && !has_room(rank, pipeline_[rank].step[static_cast<std::size_t>(send)])) {
                blocked_ = {self, pipeline_[rank].step[static_cast<std::size_t>(send)].local};
                return false;
            }
        }
        ++next_[rank];
        return true;
    }

    void make_room() {
        TUTTI_CHECK(blocked_.first >= 0, "the orders of the ranks are a deadlock");
        ++sizes_[static_cast<std::size_t>(blocked_.first)][static_cast<std::size_t>(blocked_.second)];
        blocked_ = {-1, -1};
    }

    std::span<const Program> pipeline_;
    std::vector<std::vector<std::int32_t>> sizes_;
    std::vector<std::size_t> next_;
    std::vector<std::vector<int>> sends_; // per rank and task: the send of what it makes
    std::vector<std::vector<std::vector<std::pair<Channel, int>>>> sent_; // per rank and stage: messages, in order
    std::map<Channel, int> started_, posted_;
    std::map<std::pair<int, std::size_t>, std::pair<Channel, int>> received_; // by rank and receiving task
    std::pair<int, std::int32_t> blocked_{-1, -1}; // rank and stage that waited for room last
};

} // namespace

std::vector<std::vector<std::int32_t>> outbox_sizes(std::span<const Program> pipeline) { return Play(pipeline).run(); }

} // namespace tutti::compile
