// The devices that a run can be on. A device is an entry of the table in devices.cpp and a folder of backend/; what has
// to be known of it before it is opened stands in its entry, so that nobody asks for a device by its name.
#pragma once

#include "backend/device.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti::devices {

struct DeviceEntry {
    std::string_view name;
    // `threads`: at least 1. `local_rank`: the ranks of a machine share its GPUs out among them.
    std::unique_ptr<backend::Device> (*open)(int threads, int local_rank) = nullptr;
    // For dry runs, one that need not be here, of a kind of costs/device_kind.h; without, it is everywhere.
    std::unique_ptr<backend::Device> (*open_absent)(const std::string& kind, Bytes memory) = nullptr;
    bool has_own_memory = false; // beside the host's
    bool is_planned_for = true;  // a run that asks for no layout lets a search find one
};

std::span<const DeviceEntry> all_devices();
const DeviceEntry* find_device(std::string_view name); // nullptr where there is none

// Error naming those that there are where there is no such device. 0 threads: as many as this process may use.
std::unique_ptr<backend::Device> open_device(const std::string& name, int threads, int local_rank = 0);

// The one that computes in the host's memory.
std::unique_ptr<backend::Device> open_host_device(int threads);

// By its entry; a device that is not known here, as in a profile from elsewhere, is taken for one that has.
bool has_own_memory(std::string_view name);

// Error where it does not compute in this type.
void check_computes(const backend::Device& device, DType dtype);

// What a fused head may take for logits, at most; less where that does not fit.
Bytes head_logits_of(const backend::Device& device);

} // namespace tutti::devices
