#include "train/memory_advice.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "train/what_would_fit.h"

#include <algorithm>

namespace tutti::train {
namespace {

// What the ranks need together that share this rank's machine.
struct Needs {
    int ranks = 0;
    Bytes arenas{}, backing{}, on_disk{};
    Bytes free{}; // before any of them takes its memory
};

Needs needs_of_machine(comm::Group& group, const Session& session) {
    Needs needs{.free = free_memory()};
    const std::vector<Bytes> arenas = comm::gather_values(group, session.memory().arena());
    const std::vector<Bytes> backing = comm::gather_values(group, session.memory().on_host);
    const std::vector<Bytes> on_disk = comm::gather_values(group, session.memory().on_disk);
    for (std::size_t rank : comm::ranks_of_machine(group)) {
        ++needs.ranks;
        needs.arenas += arenas[rank];
        needs.backing += backing[rank];
        needs.on_disk += on_disk[rank];
    }
    return needs;
}

std::string who_needs(const Needs& here) {
    return here.ranks == 1 ? "this run needs" : fmt::format("the {} ranks on this machine need", here.ranks);
}

// Where the device's memory is the host's, both come out of what is free.
Bytes of_host(const Session& session, const Needs& here) {
    return session.device().memory() ? here.backing : here.arenas + here.backing;
}

std::string lack_of_host_memory(const Session& session, const Needs& here) {
    // The host copies of chunks are large, and a machine that runs out of memory kills a process, often without a
    // message.
    if (here.backing > here.free)
        return fmt::format(
            "{} {} of host memory for model data that is not on the device, and {} are free; {} keeps on disk what is "
            "too much",
            who_needs(here), to_string(here.backing), to_string(here.free),
            session.plan().host_memory.count > 0 ? "a smaller --host-memory with --disk DIR" : "--disk DIR");
    if (of_host(session, here) > here.free)
        return fmt::format("{} {} of memory, and {} of this machine's {} are free. {}", who_needs(here),
                           to_string(of_host(session, here)), to_string(here.free), to_string(machine_memory()),
                           what_would_fit(session, Bytes{here.free.count / here.ranks}));
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

bool has_room(comm::Group& group, const Session& session) {
    const Needs here = needs_of_machine(group, session);
    const bool mine = session.device().memory() ? session.memory().fits() : of_host(session, here) <= here.free;
    return std::ranges::all_of(comm::gather_values(group, static_cast<char>(mine)), [](char one) { return one != 0; });
}

std::string lack_of_room(comm::Group& group, const Session& session) {
    const Needs here = needs_of_machine(group, session);
    if (const std::string lack = lack_of_host_memory(session, here); !lack.empty()) return lack;
    if (const std::string lack = lack_of_disk(session.disk(), here); !lack.empty()) return lack;
    const run::MemoryTable& memory = session.memory();
    if (memory.fits()) return "";
    return fmt::format("this run needs {} of the device's memory, which has {} and of these {} free: {}. {}",
                       to_string(memory.arena()), to_string(memory.capacity),
                       to_string(memory.capacity - memory.libraries), memory.sentence(),
                       what_would_fit(session, memory.capacity - memory.libraries));
}

} // namespace tutti::train
