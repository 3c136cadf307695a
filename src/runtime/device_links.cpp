#include "runtime/device_links.h"

#include "base/error.h"
#include "comm/agree.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <set>
#include <thread>

namespace tutti::runtime {

DeviceLink::Moment DeviceLink::mark(Moment ready) {
    forget_finished();
    under_way_.push_back({group_->latest(), std::move(ready), queue_->mark()});
    return under_way_.back().done;
}

void DeviceLink::forget_finished() {
    for (; !under_way_.empty() && under_way_.front().done->has_come(); under_way_.pop_front()) waited_ = {};
}

void DeviceLink::watch(Seconds passed, Seconds timeout) {
    group_->check();
    forget_finished();
    if (under_way_.empty() || !under_way_.front().ready->has_come()) return;
    waited_.count += passed.count;
    if (waited_ < timeout) return;
    const comm::DeviceOperation& late = under_way_.front().operation;
    fail_world("{} {} of group {} ({}) did not finish within {}, between devices", late.name, late.sequence,
               group_->name(), to_string(late.bytes), to_string(timeout));
}

DeviceLinks::~DeviceLinks() {
    if (std::uncaught_exceptions() > 0) abandon(); // queues may be waiting for ranks that will not come
}

DeviceLinks::Key DeviceLinks::key_of(const GroupSpec& spec, const Instruction& instruction) {
    if (instruction.peer < 0) return {spec.channel, false, spec.members};
    int from = groups_.world().rank(), to = spec.members[static_cast<std::size_t>(instruction.peer)];
    if (instruction.kind == InstructionKind::receive) std::swap(from, to);
    return {spec.channel, true, {from, to}};
}

DeviceLink DeviceLinks::make(const GroupSpec& spec, const Key& key) {
    const auto& [channel, is_for_messages, ranks] = key;
    std::vector<int> members;
    for (int rank : ranks)
        members.push_back(static_cast<int>(std::ranges::find(spec.members, rank) - spec.members.begin()));
    std::string name =
        is_for_messages ? fmt::format("{}, rank {} to {}", spec.name, ranks.front(), ranks.back()) : spec.name;
    return {network_->group(std::move(name), groups_.at(spec), members), device_.make_queue()};
}

void DeviceLinks::connect(const Program& program) {
    std::map<Key, const GroupSpec*> needed;
    for (const Segment& segment : program.segments)
        for (const Instruction& instruction : segment.instructions) {
            if (instruction.lane != Lane::communication) continue;
            const GroupSpec& spec = program.groups[static_cast<std::size_t>(instruction.group)];
            if (instruction.peer != groups_.at(spec).rank()) needed.emplace(key_of(spec, instruction), &spec);
        }
    for (const auto& [key, spec] : needed)
        if (!links_.contains(key)) links_.emplace(key, make(*spec, key));
}

DeviceLink& DeviceLinks::at(const Program& program, const Instruction& instruction) {
    return links_.at(key_of(program.groups[static_cast<std::size_t>(instruction.group)], instruction));
}

void DeviceLinks::watch(Seconds passed) {
    comm::World& world = groups_.world();
    try {
        for (auto& [key, link] : links_) link.watch(passed, world.timeout());
    } catch (const WorldError& trouble) { // of this rank and others at once: all tell it in the same words
        world.complain(trouble.what());
    }
    if (const auto failure = world.failure()) throw WorldError(failure->sentence);
}

void DeviceLinks::wait(const backend::Event& event) {
    using namespace std::chrono_literals;
    constexpr auto between_looks = 10ms;
    // Time in which this process was stopped does not count, so that of a look is what it should be, at most.
    constexpr Seconds of_a_look{std::chrono::duration<double>(between_looks).count()};
    try {
        auto next_look = std::chrono::steady_clock::now() + between_looks;
        for (auto pause = 10us; !event.has_come(); pause = std::min<std::chrono::microseconds>(2 * pause, 200us)) {
            std::this_thread::sleep_for(pause);
            if (std::chrono::steady_clock::now() < next_look) continue;
            watch(of_a_look);
            next_look = std::chrono::steady_clock::now() + between_looks;
        }
    } catch (...) {
        abandon();
        throw;
    }
}

void DeviceLinks::meet() { comm::barrier(groups_.world().all()); }

void DeviceLinks::abandon() noexcept {
    for (auto& [key, link] : links_) link.group().abandon();
}

namespace {

// NCCL is not made for ranks that share a device, and tells them by host and bus. Tests let them: each process is a
// host of its own then, and what stands in for NCCL does not ask.
bool may_share_a_device(const comm::World& world) {
    if (std::getenv("TUTTI_NCCL_SHARES_DEVICES") == nullptr) return false;
    if (!world.shares_process()) ::setenv("NCCL_HOSTID", fmt::format("tutti-rank-{}", world.rank()).c_str(), 0);
    return true;
}

// Why some rank cannot take part; empty where all can.
std::string first_trouble(const std::vector<std::string>& troubles, const std::vector<std::string>& libraries) {
    for (const std::string& trouble : troubles)
        if (!trouble.empty()) return trouble;
    const auto other = std::ranges::find_if(libraries, [&](const std::string& each) { return each != libraries[0]; });
    if (other == libraries.end()) return {};
    return fmt::format("rank 0 has {}, rank {} has {}", libraries[0], other - libraries.begin(), *other);
}

} // namespace

std::unique_ptr<DeviceLinks> link_devices(GroupTable& groups, const backend::Device& device,
                                          const std::function<void(const std::string&)>& warn) {
    comm::Group& all = groups.world().all();
    if (all.size() == 1 || !device.memory()) return nullptr;
    const std::vector<std::string> devices = comm::gather_texts(all, device.identity());
    const bool shared = std::set(devices.begin(), devices.end()).size() < devices.size();
    if (shared && !may_share_a_device(groups.world())) return nullptr;
    std::unique_ptr<comm::DeviceNetwork> network;
    std::string library, trouble;
    try {
        network = comm::open_nccl();
        library = network->library();
    } catch (const Error& error) {
        trouble = error.what();
    }
    // All of them, or none.
    const std::string sentence = first_trouble(comm::gather_texts(all, trouble), comm::gather_texts(all, library));
    if (sentence.empty()) return std::make_unique<DeviceLinks>(groups, device, std::move(network));
    warn("every rank has a device of its own, but data passes between them through host memory: " + sentence);
    return nullptr;
}

} // namespace tutti::runtime
