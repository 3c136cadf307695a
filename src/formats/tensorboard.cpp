#include "formats/tensorboard.h"

#include "base/error.h"
#include "base/system_error.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace tutti::formats {
namespace {

// CRC-32C (Castagnoli), reflected, one byte at a time: event files are small.
constexpr std::array<std::uint32_t, 256> make_crc_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0u);
        table[byte] = value;
    }
    return table;
}
constexpr std::array<std::uint32_t, 256> crc_table = make_crc_table();

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// Numbers of fixed size lie little-endian in both formats.
template <class T>
void put_fixed(std::string& out, T value) {
    static_assert(std::endian::native == std::endian::little);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_varint(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
}

// A protobuf field begins with its number and how it is encoded.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
void put_key(std::string& out, std::uint32_t field, Wire wire) {
    put_varint(out, field << 3 | static_cast<std::uint32_t>(wire));
}
void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
    put_key(out, field, Wire::bytes);
    put_varint(out, bytes.size());
    out += bytes;
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string event_head(std::int64_t step) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    std::string event;
    put_key(event, 1, Wire::fixed64);
    put_fixed(event, now.count());
    put_key(event, 2, Wire::varint);
    put_varint(event, static_cast<std::uint64_t>(step));
    return event;
}

// TFRecord: length, its masked CRC, the bytes, their masked CRC.
void put_record(std::string& out, std::string_view record) {
    std::string length;
    put_fixed(length, static_cast<std::uint64_t>(record.size()));
    out += length;
    put_fixed(out, masked_crc32c(bytes_of(length)));
    out += record;
    put_fixed(out, masked_crc32c(bytes_of(record)));
}

// Makes a new file, under a number that no other file has.
fs::path make_event_file(const fs::path& folder) {
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') std::strcpy(host.data(), "localhost");
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    for (int number = 0;; ++number) {
        const fs::path path =
            folder / fmt::format("events.out.tfevents.{}.{}.{}.{}", seconds, host.data(), ::getpid(), number);
        const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (descriptor >= 0) {
            ::close(descriptor);
            return path;
        }
        if (errno != EEXIST) fail_system(errno, "cannot write {}", path.string());
    }
}

} // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
    std::uint32_t crc = 0xFFFFFFFFu;
    for (std::byte byte : bytes) crc = (crc >> 8) ^ crc_table[(crc ^ static_cast<std::uint32_t>(byte)) & 0xFF];
    return ~crc;
}

std::uint32_t masked_crc32c(std::span<const std::byte> bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

TensorBoardWriter::TensorBoardWriter(const fs::path& folder) {
    make_folders(folder);
    path_ = make_event_file(folder);
    file_.open(path_, std::ios::binary | std::ios::app);
    std::string event = event_head(0);
    put_bytes(event, 3, "brain.Event:2");
    put_record(pending_, event);
    flush();
}

TensorBoardWriter::~TensorBoardWriter() { file_.write(pending_.data(), static_cast<std::streamsize>(pending_.size())); }

void TensorBoardWriter::add_scalar(std::string_view tag, std::int64_t step, double value) {
    std::string scalar; // Summary.Value { string tag = 1; float simple_value = 2; }
    put_bytes(scalar, 1, tag);
    put_key(scalar, 2, Wire::fixed32);
    put_fixed(scalar, static_cast<float>(value));
    std::string summary; // Summary { repeated Value value = 1; }
    put_bytes(summary, 1, scalar);
    std::string event = event_head(step);
    put_bytes(event, 5, summary);
    put_record(pending_, event);
}

void TensorBoardWriter::flush() {
    file_.write(pending_.data(), static_cast<std::streamsize>(pending_.size()));
    file_.flush();
    if (!file_) fail_world("cannot write {}: the disk may be full", path_.string());
    pending_.clear();
}

} // namespace tutti::formats
