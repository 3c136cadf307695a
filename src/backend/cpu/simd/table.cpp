// The table of one instruction set.
#include "backend/cpu/simd/parts.h"

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)

namespace tutti::backend::cpu::TUTTI_ISA {

const Simd& table() {
    static const Simd all = {NAME_OF(TUTTI_ISA),
                             element_function,
                             accumulate_function,
                             gated_gradient_function,
                             adamw_function,
                             row_functions<float>(),
                             row_functions<BFloat16>(),
                             attention_functions<float>(),
                             attention_functions<BFloat16>()};
    return all;
}

} // namespace tutti::backend::cpu::TUTTI_ISA
