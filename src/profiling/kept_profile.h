// The profile of this machine, kept from run to run: `tutti profile` writes it, `tutti plan` reads it, and `tutti
// train` adds the kernels that it had to time.
#pragma once

#include "base/file.h"
#include "comm/group.h"
#include "costs/profile.h"

#include <functional>
#include <optional>
#include <string>

namespace tutti::profiling {

// The file for a world whose ranks compute in this type; nothing where there is no folder for such things.
std::optional<fs::path> profile_place(const costs::Fingerprint& machine, const comm::World& world, DType dtype);

struct KeptProfile {
    std::optional<costs::CostProfile> profile{};
    std::string why_not{}; // a sentence, where there is a file that does not hold
};
KeptProfile find_profile(const fs::path& file, const costs::Fingerprint& here, int ranks, DType dtype);
// The newest of this machine that holds, whatever its ranks and type. `fingerprint_with`: of so many threads.
KeptProfile
newest_profile(const std::function<costs::Fingerprint(const std::string& device, int threads)>& fingerprint_with);

// Kernels that the file has beside those of the profile stay in it. Where it cannot be written, nothing is kept.
void keep_profile(const fs::path& file, costs::CostProfile profile);

} // namespace tutti::profiling
