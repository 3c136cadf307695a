// What the fuzz targets share. A target hands bytes to the function that reads them in the program. They are refused
// with an Error, or they give a value, with which the target goes on as the program would. Whatever else leaves a
// target ends the process, and libFuzzer keeps the bytes. So it is where an input takes a processor more than a second:
// libFuzzer's own limit is of the clock, which goes on while a busy machine does other things.
#pragma once

#include "base/error.h"
#include "base/file.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::fuzz {

// Of each target.
int read_input(const std::uint8_t* data, std::size_t size);

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

// Whether `read` came to its end. A WorldError is no answer to bytes: trying again would not help.
template <class Read>
bool accepts(Read read) {
    try {
        read();
        return true;
    } catch (const Error&) {
        return false;
    }
}

// A folder in memory, for functions that take a path. A target writes its files anew for every input.
class Folder {
  public:
    Folder();
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder();

    fs::path operator/(std::string_view name) const { return path_ / name; }
    const fs::path& path() const { return path_; }
    void make(std::string_view folder) const; // within
    void write(std::string_view name, std::string_view bytes) const;

  private:
    fs::path path_;
};

// A safetensors file of a few small tensors, for targets whose bytes stand beside one.
std::string small_safetensors(std::string_view prefix);

} // namespace tutti::fuzz
