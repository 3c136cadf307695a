#include "formats/safetensors.h"

#include "formats/checksum.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"

#include <array>
#include <limits>
#include <vector>

namespace tutti {

using namespace formats;
using namespace test;
namespace {

using test::Mutator;
using test::raw;
using test::TemporaryFolder;

std::string framed(std::string_view header, std::string_view data) {
    return raw<std::uint64_t>(header.size()) + std::string(header) + std::string(data);
}

// One tensor "a", with 8 bytes of data.
std::string with_tensor(std::string_view description) {
    return framed(fmt::format("{{\"a\":{}}}", description), "12345678");
}

class Safetensors : public testing::Test {
  protected:
    std::string opening(std::string_view bytes) {
        return test::error_of([&] { SafetensorsFile(folder_.write("bad.safetensors", bytes)); });
    }
    void expect(std::string_view bytes, std::string_view part) {
        const std::string sentence = opening(bytes);
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
        EXPECT_NE(sentence.find("bad.safetensors"), std::string::npos) << sentence;
    }

    TemporaryFolder folder_;
};

TEST_F(Safetensors, WhatIsWrittenInPiecesReadsBack) {
    const std::vector<StoredTensor> specs = {{"weight", DType::float32, {2, 3}},
                                             {"scalar", DType::int64, {}},
                                             {"empty", DType::bfloat16, {4, 0}},
                                             {"odd \"name\" \u00e9", DType::boolean, {3}}};
    const std::array<float, 6> weight = {1, 2, 3, 4, 5, 6};
    const std::int64_t scalar = -7;
    const std::array<std::uint8_t, 3> flags = {1, 0, 1};
    test::SafetensorsWriter writer(folder_ / "a.safetensors", specs, {{"format", "pt"}, {"step", "20"}});
    const auto bytes = std::as_bytes(std::span(weight));
    writer.append(bytes.first(5));
    writer.append(bytes.subspan(5));
    writer.append(std::as_bytes(std::span(&scalar, 1)));
    writer.append(std::as_bytes(std::span(flags)));
    writer.finish();

    const SafetensorsFile file(folder_ / "a.safetensors");
    EXPECT_EQ(file.metadata().at("step"), "20");
    ASSERT_EQ(file.entries().size(), 4u);
    EXPECT_EQ(file.entries()[0].begin % 8, 0u);
    const TensorEntry* found = file.find("weight");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->type.shape, (Shape{2, 3}));
    std::array<float, 6> back{};
    file.read(*found, std::as_writable_bytes(std::span(back)));
    EXPECT_EQ(back, weight);
    std::array<float, 2> part{};
    file.read_range(*found, 3, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part, (std::array<float, 2>{4, 5}));
    EXPECT_THROW(file.read_range(*found, 5, std::as_writable_bytes(std::span(part))), Bug);
    EXPECT_TRUE(file.find("odd \"name\" \u00e9"));
    EXPECT_EQ(file.find("empty")->bytes(), 0u);
    EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST_F(Safetensors, AFileIsLaidOutBeforeItIsWritten) {
    const std::vector<StoredTensor> specs = {{"a", DType::float32, {2}}, {"b", DType::bfloat16, {3}}};
    const SafetensorsLayout layout = lay_out_safetensors(specs);
    ASSERT_EQ(layout.entries.size(), 2u);
    EXPECT_EQ(layout.entries[0].begin, layout.head.size());
    EXPECT_EQ(layout.entries[1].begin, layout.head.size() + 8);
    EXPECT_EQ(layout.size(), layout.head.size() + 14);
    const SafetensorsFile file(folder_.write("whole.safetensors", layout.head + std::string(14, '\0')));
    for (std::size_t i = 0; i < specs.size(); ++i) {
        EXPECT_EQ(file.entries()[i].begin, layout.entries[i].begin);
        EXPECT_EQ(file.entries()[i].end, layout.entries[i].end);
    }
    EXPECT_EQ(lay_out_safetensors({}).size(), lay_out_safetensors({}).head.size());
    const std::vector<StoredTensor> twice = {specs[0], specs[0]};
    EXPECT_THROW(lay_out_safetensors(twice), Bug);
}

TEST_F(Safetensors, ReferenceFilesOfOtherWritersOpen) {
    const SafetensorsFile file(test::test_data() / "references/gpt2/batches.safetensors");
    EXPECT_EQ(file.find("input_ids")->type.dtype, DType::int64);
    EXPECT_EQ(file.find("input_ids")->type.shape, file.find("targets")->type.shape);
}

TEST_F(Safetensors, AHeaderThatCannotBeThereIsRefused) {
    expect("", "holds 0 bytes, and the header's length alone takes 8");
    expect("1234567", "holds 7 bytes");
    expect(raw<std::uint64_t>(3) + "{}", "header takes 3 bytes, but only 2 follow");
    expect(raw<std::uint64_t>(1ull << 63) + "{}", "header takes 9223372036854775808 bytes");
    expect(raw(std::numeric_limits<std::uint64_t>::max()) + "{}", "but only 2 follow");
    const fs::path path = folder_.write("bad.safetensors", raw<std::uint64_t>(200'000'000));
    fs::resize_file(path, 300'000'000); // sparse
    EXPECT_ERROR(SafetensorsFile(path), "at most 100000000 are read");
}

TEST_F(Safetensors, AHeaderThatIsNotATableOfTensorsIsRefused) {
    expect(framed("{\"a\":", ""), "is not JSON");
    expect(framed("", ""), "is not JSON");
    expect(framed("[1,2]", ""), "holds a JSON array where an object should be");
    expect(framed("{\"a\":3}", ""), "holds a JSON number where an object should be");
    expect(framed("{\"__metadata__\":{\"a\":1}}", ""), "\"a\" is not a string");
    expect(framed("{\"__metadata__\":7}", ""), "where an object should be");
    expect(framed(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                  R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                  "12345678"),
           "holds the key \"a\" twice");
    EXPECT_EQ(opening(framed("{}", "")), "(no error)");
}

TEST_F(Safetensors, ATensorThatContradictsItselfIsRefused) {
    expect(with_tensor(R"({"shape":[2],"data_offsets":[0,8]})"), "lacks the key \"dtype\"");
    expect(with_tensor(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})"), "should be a string");
    expect(with_tensor(R"({"dtype":"F32","data_offsets":[0,8]})"), "no list of sizes");
    expect(with_tensor(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})"),
           "has 9 dimensions; at most 8");
    expect(with_tensor(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "a size of \"-2\"");
    expect(with_tensor(R"({"dtype":"F32","shape":[2.5],"data_offsets":[0,8]})"), "a size of \"2.5\"");
    expect(with_tensor(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"),
           "sizes are whole numbers");
    expect(with_tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
           "should take 12 bytes, but its data_offsets span 8");
    expect(with_tensor(R"({"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,8]})"),
           "too large to be true");
    expect(with_tensor(R"({"dtype":"F64","shape":[4611686018427387904,4,0],"data_offsets":[0,8]})"),
           "too large to be true");
    expect(with_tensor(R"({"dtype":"F32","shape":[2]})"), "no \"data_offsets\" of two numbers");
    expect(with_tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,-8]})"), "whole numbers from 0");
    expect(with_tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "ends before it");
}

TEST_F(Safetensors, DataWithHolesOverlapsOrMissingBytesIsRefused) {
    const auto pair = [](int begin_a, int end_a, int begin_b, int end_b, std::string_view data) {
        return framed(fmt::format(R"({{"a":{{"dtype":"BOOL","shape":[{}],"data_offsets":[{},{}]}},)"
                                  R"("b":{{"dtype":"BOOL","shape":[{}],"data_offsets":[{},{}]}}}})",
                                  end_a - begin_a, begin_a, end_a, end_b - begin_b, begin_b, end_b),
                      data);
    };
    EXPECT_EQ(opening(pair(0, 4, 4, 8, "12345678")), "(no error)");
    EXPECT_EQ(opening(pair(4, 8, 0, 4, "12345678")), "(no error)");
    expect(pair(0, 4, 3, 8, "12345678"), "begins at byte 3 of the data, where 4 was expected: tensors may not overlap");
    expect(pair(0, 4, 5, 8, "12345678"), "tensors may leave no hole");
    expect(pair(1, 4, 4, 8, "12345678"), "tensors may leave no hole");
    expect(pair(0, 4, 4, 7, "12345678"), "holds 8 bytes of data, but its tensors end at byte 7");
    expect(pair(0, 4, 4, 8, "1234567"), "ends at byte 8 of the data, but the file holds only 7: it is truncated");
}

TEST_F(Safetensors, AForeignTypeHarmsOnlyWhoAsksForIt) {
    const SafetensorsFile file(
        folder_.write("mixed.safetensors", framed(R"({"mask":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                                  R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                                                  R"("z":{"dtype":"","shape":[0],"data_offsets":[8,8]}})",
                                                  "12345678")));
    EXPECT_TRUE(file.find("w"));
    EXPECT_EQ(file.entries().size(), 1u);
    EXPECT_EQ(file.foreign().at("mask"), "U8");
    EXPECT_ERROR(file.find("mask"), "tensor \"mask\" is stored as \"U8\"; only F64");
    EXPECT_ERROR(file.find("z"), "is stored as \"\"");
}

TEST_F(Safetensors, AFileThatShrinksAfterOpeningIsAnError) {
    const fs::path path =
        folder_.write("bad.safetensors", with_tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"));
    const SafetensorsFile file(path);
    fs::resize_file(path, fs::file_size(path) - 2);
    std::array<float, 2> out{};
    EXPECT_ERROR(file.read(*file.find("a"), std::as_writable_bytes(std::span(out))), "truncated");
}

TEST_F(Safetensors, DamagedFilesAreErrorsOrReadableButNeverCrash) {
    const std::string good =
        framed(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[8,16]}})",
               "0123456789abcdef");
    ASSERT_EQ(opening(good), "(no error)");
    int refused = 0;
    for (std::uint64_t seed = 0; seed < 4000; ++seed) {
        try {
            const SafetensorsFile file(folder_.write("bad.safetensors", Mutator(seed)(good)));
            for (const TensorEntry& entry : file.entries()) {
                std::vector<std::byte> bytes(entry.bytes());
                file.read(entry, bytes);
            }
        } catch (const Error&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 2000);
    EXPECT_LT(refused, 4000);
}

TEST(ChecksumTest, IsXxh3AndDoesNotDependOnThePieces) {
    EXPECT_EQ(Checksum().hex(), "2d06800538d394c2"); // XXH3 of nothing, as published
    const std::string text(1000, 'x');
    Checksum whole, pieces;
    whole.update(std::as_bytes(std::span(text)));
    for (std::size_t i = 0; i < text.size(); i += 100) pieces.update(std::as_bytes(std::span(text)).subspan(i, 100));
    EXPECT_EQ(whole.hex(), pieces.hex());
    const test::TemporaryFolder folder;
    const InputFile file(folder.write("a", text));
    Checksum both;
    both.update(std::as_bytes(std::span(text)).first(300));
    update(both, file, 300, 700);
    EXPECT_EQ(both.hex(), whole.hex());
    EXPECT_EQ(checksum_of_file(file.path()), whole.hex());
}

} // namespace
} // namespace tutti
