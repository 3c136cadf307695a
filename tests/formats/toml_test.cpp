#include "formats/toml.h"

#include "support/temporary_folder.h"

namespace tutti {

using namespace formats;
using namespace test;
namespace {

using test::Mutator;

TEST(Toml, AMistakeIsToldWithFileAndLine) {
    EXPECT_ERROR(parse_toml("a = 1\nb = = 2\n", "f.toml"), "f.toml, line 2:");
    EXPECT_ERROR(parse_toml("a = 1\na = 2\n", "f.toml"), "f.toml, line 2:");
    EXPECT_EQ(parse_toml("a = 1\n[b]\nc.d = [1, {e = 2.5}]\n", "f.toml")["b"]["c"]["d"][1]["e"].value<double>(), 2.5);
}

// toml++ 3.3 asserts that a key begins here, and ends the program.
TEST(Toml, TextsThatBreakAssertionsOfTheParserAreMistakes) {
    for (const char* text : {"[[[", "[,]", "[[,]]", "[=]", "[.a]"})
        EXPECT_ERROR(parse_toml(text, "f.toml"), "f.toml, line 1: ") << text;
    EXPECT_ERROR(parse_toml("a = 1\nb = '''\n'''\n[,]\nc = 3\n", "f.toml"), "f.toml, line 4: ");
    EXPECT_ERROR(parse_toml("a = 1\n\n[[[", "f.toml"), "f.toml, line 3: ");
}

TEST(Toml, DeepNestingIsRefusedBeforeItCostsAnything) {
    auto repeated = [](std::size_t count, const std::string& part) {
        std::string text;
        for (std::size_t i = 0; i < count; ++i) text += part;
        return text;
    };
    const std::size_t many = 100'000;
    EXPECT_ERROR(parse_toml("x = 1\n" + repeated(many, "a.") + "a = 1", "f.toml"),
                 "line 2: a key of more than 16 parts");
    EXPECT_ERROR(parse_toml("[" + repeated(many, "a.") + "a]", "f.toml"), "line 1: a key of more than 16 parts");
    EXPECT_ERROR(parse_toml("[" + repeated(many, "'a'.") + "a]", "f.toml"), "line 1: a key of more than 16 parts");
    EXPECT_ERROR(parse_toml("a = " + repeated(many, "["), "f.toml"), "line 1");
    EXPECT_ERROR(parse_toml("a = " + repeated(many, "{a="), "f.toml"), "line 1");
    EXPECT_NO_THROW(parse_toml(repeated(15, "a.") + "a = " + repeated(15, "[") + repeated(15, "]"), "f.toml"));
}

TEST(Toml, DotsInStringsCommentsAndListsAreNoKeys) {
    const std::string dots(100, '.');
    const std::string text =
        "# it's " + dots + "\na = \"\\\"" + dots + "\" # " + dots + "\nb = '" + dots + "'\nc = '''\n'" + dots +
        "'''\nd = \"\"\"\n\"" + dots +
        "\"\"\"\ne = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]";
    EXPECT_EQ(parse_toml(text, "f.toml").size(), 5u);
}

// Under the sanitizers: toml++ went on behind what it took to be unreachable.
TEST(Toml, CharactersBeyondAsciiAreTextAndNoWhiteSpace) {
    for (const std::string character : {"\xc3\xa9", "\xe3\x81\x82", "\xef\xbb\xbd"}) {
        const toml::table table = parse_toml("a = \"\"\"\\\n  " + character + "\"\"\"", "f.toml");
        EXPECT_EQ(table["a"].value<std::string>(), character);
        EXPECT_ERROR(parse_toml("a = 1 " + character, "f.toml"), "line 1");
    }
}

TEST(Toml, DamagedTextIsAnErrorOrATableButNeverACrash) {
    const std::string text =
        "name = \"a\" # text\n[device.efficiency]\nproducts = 0.5\n[[nodes]]\ncount = 2\nlist = [1, "
        "{x = 1979-05-27T07:32:00Z}, '''\nb''', 0x1f, 1e3, inf]\n\"a b\".c = true\n";
    int refused = 0;
    for (std::uint64_t seed = 0; seed < 4000; ++seed) {
        try {
            parse_toml(Mutator(seed)(text), "f.toml");
        } catch (const Error&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 1000);
}

} // namespace
} // namespace tutti
