// Casts between element types, and accumulation into a tensor that may be wider than what is added.
#include "backend/cuda/elementwise.h"

namespace tutti::backend::cuda {
namespace {

template <class Make>
std::unique_ptr<Kernel> for_element(const KernelRequest& request, DType dtype, Make make) {
    if (dtype == DType::boolean) return make.template operator()<Boolean>();
    return for_number(request, dtype, make);
}

std::unique_ptr<Kernel> prepare_cast(const KernelRequest& request) {
    return for_element(request, request.inputs[0].type.dtype, [&]<class From>() {
        return for_element(request, request.outputs[0].type.dtype, [&]<class To>() -> std::unique_ptr<Kernel> {
            return std::make_unique<ElementKernel<Same, To, From>>(request);
        });
    });
}

template <class To, class From>
std::unique_ptr<Kernel> add_to(const KernelRequest& request) {
    return std::make_unique<ElementKernel<Sum, To, To, From>>(request, Sum{}, true);
}

std::unique_ptr<Kernel> prepare_accumulate(const KernelRequest& request) {
    if (!request.accumulate) return prepare_cast(request);
    const DType from = request.inputs[0].type.dtype, to = request.outputs[0].type.dtype;
    if (is_floating(from) && is_floating(to))
        return for_floating(request, from, [&]<class From>() {
            return for_floating(request, to, [&]<class To>() { return add_to<To, From>(request); });
        });
    if (from == DType::int64 && to == from) return add_to<std::int64_t, std::int64_t>(request);
    if (from == DType::int32 && to == from) return add_to<std::int32_t, std::int32_t>(request);
    fail_unsupported(backend_name, request);
}

} // namespace

void add_cast_kernels(KernelTable& table) {
    table.add("cast", PrepareKernel(prepare_cast));
    table.add("accumulate", PrepareKernel(prepare_accumulate));
}

} // namespace tutti::backend::cuda
