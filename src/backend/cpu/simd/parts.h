// What the files of this folder contribute to one instruction set's table.
#pragma once

#include "backend/cpu/simd/math.h"
#include "backend/cpu/simd/simd.h"

namespace tutti::backend::cpu::TUTTI_ISA {

ElementFunction element_function(ElementOp op, DType dtype);
ElementFunction accumulate_function(DType from, DType to);
GatedGradientFunction gated_gradient_function(ElementOp gated, DType dtype);
AdamwFunction adamw_function(DType gradients, DType weights, DType moments);

template <class T>
RowFunctions<T> row_functions(); // constant-initialised tables are built from these
template <class T>
AttentionFunctions attention_functions();

} // namespace tutti::backend::cpu::TUTTI_ISA
