#include "backend/attention.h"

#include "backend/kernel_table.h"
#include "base/error.h"

#include <algorithm>

namespace tutti::backend {

std::span<const std::string_view> attention_attributes() {
    static constexpr std::string_view all[] = {
        "causal",   "dropout", "first_head", "first_key", "first_query",   "first_sample", "scale",
        "soft_cap", "takes",   "wants",      "window",    "whole_queries", "whole_keys"};
    return all;
}

void expect_attributes(const std::string& backend, const KernelRequest& request,
                       std::span<const std::string_view> known) {
    for (const auto& [name, value] : request.attributes.entries())
        if (std::ranges::find(known, name) == known.end())
            fail("the {} backend has no kernel for {} with {}={}", backend, describe(request), name, to_string(value));
}

} // namespace tutti::backend
