#include "devices/devices.h"

#include "backend/cpu/cpu.h"
#include "backend/plugin.h"
#include "backend/reference/reference.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "formats/json.h"
#include "graph/fuse.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace tutti::devices {
namespace {

struct DeviceEntry {
    std::string_view name;
    std::unique_ptr<backend::Device> (*open)(int threads, int local_rank);
};

constexpr std::array devices{
    DeviceEntry{
        "cpu",
        [](int threads, int) -> std::unique_ptr<backend::Device> { return backend::cpu::make_cpu_device(threads); }},
    DeviceEntry{"cuda", [](int, int local_rank) { return backend::open_plugin_device("cuda", local_rank); }},
    DeviceEntry{
        "reference",
        [](int, int) -> std::unique_ptr<backend::Device> { return backend::reference::make_reference_device(); }},
};

} // namespace

std::unique_ptr<backend::Device> open_device(const std::string& name, int threads, int local_rank) {
    const int cores = usable_cores(), most = std::max(64, 4 * cores);
    if (threads > most)
        fail("threads is {}; this process may use {}, and at most {} threads make sense", threads,
             counted(cores, "core"), most);
    std::vector<std::string_view> names;
    for (const DeviceEntry& one : devices) {
        if (one.name == name) return one.open(threads > 0 ? threads : cores, local_rank);
        names.push_back(one.name);
    }
    const std::string_view last = names.back();
    names.pop_back();
    fail("there is no device {}; there are {} and {}", formats::in_quotes(name), fmt::join(names, ", "), last);
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
