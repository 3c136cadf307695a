// The files that a run's data comes from, as a checkpoint records them: so that a run does not go on with other data
// unnoticed.
#pragma once

#include "data/token_source.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::data {

struct DataFile {
    std::string path; // as recorded_data gives it
    std::uint64_t bytes = 0;
    std::string checksum; // of 64 blocks spread over the file, the first and the last among them

    bool operator==(const DataFile&) const = default;
};

// None where the data is made up. Reads 256 KiB of each file.
std::vector<DataFile> data_files(const TokenSource& source);

// Which file of `then` holds something else now, and how they differ, as in "tokens.bin holds 2000 bytes, and held
// 1000"; empty where none does. Paths do not count, so files may have moved; more files may have come at the end.
std::string changed_data(const std::vector<DataFile>& then, const std::vector<DataFile>& now);

// What --data names, as a record in JSON holds it: absolute, and in UTF-8 whatever the path is in.
std::string recorded_data(const std::string& data);
nlohmann::ordered_json to_json(const std::vector<DataFile>& files);
std::vector<DataFile> read_data_files(const nlohmann::json& json, const std::string& where);

} // namespace tutti::data
