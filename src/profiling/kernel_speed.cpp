#include "profiling/kernel_speed.h"

#include "comm/measure.h"

#include <algorithm>
#include <limits>

namespace tutti::profiling {
namespace {

constexpr double settling_time = 0.004; // seconds, for the clock and the device to settle

backend::Operand dense_operand(DType dtype, const Shape& shape) { return {{dtype, shape}, dense_strides(shape)}; }

Bytes operand_bytes(const backend::KernelRequest& request) {
    Bytes bytes;
    for (const backend::Operand& operand : request.inputs) bytes += operand.type.bytes();
    for (const backend::Operand& operand : request.outputs) bytes += operand.type.bytes();
    return bytes;
}

// The quickest of a few runs.
Seconds time_of(const backend::Device& device, const backend::KernelRequest& request) {
    Bytes inputs, outputs;
    for (const backend::Operand& operand : request.inputs) inputs += operand.type.bytes();
    for (const backend::Operand& operand : request.outputs) outputs += operand.type.bytes();
    const std::unique_ptr<backend::Kernel> kernel = device.prepare(request);
    const auto memory = device.allocate(inputs), result = device.allocate(outputs),
               workspace = device.allocate({std::max<std::int64_t>(kernel->workspace().count, 1)});
    const auto queue = device.make_queue();
    std::vector<const std::byte*> in;
    std::int64_t at = 0;
    for (const backend::Operand& operand : request.inputs) {
        in.push_back(memory->data() + at);
        at += operand.type.bytes().count;
    }
    std::byte* const out = result->data();
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 4; ++i) { // in the first, libraries may load what they need
        queue->synchronize();
        const Seconds begin = steady_now();
        kernel->run({.inputs = in, .outputs = {&out, 1}, .workspace = workspace->data(), .queue = queue.get()});
        queue->synchronize();
        if (i > 0) best = std::min(best, steady_now().count - begin.count);
    }
    return {std::max(best, 1e-9)};
}

backend::KernelRequest matmul(DType dtype, std::int64_t size) {
    const backend::Operand square = dense_operand(dtype, {size, size});
    return {.op = "linear", .attributes = {}, .inputs = {square, square}, .outputs = {square}, .source = "speed"};
}

backend::KernelRequest copy(DType dtype, std::int64_t elements) {
    const backend::Operand all = dense_operand(dtype, {elements});
    return {.op = "contiguous", .attributes = {}, .inputs = {all}, .outputs = {all}, .source = "speed"};
}

} // namespace

KernelSpeed measure_kernels(const backend::Device& device, DType dtype, Bytes room) {
    KernelSpeed speed;
    auto is_too_large = [&](const backend::KernelRequest& request) { return operand_bytes(request) > room; };
    speed.launch = time_of(device, copy(dtype, 64)).count;
    for (std::int64_t size = 128; size <= 8192; size *= 2) {
        if (size > 128 && is_too_large(matmul(dtype, size))) break;
        const double taken = time_of(device, matmul(dtype, size)).count;
        const auto side = static_cast<double>(size);
        speed.flops = 2 * side * side * side / std::max(taken - speed.launch, taken / 2);
        if (taken >= settling_time) break;
    }
    for (std::int64_t elements = 1 << 18; elements <= 1 << 27; elements *= 4) {
        if (elements > 1 << 18 && is_too_large(copy(dtype, elements))) break;
        const double taken = time_of(device, copy(dtype, elements)).count;
        const auto bytes = static_cast<double>(2 * elements * size_of(dtype));
        speed.bytes = bytes / std::max(taken - speed.launch, taken / 2);
        if (taken >= settling_time) break;
    }
    return speed;
}

} // namespace tutti::profiling
