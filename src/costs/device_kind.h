// DeviceKind: the figures of an accelerator that planning needs. Presets have data-sheet figures. The share of them
// that kernels reach was measured on an H200 (bench/results/2026-11-15-h200.md); for every other kind it is an
// assumption, until `tutti profile` has measured it.
#pragma once

#include "base/dtype.h"
#include "base/speed.h"
#include "base/units.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::costs {

// Shares of a peak that kernels reach.
struct Efficiency {
    double products = 0.68;           // of the flops: large matrix products
    double head = 0.63;               // of the flops: the output head with its loss
    double attention = 0.29;          // of the flops: forward
    double attention_gradient = 0.22; // of the flops
    double memory = 0.68;             // of the memory's bandwidth: norms, activations, sums
    double optimizer = 0.49;          // of the memory's bandwidth, counting what is read and written once

    bool operator==(const Efficiency&) const = default;
};

struct DeviceKind {
    std::string name;
    Bytes memory{};
    double flops16 = 0;   // dense peak per second, 16-bit inputs and float32 sums
    double flops32 = 0;   // float32, without TF32
    double bandwidth = 0; // bytes per second of its memory, read and written
    double launch = 3e-6; // seconds from kernel to kernel
    Efficiency efficiency{};
    std::string run_device = "cuda"; // what a run on it is on (devices/devices.h)

    bool operator==(const DeviceKind&) const = default;
};

// A kind that has a name of its own here.
struct DevicePreset : DeviceKind {
    int compute_capability = 0;      // 80: 8.0
    std::string link;                // between the boards of a node, by name
    std::vector<std::string> models; // what its driver calls it

    // The kernels of backend/cuda need bf16 and copies that pass registers by: Ampere and newer.
    bool has_kernels() const { return compute_capability >= 80; }
};

// What a kernel of this type reaches, for those that know a device as two numbers.
KernelSpeed speed_of(const DeviceKind& kind, DType dtype);
double peak_flops(const DeviceKind& kind, DType dtype); // per second

std::span<const DevicePreset> device_presets();
const DevicePreset* find_device_preset(std::string_view name); // nullptr where there is none

// The GPU at hand, of which the driver says this model, memory and figures: by its data sheet where that is known.
const DevicePreset* find_device_called(std::string_view model); // nullptr where there is none
// Otherwise clock x multiprocessors x what one of them does in a clock, and the memory's clock x bus. The name is the
// driver's.
DeviceKind kind_by_driver(const std::string& model, Bytes memory, const GpuFigures& figures);

// Links by name: "nvlink3", "pcie4", "infiniband-hdr", "ethernet-25". Per link and direction, as data sheets have it.
struct LinkPreset {
    std::string name;
    LinkSpeed speed;
};
std::span<const LinkPreset> link_presets();
const LinkPreset* find_link_preset(std::string_view name);

// The share of a link's bandwidth that large messages reach: our assumption until it is measured.
constexpr double link_efficiency = 0.8;

} // namespace tutti::costs
