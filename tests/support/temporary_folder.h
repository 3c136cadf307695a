// What tests that touch files share: a folder that goes away, bytes in and out, and the sentence of an Error.
#pragma once

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace tutti::test {

class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string pattern = (fs::temp_directory_path() / "tutti_test_XXXXXX").string();
        if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
        path_ = pattern;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }

    const fs::path& path() const { return path_; }
    fs::path operator/(std::string_view name) const { return path_ / name; }
    // Writes a file without syncing it, and gives its path.
    fs::path write(std::string_view name, std::string_view bytes) const {
        fs::remove(path_ / name); // truncating a file in place can wait for the disk
        std::FILE* file = std::fopen((path_ / name).c_str(), "wb");
        if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size())
            throw std::runtime_error("cannot write a test file");
        std::fclose(file);
        return path_ / name;
    }

  private:
    fs::path path_;
};

// A number's bytes, as they lie in a little-endian file.
template <class T>
std::string raw(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// The sentence of the Error that an action must throw.
template <class Action>
std::string error_of(Action action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "(no error)";
}

#define EXPECT_ERROR(expression, part)                                                                                 \
    EXPECT_NE(::tutti::test::error_of([&] { (void)(expression); }).find(part), std::string::npos)                      \
        << ::tutti::test::error_of([&] { (void)(expression); })

// Deterministic damage: a few bytes changed, removed, repeated or inserted.
class Mutator {
  public:
    explicit Mutator(std::uint64_t seed) : seed_(seed) {}

    std::string operator()(std::string bytes) {
        for (std::uint32_t changes = 1 + below(3); changes > 0 && !bytes.empty(); --changes) {
            const std::size_t place = below(static_cast<std::uint32_t>(bytes.size()));
            static constexpr std::string_view interesting("\0\xff\x7f\x80\"{}[]:,-019eE.\\ ", 20);
            switch (below(6)) {
            case 0: bytes[place] = static_cast<char>(below(256)); break;
            case 1: bytes[place] = interesting[below(interesting.size())]; break;
            case 2: bytes.erase(place, 1 + below(8)); break;
            case 3: bytes.insert(place, 1 + below(4), interesting[below(interesting.size())]); break;
            case 4: bytes.insert(place, bytes.substr(place, 1 + below(16))); break;
            case 5: bytes.resize(place); break;
            }
        }
        return bytes;
    }

  private:
    std::uint32_t below(std::size_t limit) {
        return static_cast<std::uint32_t>((philox_draw({7, 7}, seed_, next_++) * std::uint64_t{limit}) >> 32);
    }

    std::uint64_t seed_;
    std::uint64_t next_ = 0;
};

} // namespace tutti::test
