#include "train/memory_advice.h"

#include "base/counted.h"
#include "base/error.h"
#include "comm/agree.h"
#include "train/process_memory.h"

#include <unistd.h>

#include <array>

namespace tutti {
namespace {

std::string what_would_fit(const Session& session) {
    if (session.plan().strategies) return "A plan with smaller micro-batches, or more ranks, would need less";
    const Workload& workload = session.plan().workload;
    for (std::int64_t size = workload.micro_batch - 1; size > 0; --size) {
        if (workload.global_batch % size != 0) continue;
        const MemoryTable memory = session.memory_with(size);
        if (memory.fits())
            return fmt::format("--micro-batch {} would need {} and fit", size, to_string(memory.arena()));
    }
    return "Not even one sequence at a time would fit: a shorter --sequence, or --master bf16 and --moments bf16, "
           "need less";
}

} // namespace

std::string lack_of_room(const Session& session) {
    const MemoryTable& memory = session.memory();
    // Homes of chunks are large, and a machine that runs out of memory kills someone, often not with a word.
    if (const Bytes free = free_memory(); memory.on_host > free)
        return fmt::format(
            "this run needs {} of host memory for model data that is not on the device, and {} are free; "
            "--disk DIR keeps on disk what is too much",
            to_string(memory.on_host), to_string(free));
    if (memory.fits()) return "";
    return fmt::format("this run needs {} of the device's memory, which has {} and of these {} free: {}. {}",
                       to_string(memory.arena()), to_string(memory.capacity),
                       to_string(memory.capacity - memory.libraries), memory.sentence(), what_would_fit(session));
}

void check_machine(Group& group, const Session& session) {
    if (session.device().memory()) return;
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    const std::vector<std::string> machines = gather_texts(group, name.data());
    const std::vector<Bytes> arenas = gather_values(group, session.memory().arena());
    Bytes needed;
    int ranks = 0;
    for (std::size_t rank = 0; rank < arenas.size(); ++rank)
        if (machines[rank] == machines[static_cast<std::size_t>(group.rank())]) {
            needed += arenas[rank];
            ++ranks;
        }
    agree(group, [&] {
        if (needed <= machine_memory()) return;
        fail_world("the {} on this machine need {} of memory, and it has {}: fewer ranks, a smaller --micro-batch, a "
                   "shorter --sequence or --recompute full need less",
                   counted(ranks, "rank"), to_string(needed), to_string(machine_memory()));
    });
}

} // namespace tutti
