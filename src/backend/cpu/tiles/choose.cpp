// Compiled for any x86-64: which arithmetic this CPU and its system run.
#include "backend/cpu/tiles/tiles.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace tutti::backend::cpu::tiles {
namespace {

struct Features {
    bool avx512_bf16 = false, amx = false;
};

// Linux gives room for tile registers only to processes that ask for it, once and for all their threads.
bool may_use_tiles() {
    constexpr long request_permission = 0x1023, tile_data = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

Features find_features() {
    Features found;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return found;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) found.avx512_bf16 = (a >> 5 & 1) != 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        const bool has_tiles = (d >> 24 & 1) != 0 && (d >> 22 & 1) != 0; // AMX-TILE, AMX-BF16
        found.amx = has_tiles && may_use_tiles();
    }
    return found;
}

const Features& features() {
    static const Features found = find_features();
    return found;
}

} // namespace

bool runs(const Arithmetic& arithmetic) {
    if (&arithmetic == &amx()) return features().amx;
    return &arithmetic != &avx512_bf16() || features().avx512_bf16;
}

const Arithmetic* best() {
    const char* asked = std::getenv("TUTTI_SIMD");
    const std::string_view most = asked ? asked : "";
    if (most.empty() && features().amx) return &amx();
    if ((most.empty() || most == "avx512_bf16") && features().avx512_bf16) return &avx512_bf16();
    return nullptr;
}

} // namespace tutti::backend::cpu::tiles
