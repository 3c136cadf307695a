#include "profiling/kept_profile.h"

#include "base/cache_folder.h"
#include "base/counted.h"
#include "base/error.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <vector>

namespace tutti::profiling {

std::optional<fs::path> profile_place(const costs::Fingerprint& machine, const comm::World& world, DType dtype) {
    const auto folder = cache_folder();
    if (!folder) return std::nullopt;
    std::string name = fmt::format("profile {} {} {}x{}{} {}", machine.device, machine.model, world.size(),
                                   machine.threads, world.shares_process() ? " threads" : "", name_of(dtype));
    for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
    return *folder / (name.substr(0, 200) + ".json");
}

KeptProfile find_profile(const fs::path& file, const costs::Fingerprint& here, int ranks, DType dtype) {
    std::error_code ignored; // what cannot be looked at is not there
    if (!fs::is_regular_file(file, ignored)) return {};
    try {
        costs::CostProfile profile = costs::read_profile(file);
        costs::check_fits(profile, here, file.string());
        if (profile.ranks != ranks || profile.dtype != dtype)
            fail("{} was measured with {} in {}", file.string(), counted(profile.ranks, "rank"),
                 name_of(profile.dtype));
        return {.profile = std::move(profile)};
    } catch (const Error& error) {
        return {.why_not = error.what()};
    }
}

KeptProfile
newest_profile(const std::function<costs::Fingerprint(const std::string& device, int threads)>& fingerprint_with) {
    KeptProfile found;
    const auto folder = cache_folder();
    std::error_code ignored;
    if (!folder || !fs::is_directory(*folder, ignored)) return found;
    std::vector<std::pair<fs::file_time_type, fs::path>> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(*folder, ignored))
        if (entry.path().filename().string().starts_with("profile_") && entry.path().extension() == ".json")
            files.emplace_back(entry.last_write_time(ignored), entry.path());
    std::ranges::sort(files, std::greater{});
    for (const auto& [time, file] : files) {
        try {
            costs::CostProfile profile = costs::read_profile(file);
            costs::check_fits(profile, fingerprint_with(profile.machine.device, profile.machine.threads),
                              file.string());
            return {.profile = std::move(profile)};
        } catch (const Error& error) {
            if (found.why_not.empty()) found.why_not = error.what();
        }
    }
    return found;
}

void keep_profile(const fs::path& file, costs::CostProfile profile) {
    try {
        make_folders(file.parent_path());
        KeptProfile before = find_profile(file, profile.machine, profile.ranks, profile.dtype);
        if (before.profile) profile.kernels.merge(before.profile->kernels); // new figures win
        write_text_atomically(file, costs::to_json(profile));
    } catch (const Error&) {
    } catch (const WorldError&) {
    }
}

} // namespace tutti::profiling
