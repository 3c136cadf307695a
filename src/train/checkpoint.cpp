#include "train/checkpoint.h"

#include "base/error.h"
#include "base/limits.h"
#include "comm/agree.h"
#include "formats/checksum.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "train/shared_tensors.h"
#include "train/tensor_pieces.h"
#include "train/whole_tensors.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr int version = 1;
constexpr const char* state_file = "state.safetensors";
constexpr const char* metadata_file = "checkpoint.json";
constexpr const char* checksum_key = "checksum"; // of all else in the file, however it is spaced

// Weights are stored as the optimizer sees them: the master copy where there is one.
std::vector<SavedPart> parts_of(const ModelData& data) {
    return {{"weights/", optimizer_weights(data)}, {"moments1/", Region::moments1}, {"moments2/", Region::moments2}};
}

std::string folder_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

// Those of later steps do not count: they are damaged ones that a resumed run went back behind.
void remove_old(const fs::path& run, std::int64_t step, std::int64_t keep) {
    for (const CheckpointInfo& info : list_checkpoints(run).readable) {
        if (info.state.step > step || keep-- > 0) continue;
        remove_quietly(info.folder);
    }
}

// Over the keys in alphabetical order, so that a reader can form it again.
std::string checksum_of(nlohmann::json metadata) {
    metadata.erase(checksum_key);
    const std::string text = metadata.dump();
    Checksum checksum;
    checksum.update(std::as_bytes(std::span(text)));
    return checksum.hex();
}

} // namespace

std::string fingerprint(std::span<const StoredTensor> stored) {
    Checksum checksum;
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
    if (state.data_files) json["data_files"] = to_json(*state.data_files);
    json["model"] = model;
    json["files"] = {{state_file, checksum}};
    json[checksum_key] = checksum_of(json);
    write_text_atomically(path, json.dump(2) + "\n");
}

} // namespace

fs::path save_checkpoint(Group& group, const fs::path& run, const CheckpointState& state,
                         std::span<const StoredTensor> stored, const ModelData& data, std::int64_t keep) {
    const fs::path folder = run / "checkpoints" / folder_name(state.step);
    fs::path temporary = folder;
    temporary += ".tmp";
    try {
        first_does(group, [&] {
            remove_quietly(temporary);
            make_folders(temporary);
        });
        const std::string checksum = write_whole_tensors(group, temporary / state_file, stored, data, parts_of(data),
                                                         {{"format", "tutti"}}, true);
        first_does(group, [&] {
            write_metadata(temporary / metadata_file, state, fingerprint(stored), checksum);
            sync_folder(temporary);
            remove_quietly(folder); // the same step, saved again
            rename_durably(temporary, folder);
            remove_old(run, state.step, keep);
        });
    } catch (...) {
        if (group.rank() == 0) remove_quietly(temporary);
        throw;
    }
    return folder;
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

} // namespace

CheckpointInfo inspect_checkpoint(const fs::path& folder) {
    const fs::path path = folder / metadata_file;
    const nlohmann::json json = read_json(path);
    const JsonObject object(json, path.string());
    if (const std::int64_t found = object.integer("tutti_checkpoint"); found != version)
        fail("{} is a checkpoint of version {}; this program reads version {}", folder.string(), found, version);
    // Checkpoints made before it was introduced hold none.
    if (const auto checksum = object.find_string(checksum_key); checksum && *checksum != checksum_of(json))
        fail("{} was changed after it was written: its checksum differs", path.string());
    CheckpointInfo info;
    info.folder = folder;
    info.state.step = object.integer("step");
    info.state.samples = object.integer("samples");
    info.state.seed = static_cast<std::uint64_t>(object.integer("seed"));
    info.state.skipped = object.integer("skipped");
    info.state.steps = object.find_integer("steps").value_or(0);
    if (object.find("settings")) info.state.settings = object.object("settings").value();
    if (const nlohmann::json* files = object.find("data_files"))
        info.state.data_files = read_data_files(*files, path.string());
    info.model = object.string("model");
    info.file = state_file;
    info.checksum = object.object("files").string(state_file);
    check_counts(info.state, path.string());
    return info;
}

bool is_intact(const CheckpointInfo& info) {
    const fs::path path = info.folder / info.file;
    return is_there(path) && checksum_of_file(path) == info.checksum;
}

bool is_intact(Group& group, const CheckpointInfo& info) {
    const fs::path path = info.folder / info.file;
    const std::string there = first_decides(group, [&] { return std::string(is_there(path) ? "there" : ""); });
    return !there.empty() && checksum_of_file(group, path) == info.checksum;
}

CheckpointList list_checkpoints(const fs::path& run) {
    CheckpointList list;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints", error)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("step-") || name.ends_with(".tmp")) continue;
        try {
            list.readable.push_back(inspect_checkpoint(entry.path()));
        } catch (const Error& damage) {
            list.unreadable.push_back(damage.what());
        }
    }
    std::ranges::sort(list.readable, std::ranges::greater{},
                      [](const CheckpointInfo& info) { return info.state.step; });
    return list;
}

namespace {

void read_part(const SafetensorsFile& file, const SavedPart& part, const ModelData& data, std::int32_t held) {
    const HeldTensor& tensor = data.tensor(held);
    const std::string name = part.prefix + tensor.name;
    const DType dtype = data.dtype(part.region);
    const TensorEntry* entry = file.find(name);
    if (!entry || entry->shape != tensor.slice.whole || entry->dtype != dtype)
        fail("{} has no tensor {} of type {}{}", file.path().string(), name, name_of(dtype),
             to_string(tensor.slice.whole));
    const MakePiece read = [&](std::span<const Stretch> stretches, std::span<std::byte> piece) {
        read_stretches(stretches, piece, size_of(dtype), [&](std::int64_t first, std::span<std::byte> out) {
            file.read_range(*entry, static_cast<std::uint64_t>(first), out);
        });
    };
    if (part.region == optimizer_weights(data))
        fill_weights(data, held, read);
    else
        fill_held(data, part.region, held, read);
}

} // namespace

void load_checkpoint(Group& group, const CheckpointInfo& info, std::span<const StoredTensor> stored,
                     const ModelData& data) {
    agree(group, [&] {
        if (info.model != fingerprint(stored))
            fail("{} is a checkpoint of another model: its tensors have other names or shapes", info.folder.string());
        const SafetensorsFile file(info.folder / info.file);
        for (const SavedPart& part : parts_of(data))
            for (std::int32_t held = 0; held < data.tensors(); ++held) read_part(file, part, data, held);
    });
}

} // namespace tutti
