#include "launch/bound_rank.h"

#include "comm/agree.h"

#include <bitset>
#include <span>

namespace tutti::launch {
namespace {

// As ranks tell each other of them.
struct Units {
    std::bitset<1024> set;
    int threads = 0;
    bool thread_each = false;
};

Units units_of(const std::vector<int>& numbers, int threads, bool thread_each = false) {
    Units units{.set = {}, .threads = threads, .thread_each = thread_each};
    for (const int number : numbers)
        if (number < static_cast<int>(units.set.size())) units.set.set(static_cast<std::size_t>(number));
    return units;
}

std::vector<int> numbers_of(const Units& units) {
    std::vector<int> numbers;
    for (std::size_t number = 0; number < units.set.size(); ++number)
        if (units.set.test(number)) numbers.push_back(static_cast<int>(number));
    return numbers;
}

std::string reason_against(const run::RunConfig& config, bool computes_here) {
    if (config.bind != cores::Bind::automatic) return "";
    if (!computes_here) return "they do not compute on the CPU";
    const std::string variable = cores::bound_by_user();
    return variable.empty() ? "" : variable + " says where";
}

// Of the ranks of this machine that may run where this one may, and this one's place among them.
cores::Assignment assign_here(const run::RunConfig& config, comm::World& world, int threads, std::size_t& own) {
    const std::vector<int> units = cores::own_units();
    const std::vector<Units> all = comm::gather_values(world.all(), units_of(units, threads));
    const auto rank = static_cast<std::size_t>(world.rank());
    std::vector<int> sharing;
    for (const std::size_t other : comm::ranks_of_machine(world.all())) {
        if (all[other].set != all[rank].set) continue;
        if (other == rank) own = sharing.size();
        sharing.push_back(all[other].threads);
    }
    return cores::assign(cores::within(cores::machine(), units), sharing, config.bind);
}

} // namespace

cores::Binding bind_rank(const run::RunConfig& config, comm::World& world, int threads, bool computes_here) {
    std::size_t own = 0;
    const cores::Assignment here = assign_here(config, world, threads, own);
    cores::Binding binding{.units = {}, .thread_each = true, .why_not = reason_against(config, computes_here)};
    if (binding.why_not.empty()) binding.why_not = here.why_not;
    cores::RankCores mine = binding.why_not.empty() ? here.ranks[own] : cores::RankCores{};
    if (!computes_here) mine.threads.clear(); // threads of the GPU's libraries are not to follow one that computes
    cores::bind(mine, !world.shares_process());
    for (const Units& of_rank :
         comm::gather_values(world.all(), units_of(mine.units, threads, !mine.threads.empty()))) {
        binding.units.push_back(numbers_of(of_rank));
        binding.thread_each = binding.thread_each && of_rank.thread_each;
    }
    return binding;
}

} // namespace tutti::launch
