// The kernels of a backend, by operator name. Most kernels are a plain function of their request and the pointers;
// those that prepare something (a library primitive, a workspace) are classes of their own.
#pragma once

#include "backend/device.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti::backend {

using KernelFunction = std::function<void(const KernelRequest&, const Launch&)>;
using PrepareKernel = std::function<std::unique_ptr<Kernel>(const KernelRequest&)>;

class KernelTable {
  public:
    void add(std::string op, PrepareKernel prepare);
    void add(std::string op, KernelFunction function); // without workspace
    bool has(const std::string& op) const { return kernels_.contains(op); }
    // Error naming the backend, the operator and its operand types where there is none.
    std::unique_ptr<Kernel> prepare(const std::string& backend, const KernelRequest& request) const;
    std::vector<std::string> names() const;

  private:
    std::map<std::string, PrepareKernel> kernels_;
};

// "add(float32[2,3], float32[3]) -> float32[2,3]"
std::string describe(const KernelRequest& request);
// Throws Error: this backend's kernel does not take these operands.
[[noreturn]] void fail_unsupported(const std::string& backend, const KernelRequest& request);

} // namespace tutti::backend
