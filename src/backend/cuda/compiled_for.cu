// What the kernels of this build were compiled for.
#include "backend/cuda/cuda.h"

namespace tutti::backend::cuda {
namespace {

// Compiled as all others are, so it speaks for them.
__global__ void one_of_all() {}

} // namespace

int compiled_for() {
    cudaFuncAttributes attributes{};
    const cudaError_t status = cudaFuncGetAttributes(&attributes, one_of_all);
    if (status == cudaSuccess) return attributes.ptxVersion;
    (void)cudaGetLastError();
    for (const cudaError_t none :
         {cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction, cudaErrorUnsupportedPtxVersion})
        if (status == none) return 0;
    check(status, "looking for kernels for this GPU");
    return 0;
}

} // namespace tutti::backend::cuda
