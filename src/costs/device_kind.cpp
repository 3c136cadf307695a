#include "costs/device_kind.h"

#include <algorithm>

namespace tutti::costs {
namespace {

constexpr double tera = 1e12, giga = 1e9, micro = 1e-6;

constexpr Bytes gib(std::int64_t count) { return {count << 30}; }

// The kernels of backend/cuda are built for Hopper GPUs alone.
DeviceKind with_kernels(DeviceKind kind) {
    kind.has_kernels = true;
    return kind;
}

// Peaks as vendors' data sheets have them: dense (not sparse) products of 16-bit floats with float32 sums, float32 on
// the ordinary units, SXM boards where there are several. V100 has fp16 only, the others bf16 too. Of an H200's 141 GB,
// 139 GiB can be had.
const std::vector<DeviceKind>& devices() {
    static const std::vector<DeviceKind> all = {
        {"v100-16", gib(16), 125 * tera, 15.7 * tera, 900 * giga},
        {"v100-32", gib(32), 125 * tera, 15.7 * tera, 900 * giga},
        {"a100-40", gib(40), 312 * tera, 19.5 * tera, 1555 * giga},
        {"a100-80", gib(80), 312 * tera, 19.5 * tera, 2039 * giga},
        with_kernels({"h100", gib(80), 989 * tera, 67 * tera, 3350 * giga}),
        with_kernels({"h200", gib(139), 989 * tera, 67 * tera, 4800 * giga}),
        {"rtx3090", gib(24), 71 * tera, 35.6 * tera, 936 * giga},
        {"rtx4090", gib(24), 165.2 * tera, 82.6 * tera, 1008 * giga},
    };
    return all;
}

// Bandwidth per device (NVLink: all its links; PCIe: 16 lanes) or per adapter, in one direction. Latency is what a step
// of a collective takes besides: our assumption.
const std::vector<LinkPreset>& links() {
    static const std::vector<LinkPreset> all = {
        {"nvlink2", {3 * micro, 150 * giga}}, // V100
        {"nvlink3", {3 * micro, 300 * giga}}, // A100
        {"nvlink4", {3 * micro, 450 * giga}}, // H100, H200
        {"pcie3", {6 * micro, 15.75 * giga}},        {"pcie4", {6 * micro, 31.5 * giga}},
        {"pcie5", {6 * micro, 63 * giga}},           {"infiniband-edr", {8 * micro, 12.5 * giga}}, // 100 Gb/s
        {"infiniband-hdr", {8 * micro, 25 * giga}},                                                // 200 Gb/s
        {"infiniband-ndr", {8 * micro, 50 * giga}},                                                // 400 Gb/s
        {"ethernet-10", {30 * micro, 1.25 * giga}},  {"ethernet-25", {30 * micro, 3.125 * giga}},
        {"ethernet-100", {20 * micro, 12.5 * giga}}, {"ethernet-400", {12 * micro, 50 * giga}},
    };
    return all;
}

} // namespace

double peak_flops(const DeviceKind& kind, DType dtype) { return size_of(dtype) == 2 ? kind.flops16 : kind.flops32; }

KernelSpeed speed_of(const DeviceKind& kind, DType dtype) {
    return {.flops = peak_flops(kind, dtype) * kind.efficiency.products,
            .bytes = kind.bandwidth * kind.efficiency.memory,
            .launch = kind.launch};
}

std::span<const DeviceKind> device_presets() { return devices(); }

const DeviceKind* find_device_preset(std::string_view name) {
    const auto found = std::ranges::find(devices(), name, &DeviceKind::name);
    return found == devices().end() ? nullptr : &*found;
}

std::span<const LinkPreset> link_presets() { return links(); }

const LinkPreset* find_link_preset(std::string_view name) {
    const auto found = std::ranges::find(links(), name, &LinkPreset::name);
    return found == links().end() ? nullptr : &*found;
}

} // namespace tutti::costs
