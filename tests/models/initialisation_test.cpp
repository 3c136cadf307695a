#include "models/initialisation.h"

#include "models/model_text.h"
#include "models/normal_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace tutti::test {

using namespace models;
namespace {

std::vector<float> make(const Initialisation& how, std::uint64_t seed, const std::string& name, std::int64_t first,
                        std::size_t count) {
    std::vector<float> out(count);
    initialise(how, seed, name, first, out);
    return out;
}

TEST(Initialisation, AnySliceIsTheSameAsInTheWhole) {
    Initialisation how = Initialisation::normal(0.02);
    how.zero_row = 3, how.row_size = 7;
    const auto whole = make(how, 42, "wte.weight", 0, 101);
    for (std::int64_t first : {0, 1, 2, 3, 4, 20, 22, 27, 100})
        for (std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{5}, static_cast<std::size_t>(101 - first)}) {
            if (first + static_cast<std::int64_t>(count) > 101) continue;
            const auto slice = make(how, 42, "wte.weight", first, count);
            EXPECT_TRUE(std::equal(slice.begin(), slice.end(), whole.begin() + first)) << first << " " << count;
        }
    for (std::size_t i = 0; i < 101; ++i) EXPECT_EQ(whole[i] == 0, i / 7 == 3) << i;
}

TEST(Initialisation, NormalNumbersHaveMeanDeviationAndTails) {
    const auto values = make({Initialisation::Kind::normal, 0.5, 2, -1, 0}, 1, "w", 0, 200000);
    double sum = 0, squares = 0, fourth = 0, beyond = 0;
    for (float value : values) {
        const double z = (value - 0.5) / 2;
        sum += z, squares += z * z, fourth += z * z * z * z, beyond += std::abs(z) > 1.959964;
    }
    const double count = 200000;
    EXPECT_NEAR(sum / count, 0, 0.01);
    EXPECT_NEAR(squares / count, 1, 0.015);
    EXPECT_NEAR(fourth / count, 3, 0.1);
    EXPECT_NEAR(beyond / count, 0.05, 0.002);
}

TEST(NormalNumbers, AreBoxAndMullersOfPhiloxWords) {
    const PhiloxKey key{17, 4};
    std::vector<double> draws(4 * 100'003);                                  // no multiple of what is made at a time
    constexpr std::uint64_t stream = 0x123456789abcdef0, first = 0xffffff00; // where a block's number outgrows a word
    normal_numbers(key, stream, first, draws);
    for (std::size_t i = 0; i < draws.size(); i += 2) {
        auto word = [&](std::size_t at) { return philox_draw(key, stream, 4 * first + at); };
        const double length = std::sqrt(-2 * std::log((word(i) + 1.0) * 0x1p-32));
        const double angle = 2 * std::numbers::pi * (word(i + 1) * 0x1p-32);
        ASSERT_NEAR(draws[i], length * std::cos(angle), 1e-14) << i;
        ASSERT_NEAR(draws[i + 1], length * std::sin(angle), 1e-14) << i;
    }
}

TEST(Initialisation, SeedsAndNamesGiveOtherNumbers) {
    const auto how = Initialisation::normal(1);
    const auto base = make(how, 1, "a", 0, 1000);
    EXPECT_EQ(base, make(how, 1, "a", 0, 1000));
    for (const auto& other : {make(how, 2, "a", 0, 1000), make(how, 1, "b", 0, 1000), make(how, 1, "a", 1000, 1000)}) {
        double product = 0;
        for (std::size_t i = 0; i < 1000; ++i) product += static_cast<double>(base[i]) * static_cast<double>(other[i]);
        EXPECT_LT(std::abs(product / 1000), 0.15);
    }
}

Initialisation of(const std::string& reference, const std::string& name) {
    const Model model = source_of(reference_config(reference)).build({1, 8});
    for (std::size_t i = 0; i < model.graph.stored().size(); ++i)
        if (model.graph.stored()[i].name == name) return model.initialisation[i];
    ADD_FAILURE() << "no tensor " << name;
    return {};
}

TEST(Initialisation, FamiliesStartAsInTransformers) {
    const auto one = Initialisation::constant(1), zero = Initialisation::constant(0),
               usual = Initialisation::normal(0.02);
    EXPECT_EQ(of("gpt2", "transformer.h.0.attn.c_attn.weight"), usual);
    EXPECT_EQ(of("gpt2", "transformer.h.0.attn.c_proj.weight"), Initialisation::normal(0.02 / std::sqrt(8.0)));
    EXPECT_EQ(of("gpt2", "transformer.h.3.mlp.c_proj.weight"), Initialisation::normal(0.02 / std::sqrt(8.0)));
    EXPECT_EQ(of("gpt2", "transformer.h.3.mlp.c_proj.bias"), zero);
    EXPECT_EQ(of("gpt2", "transformer.wpe.weight"), usual);
    EXPECT_EQ(of("gpt2", "transformer.ln_f.weight"), one);
    EXPECT_EQ(of("llama", "model.norm.weight"), one);
    EXPECT_EQ(of("gemma", "model.norm.weight"), zero);
    EXPECT_EQ(of("gemma", "model.embed_tokens.weight"), (Initialisation{Initialisation::Kind::normal, 0, 0.02, 0, 48}));
    EXPECT_EQ(of("opt-post", "model.decoder.embed_tokens.weight"),
              (Initialisation{Initialisation::Kind::normal, 0, 0.02, 1, 32}));
    EXPECT_EQ(of("roberta-untied", "roberta.embeddings.position_embeddings.weight"),
              (Initialisation{Initialisation::Kind::normal, 0, 0.02, 3, 48}));
    EXPECT_EQ(of("bert", "bert.embeddings.position_embeddings.weight"), usual);
    EXPECT_EQ(of("phi", "lm_head.bias"), zero);
}

} // namespace
} // namespace tutti::test
