#include "formats/tensor_store.h"

#include "support/paths.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tutti {

using namespace formats;
using namespace test;
namespace {

using test::Mutator;
using test::TemporaryFolder;

template <class T>
void write_tensor(const fs::path& path, const std::string& name, DType dtype, const std::vector<T>& values) {
    const std::vector<StoredTensor> specs = {{name, dtype, {std::ssize(values)}}};
    test::SafetensorsWriter writer(path, specs);
    writer.append(std::as_bytes(std::span(values)));
    writer.finish();
}

template <class T>
std::vector<T> converted(const TensorStore& store, std::string_view name, DType to) {
    std::vector<T> out(static_cast<std::size_t>(store.entry(name).type.shape.elements()));
    store.read_converted(name, to, std::as_writable_bytes(std::span(out)));
    return out;
}

TEST(TensorStore, TheFirstElementThatIsNotFiniteIsFound) {
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
    std::vector<float> values(5000, std::numeric_limits<float>::max());
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16}) {
        std::vector<float> own = values;
        if (size_of(dtype) == 2) own.assign(own.size(), -1.5f); // the largest float32 is none of theirs
        auto found = [&](const std::vector<float>& row) {
            std::vector<std::byte> bytes(row.size() * static_cast<std::size_t>(size_of(dtype)));
            convert_elements(DType::float32, std::as_bytes(std::span(row)), dtype, bytes);
            return first_not_finite(dtype, bytes);
        };
        EXPECT_EQ(found(own), std::nullopt);
        EXPECT_EQ(found({}), std::nullopt);
        for (const float bad : {nan, -nan, infinite, -infinite})
            for (const std::size_t at : {std::size_t{0}, std::size_t{1023}, std::size_t{1024}, own.size() - 1}) {
                std::vector<float> row = own;
                row[at] = row.back() = bad;
                EXPECT_EQ(found(row), static_cast<std::int64_t>(at)) << name_of(dtype);
            }
    }
}

TEST(TensorStore, ReadsASingleFile) {
    const TensorStore store(test::test_data() / "references/gpt2");
    ASSERT_FALSE(store.names().empty());
    for (const std::string& name : store.names()) {
        ASSERT_TRUE(store.find(name));
        for (float value : converted<float>(store, name, DType::float32)) ASSERT_TRUE(std::isfinite(value));
    }
    EXPECT_EQ(store.find("nothing"), nullptr);
    EXPECT_ERROR(store.entry("nothing"), "holds no tensor \"nothing\"");
}

TEST(TensorStore, ReadsShardsThroughTheirIndex) {
    const TemporaryFolder folder;
    write_tensor<float>(folder / "model-00001-of-00002.safetensors", "a", DType::float32, {1, 2});
    write_tensor<float>(folder / "model-00002-of-00002.safetensors", "b", DType::float32, {3});
    folder.write("model.safetensors.index.json",
                 R"({"metadata":{"total_size":12},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
                 R"("b":"model-00002-of-00002.safetensors"}})");
    const TensorStore store(folder.path());
    EXPECT_EQ(store.names(), (std::vector<std::string>{"a", "b"}));
    std::array<float, 1> b{};
    store.read("b", std::as_writable_bytes(std::span(b)));
    EXPECT_EQ(b[0], 3);
}

TEST(TensorStore, WhatIsMissingIsSaidInOneSentence) {
    const TemporaryFolder folder;
    EXPECT_ERROR(TensorStore(folder.path()), "holds neither model.safetensors nor model.safetensors.index.json");
    folder.write("pytorch_model.bin", "");
    EXPECT_ERROR(TensorStore(folder.path()), "only safetensors are read");
}

TEST(TensorStore, AnIndexThatLeadsAstrayIsRefused) {
    const TemporaryFolder folder;
    write_tensor<float>(folder / "one.safetensors", "a", DType::float32, {1});
    const auto with = [&](std::string_view text) {
        folder.write("model.safetensors.index.json", text);
        return test::error_of([&] { TensorStore{folder.path()}; });
    };
    const auto expect = [&](std::string_view text, std::string_view part) {
        const std::string sentence = with(text);
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    };
    EXPECT_EQ(with(R"({"weight_map":{"a":"one.safetensors"}})"), "(no error)");
    expect(R"({"weight_map":{"a":"../one.safetensors"}})", "without '/' or '..'");
    expect(R"({"weight_map":{"a":"/one.safetensors"}})", "without '/' or '..'");
    expect(R"({"weight_map":{"a":".."}})", "without '/' or '..'");
    expect(R"({"weight_map":{"a":""}})", "without '/' or '..'");
    expect(R"({"weight_map":{"a":"one.safetensors\u0000x"}})", "without '/' or '..'");
    expect(R"({"weight_map":{"a":"two.safetensors"}})", "names the shard \"two.safetensors\", which is missing");
    expect(R"({"weight_map":{"b":"one.safetensors"}})", "which does not hold it");
    expect(R"({"weight_map":{"a":1}})", "the shard of \"a\" is not a string");
    expect(R"({"weights":{}})", "lacks the key \"weight_map\"");
    const std::string good = R"({"metadata":{},"weight_map":{"a":"one.safetensors"}})";
    for (std::uint64_t seed = 0; seed < 1000; ++seed) with(Mutator(seed)(good)); // never anything but an Error
}

TEST(TensorStore, ConvertsBetweenFloatingTypes) {
    const TemporaryFolder folder;
    const std::vector<float> values = {0.0f,           -1.5f, 3.14159265f,
                                       1.0f + 0x1p-8f, 1e30f, std::numeric_limits<float>::infinity()};
    write_tensor<float>(folder / "model.safetensors", "a", DType::float32, values);
    const TensorStore store(folder.path());
    EXPECT_EQ(converted<float>(store, "a", DType::float32), values);
    const auto halves = converted<BFloat16>(store, "a", DType::bfloat16);
    const auto doubles = converted<double>(store, "a", DType::float64);
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(halves[i], BFloat16(values[i]));
        EXPECT_EQ(doubles[i], static_cast<double>(values[i]));
    }
}

TEST(TensorStore, LargeTensorsAreConvertedPieceByPiece) {
    const TemporaryFolder folder;
    std::vector<BFloat16> values(300'001);
    for (std::size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<std::uint16_t>(i % 0x7f80);
    write_tensor(folder / "model.safetensors", "a", DType::bfloat16, values);
    const TensorStore store(folder.path());
    const auto floats = converted<float>(store, "a", DType::float32);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(floats[i], static_cast<float>(values[i]));
    std::array<float, 3> part{};
    store.read_range_converted("a", 200'000, DType::float32, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part[1], floats[200'001]);
}

// 1 + 2^-8 lies halfway between two bf16 values, and goes to the even one. A little more than that in float64 is lost
// in float32, so that rounding twice would go down where rounding once goes up.
TEST(TensorStore, Float64IsRoundedOnceOnItsWayTo16Bits) {
    const TemporaryFolder folder;
    const double above = 1.0 + 0x1p-8 + 0x1p-40, below = 1.0 + 3 * 0x1p-8 - 0x1p-40;
    write_tensor<double>(folder / "model.safetensors", "a", DType::float64,
                         {above, -above, below, 1.0 + 0x1p-8, 1e300, -1e300, 0.1, std::nan("")});
    const TensorStore store(folder.path());
    const auto rounded = converted<BFloat16>(store, "a", DType::bfloat16);
    EXPECT_EQ(rounded[0].bits, 0x3f81);
    EXPECT_EQ(rounded[1].bits, 0xbf81);
    EXPECT_EQ(rounded[2].bits, 0x3f81);
    EXPECT_EQ(rounded[3].bits, 0x3f80);
    EXPECT_EQ(rounded[4].bits, 0x7f80);
    EXPECT_EQ(rounded[5].bits, 0xff80);
    EXPECT_EQ(rounded[6], BFloat16(0.1f));
    EXPECT_TRUE(std::isnan(static_cast<float>(rounded[7])));
    EXPECT_EQ(converted<float>(store, "a", DType::float32)[6], 0.1f);
}

TEST(TensorStore, IntegersAreNotSilentlyTakenForWeights) {
    const TemporaryFolder folder;
    write_tensor<std::int64_t>(folder / "model.safetensors", "ids", DType::int64, {1});
    const TensorStore store(folder.path());
    EXPECT_ERROR(converted<float>(store, "ids", DType::float32),
                 "tensor \"ids\" is int64, where a floating type was expected");
}

} // namespace
} // namespace tutti
