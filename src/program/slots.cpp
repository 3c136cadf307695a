#include "program/slots.h"

#include "base/error.h"

#include <algorithm>
#include <map>

namespace tutti {
namespace {

// The slots of one region of one stage.
class Pool {
  public:
    std::int32_t take(std::int32_t micro_batch) {
        auto at = std::ranges::find(holders_, -1);
        if (at == holders_.end()) at = holders_.insert(at, -1);
        *at = micro_batch;
        return static_cast<std::int32_t>(at - holders_.begin());
    }
    std::int32_t find(std::int32_t micro_batch) const {
        const auto at = std::ranges::find(holders_, micro_batch);
        return at == holders_.end() ? -1 : static_cast<std::int32_t>(at - holders_.begin());
    }
    void release(std::int32_t micro_batch) { std::ranges::replace(holders_, micro_batch, -1); }
    std::int32_t size() const { return static_cast<std::int32_t>(holders_.size()); }

  private:
    std::vector<std::int32_t> holders_; // micro-batch per slot, -1: free
};

// Which region's slot a task is the first to need.
void for_each_opened(const Task& task, auto visit) {
    switch (task.kind) {
    case TaskKind::receive: return visit(task.gradient ? Region::returned : Region::received);
    case TaskKind::forward: return visit(Region::stash);
    case TaskKind::recompute: return visit(Region::recomputed);
    case TaskKind::backward: return visit(Region::deferred);
    default: return;
    }
}

constexpr bool works_on_a_stage(TaskKind kind) {
    return kind == TaskKind::forward || kind == TaskKind::recompute || kind == TaskKind::backward ||
           kind == TaskKind::weight_gradient;
}

class SlotReplay {
  public:
    SlotReplay(Program& program, const std::vector<std::int32_t>& outboxes) : program_(program), outboxes_(outboxes) {
        for (std::size_t i = 0; i < program.step.size(); ++i)
            if (works_on_a_stage(program.step[i].kind)) last_[key(program.step[i])] = i;
    }

    void run() {
        for (std::size_t i = 0; i < program_.step.size(); ++i) {
            Task& task = program_.step[i];
            for_each_opened(task, [&](Region region) { pool(task, region).take(task.micro_batch); });
            for (std::size_t r = 0; r < slotted_count; ++r) {
                const auto region = static_cast<Region>(static_cast<std::size_t>(Region::received) + r);
                if (region != Region::outbox) task.slots[r] = std::max(0, pool(task, region).find(task.micro_batch));
            }
            if (task.kind == TaskKind::send) post(i);
            if (works_on_a_stage(task.kind)) release(i);
        }
        for (const auto& [place, pool] : pools_)
            if (place.second != Region::outbox)
                program_.stages[static_cast<std::size_t>(place.first)].slots[slotted(place.second)] = pool.size();
    }

  private:
    using Key = std::pair<std::int32_t, std::int32_t>; // stage of this rank, micro-batch
    static Key key(const Task& task) { return {task.local, task.micro_batch}; }

    Pool& pool(const Task& task, Region region) { return pools_[{task.local, region}]; }

    // In turn. The task that made the message wrote it there.
    void post(std::size_t i) {
        Task& send = program_.step[i];
        TUTTI_CHECK(!send.waits.empty(), "a send waits for nothing");
        const auto local = static_cast<std::size_t>(send.local);
        const std::int32_t most = local < outboxes_.size() ? outboxes_[local] : 2;
        const std::int32_t slot = sent_[send.local]++ % most;
        Task& maker = program_.step[static_cast<std::size_t>(send.waits.front())];
        maker.slots[slotted(Region::outbox)] = slot;
        send.slots = maker.slots;
        std::int32_t& count = program_.stages[local].slots[slotted(Region::outbox)];
        count = std::max(count, slot + 1);
    }

    void release(std::size_t i) {
        const Task& task = program_.step[i];
        if (last_.at(key(task)) != i) return;
        for (Region region : {Region::received, Region::stash, Region::recomputed, Region::returned, Region::deferred})
            pool(task, region).release(task.micro_batch);
    }

    Program& program_;
    std::map<Key, std::size_t> last_; // task that is the last of a stage and micro-batch
    std::map<std::pair<std::int32_t, Region>, Pool> pools_;
    std::map<std::int32_t, std::int32_t> sent_; // messages of a stage so far
    const std::vector<std::int32_t>& outboxes_;
};

} // namespace

void assign_slots(Program& program, const std::vector<std::int32_t>& outboxes) {
    for (LocalStage& stage : program.stages) stage.slots.fill(0);
    SlotReplay(program, outboxes).run();
}

void wait_for_outboxes(Program& program) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> last; // send that used a stage's slot
    for (std::size_t i = 0; i < program.step.size(); ++i) {
        const Task& send = program.step[i];
        if (send.kind != TaskKind::send) continue;
        const auto [at, is_new] = last.try_emplace({send.local, send.slots[slotted(Region::outbox)]}, -1);
        Task& maker = program.step[static_cast<std::size_t>(send.waits.front())];
        if (!is_new) maker.waits.push_back(at->second);
        at->second = static_cast<std::int32_t>(i);
    }
}

} // namespace tutti
