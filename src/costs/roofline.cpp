#include "base/error.h"
#include "costs/cost_model.h"
#include "costs/operator_cost.h"

#include <algorithm>

namespace tutti::costs {
namespace {

// An assumption, until it is measured: collectives take some of the units and of the memory's bandwidth.
constexpr Contention assumed_contention{.compute = 1.1, .communication = 1.2};

// The type that the products are of: that of the largest input, since others may be scalars or statistics.
DType computed_in(Types inputs) {
    const TensorType* largest = nullptr;
    for (const TensorType& input : inputs)
        if (is_floating(input.dtype) && (!largest || input.bytes() > largest->bytes())) largest = &input;
    return largest ? largest->dtype : DType::float32;
}

// Shares of the peak flops, and of the memory's bandwidth.
struct Shares {
    double flops, bytes;
};

Shares shares_of(KernelClass kernels, const Efficiency& share) {
    switch (kernels) {
    case KernelClass::general: return {share.products, share.memory};
    case KernelClass::attention: return {share.attention, share.memory};
    case KernelClass::attention_gradient: return {share.attention_gradient, share.memory};
    case KernelClass::head: return {share.head, share.memory};
    case KernelClass::optimizer: return {share.products, share.optimizer};
    }
    return {share.products, share.memory};
}

} // namespace

double overlapped_seconds(double compute, double communication, const Contention& contention) {
    const double slow_compute = compute * contention.compute,
                 slow_communication = communication * contention.communication;
    const double both = std::min(slow_compute, slow_communication);
    const double after = slow_compute <= slow_communication ? communication - both / contention.communication
                                                            : compute - both / contention.compute;
    return std::min(both + after, compute + communication);
}

RooflineCost::RooflineCost(const Cluster& cluster, const OperatorSet& operators)
    : cluster_(cluster), operators_(operators) {
    for (std::size_t i = 0; i < cluster.kinds.size(); ++i) levels_.push_back(cluster.levels_of(static_cast<int>(i)));
}

const NodeKind& RooflineCost::at(int kind) const {
    TUTTI_CHECK(kind >= 0 && kind < static_cast<int>(cluster_.kinds.size()), "kind {} of {}", kind,
                cluster_.kinds.size());
    return cluster_.kinds[static_cast<std::size_t>(kind)];
}

double RooflineCost::kernel_seconds(std::string_view op, Types inputs, Types outputs, const Attributes& attributes,
                                    int kind) const {
    const DeviceKind& device = at(kind).device;
    const Cost cost = cost_of(operators_, op, inputs, outputs, attributes);
    const Operator* known = operators_.find(op);
    const Shares shares = shares_of(known ? known->kernel_class : KernelClass::general, device.efficiency);
    const double flops = peak_flops(device, computed_in(inputs)) * shares.flops;
    const double bytes = device.bandwidth * shares.bytes;
    return device.launch + std::max(cost.flops.count / flops, static_cast<double>(cost.bytes.count) / bytes);
}

double RooflineCost::kernel_seconds(const Instruction& instruction, int kind) const {
    return kernel_seconds(instruction.op, types_of(instruction.inputs), types_of(instruction.outputs),
                          instruction.attributes, kind);
}

double RooflineCost::collective_seconds(Collective what, Bytes bytes, const GroupShape& shape, int kind) const {
    at(kind);
    return tutti::costs::collective_seconds(what, bytes, shape, levels_[static_cast<std::size_t>(kind)]);
}

double RooflineCost::message_seconds(Bytes bytes, int level, int senders, int kind) const {
    at(kind);
    return tutti::costs::message_seconds(bytes, level, levels_[static_cast<std::size_t>(kind)], senders);
}

double RooflineCost::host_copy_seconds(Bytes bytes, int kind) const {
    const LinkSpeed& copy = at(kind).host_copy;
    return copy.latency + static_cast<double>(bytes.count) / copy.bytes;
}

double RooflineCost::optimizer_seconds(std::int64_t parameters, std::int64_t bytes_each, int kind) const {
    const DeviceKind& device = at(kind).device;
    return device.launch + static_cast<double>(parameters) * static_cast<double>(bytes_each) /
                               (device.bandwidth * device.efficiency.optimizer);
}

Contention RooflineCost::contention(int kind) const {
    at(kind);
    return assumed_contention;
}

} // namespace tutti::costs
