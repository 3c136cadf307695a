// What the backends' kernels for attention have in common before any of them computes.
#pragma once

#include "backend/device.h"
#include "graph/attention.h"

#include <span>
#include <string>
#include <string_view>

namespace tutti::backend {

// All that attention and its gradient may have.
std::span<const std::string_view> attention_attributes();

// Error where a request has an attribute that is none of these: a kernel that passed it over would compute something
// else than was asked for.
void expect_attributes(const std::string& backend, const KernelRequest& request,
                       std::span<const std::string_view> known);

} // namespace tutti::backend
