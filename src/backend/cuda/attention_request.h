// A request for attention or its gradient as the kernels of this folder take it.
#pragma once

#include "backend/cuda/attention_call.h"
#include "backend/cuda/attention_rows.h"
#include "backend/cuda/cuda.h"

#include <optional>
#include <string_view>

namespace tutti::backend::cuda {

struct AttentionRequest {
    bool backward = false;
    // Places of inputs; those of q, k and v follow each other.
    std::size_t q = 0;
    std::optional<std::size_t> mask, bias, sinks, documents; // documents: of the queries, and next that of the keys
    // Places of outputs, of the gradient.
    std::optional<std::size_t> dbias, dsinks;
    AttentionCall call; // without pointers

    // Error where no kernel here takes it.
    explicit AttentionRequest(const KernelRequest& request);

    // With what this run brings. The ranges of documents are computed into `ranges`, for which document_bytes() are
    // needed.
    AttentionCall at(const Launch& launch, std::byte* ranges) const;
    std::int64_t document_bytes() const;

  private:
    DocumentTask document_task_;
};

HeadStrides head_strides(const Operand& operand);

// Whether the heads of a tensor begin at multiples of `elements` and are multiples of it long, given that the first
// does.
bool heads_fit(const Operand& operand, std::int64_t elements);

} // namespace tutti::backend::cuda
