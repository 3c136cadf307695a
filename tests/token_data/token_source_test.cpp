#include "data/token_source.h"

#include "formats/safetensors.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"

#include <numeric>
#include <vector>

namespace tutti {

using namespace data;
using namespace formats;
using namespace test;
namespace {

using test::Mutator;
using test::raw;
using test::TemporaryFolder;
using Tokens = std::vector<std::int64_t>;

struct Sample {
    Tokens input, targets;
};

Sample read(const TokenSource& source, std::int64_t sample) {
    const auto length = static_cast<std::size_t>(source.sequence());
    Sample result{Tokens(length), Tokens(length)};
    source.read(sample, result.input, result.targets);
    return result;
}

template <class T>
std::string raw_row(const std::vector<T>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
std::vector<T> counting(std::size_t count) {
    std::vector<T> values(count);
    std::iota(values.begin(), values.end(), T{0});
    return values;
}

template <class T>
std::string llm_c(std::int32_t magic, std::int32_t version, std::int32_t count, const std::vector<T>& tokens) {
    std::vector<std::int32_t> header(256);
    header[0] = magic, header[1] = version, header[2] = count;
    return raw_row(header) + raw_row(tokens);
}

struct Megatron {
    std::uint64_t version = 1;
    std::uint8_t code = 8;
    std::vector<std::int32_t> lengths;
    std::vector<std::int64_t> pointers, documents;

    std::string index() const {
        return std::string("MMIDIDX\0\0", 9) + raw(version) + raw(code) + raw<std::uint64_t>(lengths.size()) +
               raw<std::uint64_t>(documents.size()) + raw_row(lengths) + raw_row(pointers) + raw_row(documents);
    }
};
const Megatron three_sequences = {.lengths = {4, 6, 3}, .pointers = {0, 8, 20}, .documents = {0, 1, 3}};

class TokenSources : public testing::Test {
  protected:
    std::unique_ptr<TokenSource> open(const fs::path& path, std::int64_t sequence) {
        return open_tokens(path.string(), sequence);
    }
    void write_batches(const Tokens& input, const Tokens& targets, const Shape& shape, DType dtype = DType::int64) {
        const std::vector<StoredTensor> specs = {{"input_ids", dtype, shape}, {"targets", DType::int64, shape}};
        test::SafetensorsWriter writer(batches_, specs);
        writer.append(std::as_bytes(std::span(input)));
        writer.append(std::as_bytes(std::span(targets)));
        writer.finish();
    }

    void write_packed(const std::vector<std::int32_t>& documents, const Shape& shape, const Shape& tokens) {
        const Tokens ids(static_cast<std::size_t>(tokens.elements()), 1);
        test::SafetensorsWriter writer(batches_, std::vector<StoredTensor>{{"documents", {DType::int32, shape}},
                                                                           {"input_ids", {DType::int64, tokens}},
                                                                           {"targets", {DType::int64, tokens}}});
        writer.append(std::as_bytes(std::span(documents)));
        for (int i = 0; i < 2; ++i) writer.append(std::as_bytes(std::span(ids)));
        writer.finish();
    }

    TemporaryFolder folder_;
    fs::path batches_ = folder_ / "batches.safetensors";
};

TEST_F(TokenSources, TextIsReadAsBytesWithTargetsShiftedByOne) {
    const auto source = open(folder_.write("a.txt", "abcdefgh\xff"), 4);
    EXPECT_EQ(source->samples(), 2);
    EXPECT_EQ(source->vocabulary(), 256);
    EXPECT_FALSE(source->ordered());
    EXPECT_EQ(read(*source, 0).input, (Tokens{'a', 'b', 'c', 'd'}));
    EXPECT_EQ(read(*source, 0).targets, (Tokens{'b', 'c', 'd', 'e'}));
    EXPECT_EQ(read(*source, 1).targets, (Tokens{'f', 'g', 'h', 255}));
    EXPECT_NE(source->describe().find("a.txt: 9 bytes as tokens, 2 samples of 4"), std::string::npos);
    EXPECT_THROW(read(*source, 2), Bug);
}

TEST_F(TokenSources, SayWhetherATokenizerMadeTheTokens) {
    EXPECT_EQ(open(folder_.write("a.txt", "abcde"), 4)->origin(), TokenOrigin::text);
    EXPECT_EQ(open_tokens("builtin", 4)->origin(), TokenOrigin::builtin);
    write_batches({1, 2}, {2, 3}, {1, 1, 2});
    EXPECT_EQ(open(batches_, 0)->origin(), TokenOrigin::tokenizer);
}

TEST_F(TokenSources, JsonIsRefusedByNameOrByItsFirstCharacters) {
    const std::string line = R"({"text": "Once upon a time there was a text."})"
                             "\n";
    for (const char* name : {"a.jsonl", "a.ndjson", "a.json", "a.txt", "a"})
        EXPECT_ERROR(open(folder_.write(name, line + line), 4), "holds JSON, which --data does not take");
    EXPECT_ERROR(open(folder_.write("list.txt", " [\n {\"text\": \"abc\"}]"), 4), "holds JSON");
    EXPECT_ERROR(open(folder_.write("a.jsonl", line), 4), "a Megatron .bin with its .idx");
    for (const char* text : {"{ a set }", "[1] a footnote", "\"a quotation\"", "{"})
        EXPECT_NO_THROW(open(folder_.write("b.txt", std::string(text) + " and more text"), 4)) << text;
}

TEST_F(TokenSources, DataTooShortForOneSampleIsRefused) {
    EXPECT_ERROR(open(folder_.write("a.txt", ""), 4), "a.txt is empty");
    EXPECT_ERROR(open(folder_.write("a.txt", "abcd"), 4), "holds 4 tokens, too few for one sample: a sequence of 4");
    EXPECT_NO_THROW(open(folder_.write("a.txt", "abcde"), 4));
    EXPECT_ERROR(open(folder_.write("a.txt", "abcde"), 0), "a sequence of 128");
    EXPECT_ERROR(open(folder_.write("a.txt", "abcde"), INT64_MAX), "too few for one sample");
    EXPECT_ERROR(open(folder_ / "a.txt", -1), "it must be at least 1");
}

TEST_F(TokenSources, WhatCannotBeDataIsNamed) {
    EXPECT_ERROR(open(folder_ / "nothing.txt", 4), "there is no data");
    EXPECT_ERROR(open_tokens("", 4), "there is no data \"\"");
    EXPECT_ERROR(open(folder_.path(), 4), " is a folder, and data is one file: name a text file");
    EXPECT_ERROR(open(folder_.write("a.npy", std::string("\x93NUMPY\x01\x00", 8)), 4),
                 "is neither text nor a token file");
    EXPECT_ERROR(open(folder_.write("a.bin", "abcdefgh"), 4), "neither llm.c's number 20240520");
}

TEST_F(TokenSources, LongSequencesCrossTheReadBuffer) {
    const auto tokens = counting<std::uint32_t>(20'001);
    const auto source = open(folder_.write("a.bin", llm_c(20240801, 7, 20'001, tokens)), 20'000);
    const Sample sample = read(*source, 0);
    EXPECT_EQ(sample.input, counting<std::int64_t>(20'000));
    EXPECT_EQ(sample.targets.back(), 20'000);
}

TEST_F(TokenSources, LlmCFilesOfBothKindsAreKnownByTheirNumber) {
    const std::vector<std::uint16_t> gpt2 = {50256, 1, 2, 3, 65535, 5, 6};
    const auto small = open(folder_.write("gpt2.bin", llm_c(20240520, 1, 7, gpt2)), 3);
    EXPECT_EQ(small->samples(), 2);
    EXPECT_EQ(read(*small, 0).input, (Tokens{50256, 1, 2}));
    EXPECT_EQ(read(*small, 1).targets, (Tokens{65535, 5, 6}));
    const std::vector<std::uint32_t> llama = {128000, 4000000000, 2};
    const auto large = open(folder_.write("any.name", llm_c(20240801, 7, 3, llama)), 2);
    EXPECT_EQ(read(*large, 0).input, (Tokens{128000, 4000000000}));
}

TEST_F(TokenSources, LlmCFilesThatContradictThemselvesAreRefused) {
    const std::vector<std::uint16_t> tokens = {1, 2, 3, 4};
    EXPECT_ERROR(open(folder_.write("a.bin", llm_c(20240520, 1, 5, tokens)), 2),
                 "says it holds 5 tokens of 2 bytes, but 8 bytes follow");
    EXPECT_ERROR(open(folder_.write("a.bin", llm_c(20240520, 1, 3, tokens)), 2), "but 8 bytes follow");
    EXPECT_ERROR(open(folder_.write("a.bin", llm_c(20240520, 1, -4, tokens)), 2), "says it holds -4 tokens");
    EXPECT_ERROR(open(folder_.write("a.bin", llm_c(20240520, 2, 4, tokens)), 2), "version 2; version 1 is read");
    EXPECT_ERROR(open(folder_.write("a.bin", raw<std::int32_t>(20240520)), 2), "the header alone takes 1024");
    EXPECT_ERROR(open(folder_.write("a.bin", llm_c(20240520, 1, 0, std::vector<std::uint16_t>{})), 2), "is empty");
}

TEST_F(TokenSources, MegatronDataOpensByEitherNameAndByPrefix) {
    folder_.write("corpus.bin", raw_row(counting<std::uint16_t>(13)));
    folder_.write("corpus.idx", three_sequences.index());
    for (const char* name : {"corpus.bin", "corpus.idx", "corpus"}) {
        const auto source = open(folder_ / name, 4);
        EXPECT_EQ(source->samples(), 3) << name;
        EXPECT_EQ(read(*source, 1).input, (Tokens{4, 5, 6, 7})); // packed across sequences
        EXPECT_EQ(read(*source, 2).targets, (Tokens{9, 10, 11, 12}));
    }
}

TEST_F(TokenSources, MegatronTokensOfEveryIntegerTypeAreRead) {
    const auto check = [&]<class T>(T, std::uint8_t code) {
        const Megatron index{.code = code, .lengths = {9}, .pointers = {0}, .documents = {0, 1}};
        folder_.write("typed.idx", index.index());
        folder_.write("typed.bin", raw_row(counting<T>(9)));
        EXPECT_EQ(read(*open(folder_ / "typed.bin", 8), 0).targets, (Tokens{1, 2, 3, 4, 5, 6, 7, 8}));
    };
    check(std::uint8_t{}, 1);
    check(std::int8_t{}, 2);
    check(std::int16_t{}, 3);
    check(std::int32_t{}, 4);
    check(std::int64_t{}, 5);
    check(std::uint16_t{}, 8);
}

TEST_F(TokenSources, AMegatronIndexThatContradictsItsDataIsRefused) {
    folder_.write("corpus.bin", raw_row(counting<std::uint16_t>(13)));
    const auto expect = [&](const std::string& index, std::string_view part) {
        folder_.write("corpus.idx", index);
        EXPECT_ERROR(open(folder_ / "corpus.bin", 4), part);
    };
    const auto changed = [](auto change) {
        Megatron index = three_sequences;
        change(index);
        return index.index();
    };
    expect("MMIDIDX", "its header alone takes 34");
    expect(std::string(100, 'x'), "does not begin with MMIDIDX");
    expect(changed([](Megatron& m) { m.version = 2; }), "version 2; version 1 is read");
    expect(changed([](Megatron& m) { m.code = 6; }), "type code 6");
    expect(changed([](Megatron& m) { m.lengths[1] = -6; }), "sequence 1 has the length -6");
    expect(changed([](Megatron& m) { m.lengths[2] = 4; }), "sequence 2 ends beyond the 26 bytes");
    expect(changed([](Megatron& m) { m.lengths[2] = 2; }), "holds 26 bytes, but");
    expect(changed([](Megatron& m) { m.pointers[1] = 6; }), "sequence 1 begins at byte 6, where 8 was expected");
    expect(changed([](Megatron& m) { m.pointers[0] = -1; }), "begins at byte -1");
    expect(changed([](Megatron& m) { m.documents[2] = 4; }), "begins at sequence 4 of 3");
    expect(changed([](Megatron& m) { m.documents[1] = -1; }), "begins at sequence -1");
    expect(three_sequences.index() + "x", "does not match its 95 bytes");
    std::string huge = three_sequences.index();
    huge.replace(18, 8, raw<std::uint64_t>(0x1555555555555556)); // times 12 wraps to a small number
    expect(huge, "which does not match");
    folder_.write("corpus.idx", three_sequences.index());
    fs::remove(folder_ / "corpus.bin");
    EXPECT_ERROR(open(folder_ / "corpus.idx", 4), "corpus.bin");
}

TEST_F(TokenSources, NegativeTokensAreNamedWithTheirPosition) {
    const Megatron index{.code = 4, .lengths = {5}, .pointers = {0}, .documents = {0, 1}};
    folder_.write("signed.idx", index.index());
    folder_.write("signed.bin", raw_row(std::vector<std::int32_t>{1, 2, -3, 4, 5}));
    const auto source = open(folder_ / "signed.bin", 4);
    EXPECT_ERROR(read(*source, 0), "signed.bin holds the token -3 at position 2");
}

TEST_F(TokenSources, DamagedIndexesAreErrorsOrReadableButNeverCrash) {
    folder_.write("corpus.bin", raw_row(counting<std::uint16_t>(13)));
    int refused = 0;
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
        folder_.write("corpus.idx", Mutator(seed)(three_sequences.index()));
        try {
            const auto source = open(folder_ / "corpus.bin", 4);
            for (std::int64_t sample = 0; sample < source->samples(); ++sample) read(*source, sample);
        } catch (const Error&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 2000);
}

TEST_F(TokenSources, BatchesKeepTheirOrderAndTheirIgnoredTargets) {
    write_batches(counting<std::int64_t>(12), {1, -100, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 3, 2});
    const auto source = open(batches_, 0);
    EXPECT_TRUE(source->ordered());
    EXPECT_EQ(source->samples(), 6);
    EXPECT_EQ(source->batch(), 3);
    EXPECT_EQ(source->sequence(), 2);
    EXPECT_EQ(read(*source, 0).targets, (Tokens{1, -100}));
    EXPECT_EQ(read(*source, 4).input, (Tokens{8, 9})); // step 1, row 1
    EXPECT_NO_THROW(open(batches_, 2));
    EXPECT_ERROR(open(batches_, 3), "holds sequences of 2 tokens, but 3 were asked for");
}

TEST_F(TokenSources, BatchesAreKnownByTheirContentToo) {
    write_batches({1, 2}, {2, 3}, {1, 1, 2});
    fs::rename(batches_, folder_ / "renamed.txt");
    EXPECT_TRUE(open(folder_ / "renamed.txt", 0)->ordered());
}

TEST_F(TokenSources, BatchesThatAreNotThoseOfTrainingAreRefused) {
    write_batches({1, 2}, {2, 3}, {1, 2});
    EXPECT_ERROR(open(batches_, 0), "holds input_ids as int64 [1,2]; it should be int64 [steps, batch, sequence]");
    write_batches({}, {}, {0, 4, 2});
    EXPECT_ERROR(open(batches_, 0), "is empty: its input_ids are [0,4,2]");
    write_batches({1, -100}, {2, 3}, {1, 1, 2});
    EXPECT_ERROR(read(*open(batches_, 0), 0), "holds the token -100 at position 1 of sample 0 of input_ids");
    write_batches({1, 2}, {-1, 3}, {1, 1, 2});
    EXPECT_ERROR(read(*open(batches_, 0), 0), "holds the target -1 at position 0 of sample 0");
    EXPECT_ERROR(open(test::test_data() / "references/gpt2/logits0.safetensors", 0), "holds no tensor input_ids");
}

std::vector<std::int32_t> documents_of(const TokenSource& source, std::int64_t sample) {
    std::vector<std::int32_t> begins(static_cast<std::size_t>(source.sequence()));
    source.read_documents(sample, begins);
    return begins;
}

TEST_F(TokenSources, BatchesMaySayWhereTheDocumentsOfASequenceBegin) {
    using Begins = std::vector<std::int32_t>;
    write_packed({0, 0, 2, 2, 0, 1, 2, 3, 0, 0, 0, 0}, {1, 3, 4}, {1, 3, 4});
    const auto source = open(batches_, 0);
    EXPECT_TRUE(source->has_documents());
    EXPECT_EQ(documents_of(*source, 0), (Begins{0, 0, 2, 2}));
    EXPECT_EQ(documents_of(*source, 1), (Begins{0, 1, 2, 3}));
    EXPECT_EQ(documents_of(*source, 2), (Begins{0, 0, 0, 0}));
    write_batches({1, 2}, {2, 3}, {1, 1, 2});
    EXPECT_FALSE(open(batches_, 0)->has_documents());
    EXPECT_EQ(documents_of(*open(batches_, 0), 0), (Begins{0, 0})); // one
}

TEST_F(TokenSources, DocumentsThatCannotBeAreRefused) {
    auto refused = [&](const std::vector<std::int32_t>& begins, const char* sentence) {
        write_packed(begins, {1, 1, 4}, {1, 1, 4});
        EXPECT_ERROR(documents_of(*open(batches_, 0), 0), sentence);
    };
    refused({0, 0, 2, 0}, "says of token 3 of sample 0 that its document begins at 0, but that of the token before it "
                          "begins at 2: documents are in order");
    refused({0, 0, 2, 4}, "begins at 4, but the sequence has the positions 0 to 3");
    refused({0, -1, 2, 2}, "begins at -1, but the sequence");
    refused({0, 0, 1, 1}, "says of token 2 of sample 0 that its document begins at 1, but a document begins at its own "
                          "first token");
    refused({0, 2, 2, 2}, "of token 1 of sample 0 that its document begins at 2, but a document begins at its own");
    refused({1, 1, 2, 2}, "of token 0 of sample 0 that its document begins at 1");
    write_packed({0, 0, 0, 0}, {1, 2, 2}, {1, 1, 4});
    EXPECT_ERROR(open(batches_, 0), "input_ids [1,1,4] and documents [1,2,2]; they must have the same shape");
    write_packed({0, 0, 0, 0}, {1, 4}, {1, 1, 4});
    EXPECT_ERROR(open(batches_, 0), "holds documents as int32 [1,4]; it should be int32 [steps, batch, sequence]");
    const std::vector<StoredTensor> wide = {{"documents", {DType::int64, {1, 1, 1}}},
                                            {"input_ids", {DType::int64, {1, 1, 1}}},
                                            {"targets", {DType::int64, {1, 1, 1}}}};
    test::SafetensorsWriter writer(batches_, wide);
    const Tokens zero = {0};
    for (int i = 0; i < 3; ++i) writer.append(std::as_bytes(std::span(zero)));
    writer.finish();
    EXPECT_ERROR(open(batches_, 0), "holds documents as int64 [1,1,1]; it should be int32 [steps, batch, sequence]");
}

TEST_F(TokenSources, ReferenceBatchesOpen) {
    const auto source = open(test::test_data() / "references/bert/batches.safetensors", 0);
    for (std::int64_t sample = 0; sample < source->samples(); ++sample) EXPECT_NO_THROW(read(*source, sample));
}

TEST_F(TokenSources, TheBuiltinSourceIsMillionsOfBytes) {
    const auto source = open_tokens("builtin", 0);
    EXPECT_EQ(source->sequence(), 128);
    EXPECT_GT(source->samples(), 30'000);
    const Sample sample = read(*source, source->samples() - 1);
    EXPECT_NO_THROW(check_tokens(sample.input, 256, 0, *source));
    EXPECT_TRUE(std::equal(sample.input.begin() + 1, sample.input.end(), sample.targets.begin()));
}

TEST_F(TokenSources, ATokenOutsideTheVocabularyIsNamed) {
    const auto source = open(folder_.write("a.txt", "abcde"), 4);
    const Tokens tokens = {1, -100, 256, 257};
    EXPECT_NO_THROW(check_tokens(tokens, 258, 7, *source));
    EXPECT_ERROR(check_tokens(tokens, 257, 7, *source), "token 257 at position 3 of sample 7 of");
    EXPECT_ERROR(check_tokens(tokens, 257, 7, *source), "outside the model's vocabulary of 257");
}

} // namespace
} // namespace tutti
