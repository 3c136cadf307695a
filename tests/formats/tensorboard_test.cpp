#include "formats/tensorboard.h"

#include "support/temporary_folder.h"

#include <set>
#include <vector>

namespace tutti {

using namespace formats;
using namespace test;
namespace {

using test::raw;
using test::TemporaryFolder;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

template <class T>
T number(std::string_view bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

// The payloads of a TFRecord file, with both checksums of each verified.
std::vector<std::string> records(std::string_view file) {
    std::vector<std::string> found;
    while (!file.empty()) {
        const auto length = number<std::uint64_t>(file);
        EXPECT_EQ(number<std::uint32_t>(file.substr(8)), masked_crc32c(bytes_of(file.substr(0, 8))));
        const std::string_view payload = file.substr(12, length);
        EXPECT_EQ(number<std::uint32_t>(file.substr(12 + length)), masked_crc32c(bytes_of(payload)));
        found.emplace_back(payload);
        file.remove_prefix(16 + length);
    }
    return found;
}

TEST(TensorBoard, ChecksumsGiveTheKnownAnswers) {
    EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
    EXPECT_EQ(crc32c(bytes_of("")), 0u);
    EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau); // RFC 3720, B.4
    EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
}

TEST(TensorBoard, ScalarsAreEventsThatDecodeByHand) {
    const TemporaryFolder folder;
    TensorBoardWriter writer(folder / "logs");
    writer.add_scalar("loss", 300, 1.5);
    writer.flush();
    EXPECT_NE(writer.path().filename().string().find("events.out.tfevents."), std::string::npos);
    const auto events = records(read_text(writer.path()));
    ASSERT_EQ(events.size(), 2u);

    EXPECT_EQ(events[0][0], '\x09'); // wall_time
    EXPECT_GT(number<double>(std::string_view(events[0]).substr(1)), 1.6e9);
    EXPECT_EQ(events[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");

    const std::string value = std::string("\x0a\x04") + "loss" + "\x15" + raw(1.5f); // tag, simple_value: 11 bytes
    EXPECT_EQ(events[1].substr(9), std::string("\x10\xac\x02") + "\x2a\x0d" + "\x0a\x0b" + value);
}

TEST(TensorBoard, WhatWasAddedIsThereAfterTheWriterIsGone) {
    const TemporaryFolder folder;
    fs::path path;
    {
        TensorBoardWriter writer(folder.path());
        for (int step = 0; step < 10; ++step) writer.add_scalar("train/loss", step, 1.0 / (1 + step));
        path = writer.path();
    }
    EXPECT_EQ(records(read_text(path)).size(), 11u);
}

TEST(TensorBoard, AResumedRunGetsAFileOfItsOwn) {
    const TemporaryFolder folder;
    const TensorBoardWriter first(folder.path()), second(folder.path());
    EXPECT_NE(first.path(), second.path());
}

} // namespace
} // namespace tutti
