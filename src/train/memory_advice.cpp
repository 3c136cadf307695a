#include "train/memory_advice.h"

#include "base/counted.h"
#include "base/error.h"
#include "comm/agree.h"
#include "train/process_memory.h"

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

// What the ranks need together that share this rank's machine.
struct Needs {
    int ranks = 0;
    Bytes arenas{}, homes{}, on_disk{};
    Bytes free{}; // before any of them takes its memory
};

Needs needs_of_machine(Group& group, const Session& session) {
    Needs needs{.free = free_memory()};
    const std::vector<Bytes> arenas = gather_values(group, session.memory().arena());
    const std::vector<Bytes> homes = gather_values(group, session.memory().on_host);
    const std::vector<Bytes> on_disk = gather_values(group, session.memory().on_disk);
    for (std::size_t rank : ranks_of_machine(group)) {
        ++needs.ranks;
        needs.arenas += arenas[rank];
        needs.homes += homes[rank];
        needs.on_disk += on_disk[rank];
    }
    return needs;
}

std::string who_needs(const Needs& here) {
    return here.ranks == 1 ? "this run needs" : fmt::format("the {} ranks on this machine need", here.ranks);
}

std::string lack_of_host_memory(const Session& session, const Needs& here) {
    // Homes of chunks are large, and a machine that runs out of memory kills someone, often not with a word.
    if (here.homes > here.free)
        return fmt::format(
            "{} {} of host memory for model data that is not on the device, and {} are free; {} keeps on disk what is "
            "too much",
            who_needs(here), to_string(here.homes), to_string(here.free),
            session.plan().host_memory.count > 0 ? "a smaller --host-memory with --disk DIR" : "--disk DIR");
    if (!session.device().memory() && here.arenas > machine_memory())
        return fmt::format("the {} on this machine need {} of memory, and it has {}: fewer ranks, a smaller "
                           "--micro-batch, a shorter --sequence or --recompute full need less",
                           counted(here.ranks, "rank"), to_string(here.arenas), to_string(machine_memory()));
    return "";
}

std::string lack_of_disk(const fs::path& folder, const Needs& here) {
    if (here.on_disk.count == 0) return "";
    std::error_code unknown;
    const auto space = fs::space(folder, unknown);
    if (unknown || static_cast<std::uintmax_t>(here.on_disk.count) <= space.available) return "";
    return fmt::format("{} {} on the disk with {} for model data, and {} are free there", who_needs(here),
                       to_string(here.on_disk), folder.string(),
                       to_string(Bytes{static_cast<std::int64_t>(space.available)}));
}

} // namespace

std::string lack_of_room(Group& group, const Session& session) {
    const Needs here = needs_of_machine(group, session);
    if (const std::string lack = lack_of_host_memory(session, here); !lack.empty()) return lack;
    if (const std::string lack = lack_of_disk(session.disk(), here); !lack.empty()) return lack;
    const MemoryTable& memory = session.memory();
    if (memory.fits()) return "";
    return fmt::format("this run needs {} of the device's memory, which has {} and of these {} free: {}. {}",
                       to_string(memory.arena()), to_string(memory.capacity),
                       to_string(memory.capacity - memory.libraries), memory.sentence(), what_would_fit(session));
}

} // namespace tutti
