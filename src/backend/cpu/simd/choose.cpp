// Compiled once, for any x86-64: which of the tables this CPU runs. TUTTI_SIMD=baseline|avx2 asks for a lesser one.
#include "backend/cpu/simd/simd.h"

#include <cstdlib>
#include <string_view>

namespace tutti::backend::cpu {
namespace {

const Simd& choose() {
    const char* asked = std::getenv("TUTTI_SIMD");
    const std::string_view most = asked ? asked : "";
    if (most == "baseline") return baseline::table();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (avx512 && most != "avx2") return avx512::table();
    return avx2 ? avx2::table() : baseline::table();
}

} // namespace

const Simd& simd() {
    static const Simd& chosen = choose();
    return chosen;
}

} // namespace tutti::backend::cpu
