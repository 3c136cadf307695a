#include "train/checkpoint.h"

#include "base/error.h"
#include "formats/checksum.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "train/tensor_pieces.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr int version = 1;
constexpr const char* state_file = "state.safetensors";
constexpr const char* metadata_file = "checkpoint.json";
constexpr const char* checksum_key = "checksum"; // of all else in the file, however it is spaced

struct Part {
    const char* prefix;
    Region region;
};

// Weights are stored as the optimizer sees them: the master copy where there is one.
std::vector<Part> parts_of(const ModelData& data) {
    return {{"weights/", data.has(Region::master) ? Region::master : Region::weights},
            {"moments1/", Region::moments1},
            {"moments2/", Region::moments2}};
}

std::string folder_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

void write_state(const fs::path& path, std::span<const StoredTensor> stored, const ModelData& data,
                 std::string& checksum) {
    std::vector<TensorSpec> specs;
    for (const Part& part : parts_of(data))
        for (const StoredTensor& tensor : stored)
            specs.push_back({part.prefix + tensor.name, data.dtype(part.region), tensor.type.shape});
    SafetensorsWriter writer(path, specs, {{"format", "tutti"}});
    for (const Part& part : parts_of(data))
        for (std::size_t i = 0; i < stored.size(); ++i)
            for_each_piece(data, part.region, static_cast<std::int32_t>(i),
                           [&](std::int64_t, std::span<const std::byte> bytes) { writer.append(bytes); });
    writer.finish();
    checksum = writer.checksum();
}

// Those of later steps do not count: they are damaged ones that a resumed run went back behind.
void remove_old(const fs::path& run, std::int64_t step, std::int64_t keep) {
    for (const CheckpointInfo& info : list_checkpoints(run).readable) {
        if (info.state.step > step || keep-- > 0) continue;
        std::error_code ignored; // an old checkpoint that stays harms nobody
        fs::remove_all(info.folder, ignored);
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

fs::path save_checkpoint(const fs::path& run, const CheckpointState& state, std::span<const StoredTensor> stored,
                         const ModelData& data, std::int64_t keep) {
    const fs::path parent = run / "checkpoints", folder = parent / folder_name(state.step);
    fs::path temporary = folder;
    temporary += ".tmp";
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    make_folders(temporary);
    try {
        std::string checksum;
        write_state(temporary / state_file, stored, data, checksum);
        nlohmann::ordered_json json;
        json["tutti_checkpoint"] = version;
        json["step"] = state.step;
        json["samples"] = state.samples;
        json["seed"] = static_cast<std::int64_t>(state.seed);
        json["skipped"] = state.skipped;
        json["steps"] = state.steps;
        json["settings"] = state.settings;
        json["model"] = fingerprint(stored);
        json["files"] = {{state_file, checksum}};
        json[checksum_key] = checksum_of(json);
        write_text_atomically(temporary / metadata_file, json.dump(2) + "\n");
        sync_folder(temporary);
        fs::remove_all(folder, ignored); // the same step, saved again
        rename_durably(temporary, folder);
    } catch (...) {
        fs::remove_all(temporary, ignored);
        throw;
    }
    remove_old(run, state.step, keep);
    return folder;
}

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
    info.model = object.string("model");
    info.file = state_file;
    info.checksum = object.object("files").string(state_file);
    if (info.state.step < 0 || info.state.samples < 0) fail("{}: step and samples may not be negative", path.string());
    return info;
}

bool is_intact(const CheckpointInfo& info) {
    const fs::path path = info.folder / info.file;
    return fs::exists(path) && checksum_of_file(path) == info.checksum;
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

void load_checkpoint(const CheckpointInfo& info, std::span<const StoredTensor> stored, const ModelData& data) {
    if (info.model != fingerprint(stored))
        fail("{} is a checkpoint of another model: its tensors have other names or shapes", info.folder.string());
    const SafetensorsFile file(info.folder / info.file);
    for (const Part& part : parts_of(data)) {
        for (std::size_t i = 0; i < stored.size(); ++i) {
            const std::string name = part.prefix + stored[i].name;
            const TensorEntry* entry = file.find(name);
            if (!entry || entry->shape != stored[i].type.shape || entry->dtype != data.dtype(part.region))
                fail("{} has no tensor {} of type {}{}", file.path().string(), name, name_of(data.dtype(part.region)),
                     to_string(stored[i].type.shape));
            fill_pieces(data, part.region, static_cast<std::int32_t>(i),
                        [&](std::int64_t first, std::span<std::byte> bytes) {
                            file.read_range(*entry, static_cast<std::uint64_t>(first), bytes);
                        });
        }
    }
    if (data.has(Region::master)) round_master(data, stored.size());
}

} // namespace tutti
