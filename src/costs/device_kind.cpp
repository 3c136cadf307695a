#include "costs/device_kind.h"

#include <algorithm>

namespace tutti::costs {
namespace {

constexpr double tera = 1e12, giga = 1e9, micro = 1e-6;

constexpr Bytes gib(std::int64_t count) { return {count << 30}; }

// Peaks as vendors' data sheets have them: dense (not sparse) products of 16-bit floats with float32 sums, float32 on
// the ordinary units, SXM boards where nothing else is said. V100 has fp16 only, the others bf16 too. Where a sheet
// gives sparse rates alone, dense ones are half of them. Of an H200's 141 GB 139 GiB can be had, of a B200's 180 GB
// 179 GiB, of a GB200's 186 GB 185 GiB.
const std::vector<DevicePreset>& devices() {
    using Models = std::vector<std::string>;
    auto gpu = [](const char* name, int gibibytes, double tera16, double tera32, double giga_bytes,
                  int compute_capability, const char* link, Models models) {
        return DevicePreset{{name, gib(gibibytes), tera16 * tera, tera32 * tera, giga_bytes * giga},
                            compute_capability,
                            link,
                            std::move(models)};
    };
    static const std::vector<DevicePreset> all = {
        // NVIDIA V100 data sheet, January 2020
        gpu("v100-16", 16, 125, 15.7, 900, 70, "nvlink2", {"Tesla V100-SXM2-16GB"}),
        gpu("v100-32", 32, 125, 15.7, 900, 70, "nvlink2", {"Tesla V100-SXM2-32GB", "Tesla V100-SXM3-32GB"}),
        // NVIDIA A10, A30, A40 data sheets
        gpu("a10", 24, 125, 31.2, 600, 86, "pcie4", {"NVIDIA A10"}),
        gpu("a30", 24, 165, 10.3, 933, 80, "pcie4", {"NVIDIA A30"}),
        gpu("a40", 48, 149.7, 37.4, 696, 86, "pcie4", {"NVIDIA A40"}),
        // NVIDIA A100 data sheet
        gpu("a100-40", 40, 312, 19.5, 1555, 80, "nvlink3", {"NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"}),
        gpu("a100-80", 80, 312, 19.5, 2039, 80, "nvlink3", {"NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"}),
        // NVIDIA L4, L40S data sheets; RTX 6000 Ada: data sheet, an eighth of its sparse int4, a quarter of sparse fp8
        gpu("l4", 24, 121, 30.3, 300, 89, "pcie4", {"NVIDIA L4"}),
        gpu("l40s", 48, 362, 91.6, 864, 89, "pcie4", {"NVIDIA L40S"}),
        gpu("rtx6000-ada", 48, 364.2, 91.1, 960, 89, "pcie4", {"NVIDIA RTX 6000 Ada Generation"}),
        // Appendices of NVIDIA's white papers on GA102, Ada and RTX Blackwell: 16-bit products with float32 sums
        gpu("rtx3090", 24, 71, 35.6, 936, 86, "pcie4", {"NVIDIA GeForce RTX 3090"}),
        gpu("rtx4090", 24, 165.2, 82.6, 1008, 89, "pcie4", {"NVIDIA GeForce RTX 4090"}),
        gpu("rtx5090", 32, 209.5, 104.8, 1792, 120, "pcie5", {"NVIDIA GeForce RTX 5090"}),
        // NVIDIA has no public data sheet of the H20; as its sellers give it
        gpu("h20", 96, 148, 44, 4000, 90, "nvlink4", {"NVIDIA H20"}),
        // NVIDIA H100 data sheet: SXM, PCIe, and one board of the NVL pair
        gpu("h100", 80, 989, 67, 3350, 90, "nvlink4", {"NVIDIA H100 80GB HBM3"}),
        gpu("h100-pcie", 80, 756, 51, 2000, 90, "pcie5", {"NVIDIA H100 PCIe"}),
        gpu("h100-nvl", 94, 835, 60, 3900, 90, "nvlink4-bridge", {"NVIDIA H100 NVL"}),
        // NVIDIA H200 and GH200 data sheets; GH200 with 96 GB of HBM3 and with 144 GB of HBM3e
        gpu("h200", 139, 989, 67, 4800, 90, "nvlink4", {"NVIDIA H200"}),
        gpu("gh200", 96, 989, 67, 4000, 90, "nvlink4", {"NVIDIA GH200 480GB"}),
        gpu("gh200-144", 144, 989, 67, 4900, 90, "nvlink4", {"NVIDIA GH200 144G HBM3e"}),
        // NVIDIA HGX B200 and GB200 NVL72 data sheets, by GPU
        gpu("b200", 179, 2250, 75, 7700, 100, "nvlink5", {"NVIDIA B200"}),
        gpu("gb200", 185, 2500, 80, 8000, 100, "nvlink5", {"NVIDIA GB200"}),
    };
    return all;
}

// Bandwidth per device (NVLink: all its links; PCIe: 16 lanes) or per adapter, in one direction. Latency is what a step
// of a collective takes besides: our assumption.
const std::vector<LinkPreset>& links() {
    static const std::vector<LinkPreset> all = {
        {"nvlink2", {3 * micro, 150 * giga}},        // V100
        {"nvlink3", {3 * micro, 300 * giga}},        // A100
        {"nvlink4", {3 * micro, 450 * giga}},        // H100, H200
        {"nvlink5", {3 * micro, 900 * giga}},        // B200, GB200
        {"nvlink4-bridge", {3 * micro, 300 * giga}}, // between two H100 NVL
        {"pcie3", {6 * micro, 15.75 * giga}},        {"pcie4", {6 * micro, 31.5 * giga}},
        {"pcie5", {6 * micro, 63 * giga}},           {"infiniband-edr", {8 * micro, 12.5 * giga}}, // 100 Gb/s
        {"infiniband-hdr", {8 * micro, 25 * giga}},                                                // 200 Gb/s
        {"infiniband-ndr", {8 * micro, 50 * giga}},                                                // 400 Gb/s
        {"ethernet-10", {30 * micro, 1.25 * giga}},  {"ethernet-25", {30 * micro, 3.125 * giga}},
        {"ethernet-100", {20 * micro, 12.5 * giga}}, {"ethernet-400", {12 * micro, 50 * giga}},
    };
    return all;
}

// Of one multiprocessor in a clock.
struct ClockRate {
    double flops16, flops32;
};

// By NVIDIA's tables of arithmetic throughput by compute capability, and what data sheets divided by clock and
// multiprocessors give. GeForce boards add up 16-bit products in float32 at half the rate of others of their chip.
// What is newer than all of these is taken for the newest of its line.
ClockRate rate_of(int compute_capability, const std::string& model) {
    if (compute_capability < 80) return {.flops16 = 1024, .flops32 = 128};
    if (compute_capability == 80) return {.flops16 = 2048, .flops32 = 128};
    if (compute_capability / 10 == 9) return {.flops16 = 4096, .flops32 = 256};
    if (compute_capability / 10 == 10) return {.flops16 = 8192, .flops32 = 256};
    return {.flops16 = model.find("GeForce") == std::string::npos ? 1024.0 : 512.0, .flops32 = 256};
}

} // namespace

double peak_flops(const DeviceKind& kind, DType dtype) { return size_of(dtype) == 2 ? kind.flops16 : kind.flops32; }

KernelSpeed speed_of(const DeviceKind& kind, DType dtype) {
    return {.flops = peak_flops(kind, dtype) * kind.efficiency.products,
            .bytes = kind.bandwidth * kind.efficiency.memory,
            .launch = kind.launch};
}

std::span<const DevicePreset> device_presets() { return devices(); }

const DevicePreset* find_device_preset(std::string_view name) {
    const auto found = std::ranges::find(devices(), name, &DevicePreset::name);
    return found == devices().end() ? nullptr : &*found;
}

const DevicePreset* find_device_called(std::string_view model) {
    const auto found = std::ranges::find_if(
        devices(), [&](const DevicePreset& preset) { return std::ranges::count(preset.models, model) > 0; });
    return found == devices().end() ? nullptr : &*found;
}

DeviceKind kind_by_driver(const std::string& model, Bytes memory, const GpuFigures& figures) {
    const double clocks = figures.clock * figures.multiprocessors;
    const ClockRate rate = rate_of(figures.compute_capability, model);
    return {.name = model,
            .memory = memory,
            .flops16 = clocks * rate.flops16,
            .flops32 = clocks * rate.flops32,
            .bandwidth = 2 * figures.memory_clock * figures.memory_bits / 8};
}

std::span<const LinkPreset> link_presets() { return links(); }

const LinkPreset* find_link_preset(std::string_view name) {
    const auto found = std::ranges::find(links(), name, &LinkPreset::name);
    return found == links().end() ? nullptr : &*found;
}

} // namespace tutti::costs
