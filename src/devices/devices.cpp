#include "devices/devices.h"

#include "backend/absent_gpu.h"
#include "backend/cpu/cpu.h"
#include "backend/plugin.h"
#include "backend/reference/reference.h"
#include "base/counted.h"
#include "base/error.h"
#include "cores/topology.h"
#include "formats/json.h"
#include "graph/fuse.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace tutti::devices {
namespace {

constexpr DeviceEntry cpu{
    .name = "cpu",
    .open = [](int threads, int) { return backend::cpu::make_cpu_device(threads); },
};

constexpr DeviceEntry cuda{
    .name = "cuda",
    .open = [](int, int local_rank) { return backend::open_plugin_device("cuda", local_rank); },
    .open_absent = backend::make_absent_gpu,
    .has_own_memory = true,
};

constexpr DeviceEntry reference{
    .name = "reference",
    .open = [](int, int) { return backend::reference::make_reference_device(); },
    .is_planned_for = false, // it is there to check others against
};

constexpr std::array devices{cpu, cuda, reference};

} // namespace

std::span<const DeviceEntry> all_devices() { return devices; }

const DeviceEntry* find_device(std::string_view name) {
    const auto found = std::ranges::find(devices, name, &DeviceEntry::name);
    return found == devices.end() ? nullptr : &*found;
}

std::unique_ptr<backend::Device> open_device(const std::string& name, int threads, int local_rank) {
    const int cores = cores::usable_cores(), most = std::max(64, 4 * cores);
    if (threads > most)
        fail("threads is {}; this process may use {}, and at most {} threads make sense", threads,
             counted(cores, "core"), most);
    if (const DeviceEntry* device = find_device(name)) return device->open(threads > 0 ? threads : cores, local_rank);
    std::vector<std::string_view> names;
    for (const DeviceEntry& one : devices) names.push_back(one.name);
    const std::string_view last = names.back();
    names.pop_back();
    fail("there is no device {}; there are {} and {}", formats::in_quotes(name), fmt::join(names, ", "), last);
}

std::unique_ptr<backend::Device> open_host_device(int threads) { return open_device(std::string(cpu.name), threads); }

bool has_own_memory(std::string_view name) {
    const DeviceEntry* device = find_device(name);
    return device == nullptr || device->has_own_memory;
}

void check_computes(const backend::Device& device, DType dtype) {
    if (device.supports(dtype)) return;
    fail("the {} device does not compute in {}", device.name(), name_of(dtype));
}

Bytes head_logits_of(const backend::Device& device) {
    const auto memory = device.memory();
    return memory ? Bytes{memory->total.count / 16} : FusionOptions{}.head_logits;
}

} // namespace tutti::devices
