#include "backend/kernel_table.h"

#include "base/error.h"

namespace tutti::backend {
namespace {

class FunctionKernel : public Kernel {
  public:
    FunctionKernel(KernelFunction function, KernelRequest request)
        : function_(std::move(function)), request_(std::move(request)) {}
    void run(const Launch& launch) const override { function_(request_, launch); }

  private:
    KernelFunction function_;
    KernelRequest request_;
};

} // namespace

void KernelTable::add(std::string op, PrepareKernel prepare) { kernels_[std::move(op)] = std::move(prepare); }

void KernelTable::add(std::string op, KernelFunction function) {
    add(std::move(op), PrepareKernel([function = std::move(function)](const KernelRequest& request) {
            return std::make_unique<FunctionKernel>(function, request);
        }));
}

std::unique_ptr<Kernel> KernelTable::prepare(const std::string& backend, const KernelRequest& request) const {
    const auto at = kernels_.find(request.op);
    if (at == kernels_.end()) fail("the {} backend has no kernel for {}", backend, describe(request));
    return at->second(request);
}

std::vector<std::string> KernelTable::names() const {
    std::vector<std::string> names;
    for (const auto& [name, prepare] : kernels_) names.push_back(name);
    return names;
}

std::string describe(const KernelRequest& request) {
    std::string inputs, outputs;
    for (const Operand& operand : request.inputs) inputs += (inputs.empty() ? "" : ", ") + to_string(operand.type);
    for (const Operand& operand : request.outputs) outputs += (outputs.empty() ? "" : ", ") + to_string(operand.type);
    return fmt::format("{}({}) -> {}", request.op, inputs, outputs);
}

void fail_unsupported(const std::string& backend, const KernelRequest& request) {
    fail("the {} backend has no kernel for {}", backend, describe(request));
}

} // namespace tutti::backend
