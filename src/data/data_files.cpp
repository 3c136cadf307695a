#include "data/data_files.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "base/system_error.h"
#include "formats/checksum.h"
#include "formats/json.h"

#include <fmt/format.h>

namespace tutti::data {
namespace {

constexpr std::uint64_t blocks = 64, block_bytes = 4096;

std::string sampled_checksum(const InputFile& file) {
    formats::Checksum checksum;
    if (file.size() <= blocks * block_bytes) {
        formats::update(checksum, file, 0, file.size());
        return checksum.hex();
    }
    const std::uint64_t last = file.size() - block_bytes; // where the last block begins
    for (std::uint64_t i = 0; i + 1 < blocks; ++i)
        formats::update(checksum, file, last / (blocks - 1) * i, block_bytes);
    formats::update(checksum, file, last, block_bytes);
    return checksum.hex();
}

} // namespace

std::string recorded_data(const std::string& data) {
    if (data == "builtin") return data;
    std::error_code failed;
    const std::string path = fs::absolute(data, failed).string();
    if (failed) fail_system(failed.value(), "cannot tell the current folder, in which {} is", data);
    return nlohmann::json::parse(formats::json_string(path)).get<std::string>();
}

std::vector<DataFile> data_files(const TokenSource& source) {
    std::vector<DataFile> files;
    for (const std::string& path : source.files()) {
        const InputFile file(path);
        files.push_back({recorded_data(path), file.size(), sampled_checksum(file)});
    }
    return files;
}

std::string changed_data(const std::vector<DataFile>& then, const std::vector<DataFile>& now) {
    if (then.empty() && !now.empty()) return fmt::format("it was built-in stories, and is {} now", now[0].path);
    for (std::size_t i = 0; i < then.size(); ++i) {
        if (i == now.size()) return fmt::format("{} is no part of it any more", then[i].path);
        if (now[i].bytes != then[i].bytes)
            return fmt::format("{} holds {}, and held {}", now[i].path, counted(now[i].bytes, "byte"), then[i].bytes);
        if (now[i].checksum != then[i].checksum)
            return fmt::format("{} holds as many bytes as before, but other ones", now[i].path);
    }
    return {};
}

nlohmann::ordered_json to_json(const std::vector<DataFile>& files) {
    auto json = nlohmann::ordered_json::array();
    for (const DataFile& file : files)
        json.push_back({{"path", file.path}, {"bytes", file.bytes}, {"checksum", file.checksum}});
    return json;
}

std::vector<DataFile> read_data_files(const nlohmann::json& json, const std::string& where) {
    if (!json.is_array()) fail("{}: data_files should be a list", where);
    std::vector<DataFile> files;
    for (const nlohmann::json& one : json) {
        const formats::JsonObject object(one, where + ": data_files");
        const std::int64_t bytes = object.integer("bytes");
        if (bytes < 0) fail("{} holds {} bytes", object.where(), bytes);
        files.push_back({object.string("path"), static_cast<std::uint64_t>(bytes), object.string("checksum")});
    }
    return files;
}

} // namespace tutti::data
