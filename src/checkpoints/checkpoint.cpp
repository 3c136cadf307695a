#include "checkpoints/checkpoint.h"

#include "base/error.h"
#include "base/limits.h"
#include "checkpoints/shared_tensors.h"
#include "checkpoints/tensor_pieces.h"
#include "checkpoints/whole_tensors.h"
#include "comm/agree.h"
#include "formats/checksum.h"
#include "formats/json.h"
#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

namespace tutti::checkpoints {
namespace {

constexpr int version = 1;
constexpr const char* state_file = "state.safetensors";
constexpr const char* metadata_file = "checkpoint.json";
constexpr const char* checksum_key = "checksum"; // of all else in the file, however it is spaced

// Weights are stored as the optimizer sees them: the master copy where there is one.
std::vector<SavedPart> parts_of(const offload::ModelData& data) {
    return {{"weights/", optimizer_weights(data)}, {"moments1/", Region::moments1}, {"moments2/", Region::moments2}};
}

constexpr std::string_view prefix = "step-", being_written = ".tmp", being_removed = "removed-";

std::string folder_name(std::int64_t step) { return fmt::format("{}{:08}", prefix, step); }

// None where it is not the name of a checkpoint.
std::optional<std::int64_t> step_in(std::string_view name) {
    if (!name.starts_with(prefix)) return std::nullopt;
    name.remove_prefix(prefix.size());
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (error != std::errc{} || end != name.data() + name.size() || step < 0) return std::nullopt;
    return step;
}

// Over the keys in alphabetical order, so that a reader can form it again.
std::string checksum_of(nlohmann::json metadata) {
    metadata.erase(checksum_key);
    const std::string text = metadata.dump();
    formats::Checksum checksum;
    checksum.update(std::as_bytes(std::span(text)));
    return checksum.hex();
}

} // namespace

std::string fingerprint(std::span<const StoredTensor> stored) {
    formats::Checksum checksum;
    for (const StoredTensor& tensor : stored) {
        const std::string line = tensor.name + to_string(tensor.type.shape) + '\n';
        checksum.update(std::as_bytes(std::span(line)));
    }
    return checksum.hex();
}

namespace {

void write_metadata(const fs::path& path, const CheckpointState& state, const std::string& model,
                    const std::string& checksum) {
    nlohmann::ordered_json json;
    json["tutti_checkpoint"] = version;
    json["step"] = state.step;
    json["samples"] = state.samples;
    json["seed"] = static_cast<std::int64_t>(state.seed);
    json["skipped"] = state.skipped;
    json["steps"] = state.steps;
    json["settings"] = state.settings;
    if (state.data_files) json["data_files"] = data::to_json(*state.data_files);
    json["model"] = model;
    json["files"] = {{state_file, checksum}};
    json[checksum_key] = checksum_of(json);
    write_text_atomically(path, json.dump(2) + "\n");
}

} // namespace

fs::path checkpoints_of(const fs::path& run) { return run / "checkpoints"; }

void expect_folder(const fs::path& run) {
    std::error_code ignored;
    const fs::path folder = checkpoints_of(run);
    if (fs::exists(fs::symlink_status(folder, ignored))) make_folders(folder); // of one that is there, it makes nothing
}

fs::path save_checkpoint(comm::Group& group, const fs::path& run, const CheckpointState& state,
                         std::span<const StoredTensor> stored, const offload::ModelData& data) {
    const fs::path folder = checkpoints_of(run) / folder_name(state.step);
    fs::path temporary = folder;
    temporary += being_written;
    try {
        comm::first_does(group, [&] {
            remove_quietly(temporary);
            make_folders(temporary);
        });
        const std::string checksum = write_whole_tensors(group, temporary / state_file, stored, data, parts_of(data),
                                                         {{"format", "tutti"}}, true);
        comm::first_does(group, [&] {
            write_metadata(temporary / metadata_file, state, fingerprint(stored), checksum);
            sync_folder(temporary);
            if (is_there(folder)) remove_checkpoint(folder); // the same step, saved again
            rename_durably(temporary, folder);
        });
    } catch (...) {
        if (group.rank() == 0) remove_quietly(temporary);
        throw;
    }
    return folder;
}

void remove_checkpoint(const fs::path& folder) {
    const fs::path gone = folder.parent_path() / (std::string(being_removed) + folder.filename().string());
    remove_quietly(gone);
    try {
        rename_durably(folder, gone); // whatever stops the removal from here on, this is no checkpoint any more
    } catch (const Error&) {
        return; // it stays, whole
    } catch (const WorldError&) {
        return;
    }
    remove_quietly(gone);
}

bool is_leftover(const fs::path& folder) {
    const std::string file = folder.filename().string();
    std::string_view name = file;
    if (name.starts_with(being_removed))
        name.remove_prefix(being_removed.size());
    else if (name.ends_with(being_written))
        name.remove_suffix(being_written.size());
    else
        return false;
    return step_in(name).has_value();
}

namespace {

void check_counts(const CheckpointState& state, const std::string& where) {
    auto check = [&](const char* key, std::int64_t count, std::int64_t most) {
        if (count < 0 || count > most) fail("{}: {} is {}; it has to be from 0 to {}", where, key, count, most);
    };
    check("step", state.step, limits::steps);
    check("steps", state.steps, limits::steps);
    check("skipped", state.skipped, limits::steps);
    check("samples", state.samples, limits::samples);
}

CheckpointInfo read_metadata(const fs::path& folder, const formats::JsonObject& object, const fs::path& path) {
    CheckpointInfo info;
    info.folder = folder;
    info.state.step = object.integer("step");
    info.state.samples = object.integer("samples");
    info.state.seed = static_cast<std::uint64_t>(object.integer("seed"));
    info.state.skipped = object.integer("skipped");
    info.state.steps = object.find_integer("steps").value_or(0);
    if (object.find("settings")) info.state.settings = object.object("settings").value();
    if (const nlohmann::json* files = object.find("data_files"))
        info.state.data_files = data::read_data_files(*files, path.string());
    info.model = object.string("model");
    info.file = state_file;
    info.checksum = object.object("files").string(state_file);
    check_counts(info.state, path.string());
    return info;
}

// No run leaves links that lead in a circle, and they do not pass as a failing disk may: so they are damage.
bool is_loop(const fs::path& path) {
    std::error_code failed;
    return !fs::exists(path, failed) && failed == std::errc::too_many_symbolic_link_levels;
}

bool is_regular(const fs::path& path) { return !is_loop(path) && is_file(path); }

// Opens it and reads of it: where that fails, nothing is known of what it holds.
void expect_readable(const fs::path& path) {
    if (is_loop(path)) throw Damage(fmt::format("{} is a link that leads in a circle", path.string()));
    if (!is_there(path)) throw Damage(fmt::format("{} is missing", path.string()));
    if (!is_file(path)) throw Damage(fmt::format("{} is not a regular file", path.string()));
    const InputFile file(path);
    std::byte first{};
    if (file.size() > 0) file.read(0, {&first, 1});
}

} // namespace

CheckpointInfo inspect_checkpoint(const fs::path& folder) {
    const fs::path path = folder / metadata_file;
    expect_readable(path);
    std::int64_t found = 0;
    try {
        const nlohmann::json json = formats::read_json(path);
        const formats::JsonObject object(json, path.string());
        found = object.integer("tutti_checkpoint");
        // Checkpoints made before it was introduced hold none.
        if (const auto checksum = object.find_string(checksum_key); checksum && *checksum != checksum_of(json))
            fail("{} was changed after it was written: its checksum differs", path.string());
        if (found == version) return read_metadata(folder, object, path);
    } catch (const Error& mistake) {
        throw Damage(mistake.what());
    }
    fail("{} is a checkpoint of version {}; this program reads version {}", folder.string(), found, version);
}

bool is_intact(const CheckpointInfo& info) {
    const fs::path path = info.folder / info.file;
    return is_regular(path) && formats::checksum_of_file(path) == info.checksum;
}

bool is_intact(comm::Group& group, const CheckpointInfo& info) {
    const fs::path path = info.folder / info.file;
    const std::string there = comm::first_decides(group, [&] { return std::string(is_regular(path) ? "there" : ""); });
    return !there.empty() && checksum_of_file(group, path) == info.checksum;
}

CheckpointList list_checkpoints(const fs::path& run) {
    CheckpointList list;
    for (const fs::path& folder : entries_of(checkpoints_of(run))) {
        const auto step = step_in(folder.filename().string());
        if (!step) continue;
        try {
            list.readable.push_back(inspect_checkpoint(folder));
        } catch (const Damage& damage) {
            list.damaged.push_back({folder, *step, damage.what()});
        }
    }
    std::ranges::sort(list.readable, std::ranges::greater{},
                      [](const CheckpointInfo& info) { return info.state.step; });
    return list;
}

namespace {

void read_part(const formats::SafetensorsFile& file, const SavedPart& part, const offload::ModelData& data,
               std::int32_t owned) {
    const memory::OwnedTensor& tensor = data.tensor(owned);
    const std::string name = part.prefix + tensor.name;
    const DType dtype = data.dtype(part.region);
    const formats::TensorEntry* entry = file.find(name);
    if (!entry || entry->type.shape != tensor.slice.whole || entry->type.dtype != dtype)
        fail("{} has no tensor {} of type {}{}", file.path().string(), name, name_of(dtype),
             to_string(tensor.slice.whole));
    const MakePiece read = [&](std::span<const sharding::SliceRun> runs, std::span<std::byte> piece) {
        read_runs(runs, piece, size_of(dtype), [&](std::int64_t first, std::span<std::byte> out) {
            file.read_range(*entry, static_cast<std::uint64_t>(first), out);
        });
    };
    if (part.region == optimizer_weights(data))
        fill_weights(data, owned, read);
    else
        fill_owned(data, part.region, owned, read);
}

} // namespace

void load_checkpoint(comm::Group& group, const CheckpointInfo& info, std::span<const StoredTensor> stored,
                     const offload::ModelData& data) {
    comm::agree(group, [&] {
        if (info.model != fingerprint(stored))
            fail("{} is a checkpoint of another model: its tensors have other names or shapes", info.folder.string());
        const formats::SafetensorsFile file(info.folder / info.file);
        for (const SavedPart& part : parts_of(data))
            for (std::int32_t owned = 0; owned < data.tensors(); ++owned) read_part(file, part, data, owned);
    });
}

} // namespace tutti::checkpoints
