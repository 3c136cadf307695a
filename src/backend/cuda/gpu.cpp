// Which GPU is at hand, and whether this build has kernels for it.
#include "backend/cuda/cuda.h"

#include "base/error.h"
#include "base/units.h"

#include <algorithm>
#include <cstdlib>
#include <span>

namespace tutti::backend::cuda {
namespace {

constexpr int oldest = 80; // bf16, and copies to shared memory that pass registers by

// What a block may have of a multiprocessor's shared memory. Tests run kernels as on GPUs that have less:
// TUTTI_GPU_SHARED_MEMORY=99KiB is that of the RTX cards.
int shared_memory_of(const cudaDeviceProp& properties) {
    const auto own = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
    const char* given = std::getenv("TUTTI_GPU_SHARED_MEMORY");
    if (given == nullptr || *given == '\0') return static_cast<int>(own);
    const auto limit = parse_bytes(given);
    constexpr std::int64_t least = 48 << 10; // every GPU's, without asking for more
    if (!limit || limit->count < least)
        fail("TUTTI_GPU_SHARED_MEMORY is {}, and should be a size from {}, as in 99KiB", given,
             to_string(Bytes{least}));
    return static_cast<int>(std::min(own, limit->count));
}

double attribute(const Gpu& gpu, cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, gpu.number), "asking for the GPU's properties");
    return value;
}

} // namespace

Gpu describe_gpu(int number) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, number), "asking for the GPU's properties");
    if (10 * properties.major + properties.minor < oldest)
        fail(
            "the device cuda cannot be used here: {} has compute capability {}.{}, and 8.0 (Ampere) or newer is needed",
            properties.name, properties.major, properties.minor);
    check(cudaSetDevice(number), "opening the GPU");
    const int compiled = compiled_for();
    if (compiled == 0)
        fail("the device cuda cannot be used here: {} has compute capability {}.{}, and this build is for {}; built on "
             "this machine it is for its GPU",
             properties.name, properties.major, properties.minor, TUTTI_CUDA_BUILT_FOR);
    return {.number = number,
            .name = properties.name,
            .multiprocessors = properties.multiProcessorCount,
            .major = properties.major,
            .minor = properties.minor,
            .l2_bytes = properties.l2CacheSize,
            .shared_bytes = shared_memory_of(properties),
            .identity = fmt::format("{:02x}", fmt::join(std::as_bytes(std::span(properties.uuid.bytes)), "")),
            .compiled_for = compiled};
}

GpuFigures figures_of(const Gpu& gpu) {
    return {.compute_capability = 10 * gpu.major + gpu.minor,
            .multiprocessors = gpu.multiprocessors,
            .clock = 1e3 * attribute(gpu, cudaDevAttrClockRate), // told in kHz
            .memory_clock = 1e3 * attribute(gpu, cudaDevAttrMemoryClockRate),
            .memory_bits = static_cast<int>(attribute(gpu, cudaDevAttrGlobalMemoryBusWidth))};
}

} // namespace tutti::backend::cuda
