#include "formats/json.h"

#include "support/temporary_folder.h"

namespace tutti {

using namespace formats;
using namespace test;
namespace {

using test::Mutator;
using test::TemporaryFolder;

TEST(Json, AMistakeIsToldWithFileLineAndByte) {
    const TemporaryFolder folder;
    const auto bad = [&](std::string_view text) { return folder.write("config.json", text); };
    EXPECT_ERROR(read_json(bad("{\n \"a\": 1,\n \"b\": oops\n}")), "config.json is not JSON: line 3, byte 18");
    EXPECT_ERROR(read_json(bad("")), "is not JSON: line 1");
    EXPECT_ERROR(read_json(bad("{} {}")), "is not JSON");
    EXPECT_ERROR(read_json(bad("{\"a\": 1e999}")), "is not JSON: line 1, byte 11: a number is too large");
    EXPECT_ERROR(read_json(bad("\"\xff\"")), "is not JSON");
    EXPECT_ERROR(read_json(folder / "nothing.json"), "nothing.json");
}

TEST(Json, DuplicateKeysAreRefusedOnlyWithinOneObject) {
    EXPECT_ERROR(parse_json(R"({"a": 1, "b": 2, "a": 3})", "f"), "f holds the key \"a\" twice");
    EXPECT_ERROR(parse_json(R"([{"x": {"a": 1, "a": 1}}])", "f"), "twice");
    EXPECT_EQ(parse_json(R"({"a": {"a": 1}, "b": {"a": [{"a": 2}, {"a": 3}]}})", "f")["a"]["a"], 1);
}

TEST(Json, DeepNestingIsRefusedBeforeItCostsAnything) {
    EXPECT_ERROR(parse_json(std::string(1'000'000, '['), "f"), "f nests JSON deeper than 64 levels");
    EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "f"));
}

// "{}" and a separator, so many times.
std::string empty_objects(std::size_t count) {
    std::string text = "[{}";
    for (std::size_t i = 1; i < count; ++i) text += ",{}";
    return text + "]";
}

// A parser whose time is quadratic took 35 s for 40,000 members: an hour would not be enough for these.
TEST(Json, TimeIsLinearInTheMembersOfAnObjectAndTheElementsOfAnArray) {
    std::string members;
    constexpr std::size_t count = 400'000;
    for (std::size_t i = 0; i < count; ++i) members += fmt::format("{}\"{}\":{{}}", i == 0 ? "{" : ",", i);
    EXPECT_EQ(parse_json(members + "}", "f").size(), count);
    EXPECT_EQ(parse_json(empty_objects(count), "f").size(), count);
}

TEST(Json, AValueThatWouldTakeMuchMoreMemoryThanItsTextIsRefused) {
    EXPECT_ERROR(parse_json(empty_objects(1'000'000), "f", 64 << 20), "f would take more than 64 MiB of memory");
    const std::string few = empty_objects(1000);
    EXPECT_NO_THROW(parse_json(few, "f", 1000 * 100 + 100));
    EXPECT_ERROR(parse_json(few, "f", 1000 * 50), "of memory when it is read as JSON");
    for (const char* text : {R"("long enough")", R"({"a": 1})", "[[]]", "[1]"})
        EXPECT_ERROR(parse_json(text, "f", 10), "of memory when it is read as JSON") << text;
}

TEST(Json, ValuesAreWhatTheTextSays) {
    const std::string text =
        R"({"a":[1,-2,0.5,"x",true,false,null,[],{}],"b":{"c":[{"d":18446744073709551615}]},"e":""})";
    EXPECT_EQ(parse_json(text, "f").dump(), text);
    EXPECT_EQ(parse_json("7", "f"), 7);
    EXPECT_EQ(parse_json(" null ", "f"), nullptr);
}

TEST(Json, AFileOverTheLimitIsRefusedUnread) {
    const TemporaryFolder folder;
    const fs::path path = folder.write("big.json", "");
    fs::resize_file(path, (64ull << 20) + 1); // sparse
    EXPECT_ERROR(read_json(path), "at most 67108864");
}

TEST(Json, MembersComeWithTheirTypeOrAnErrorThatNamesTheKey) {
    const nlohmann::json value = parse_json(
        R"({"n": 7, "x": 0.5, "on": true, "s": "text", "none": null, "big": 18446744073709551615, "o": {"k": 1}})",
        "f");
    const JsonObject object(value, "f");
    EXPECT_EQ(object.integer("n"), 7);
    EXPECT_EQ(object.number("n"), 7.0);
    EXPECT_EQ(object.number("x"), 0.5);
    EXPECT_TRUE(object.boolean("on"));
    EXPECT_EQ(object.string("s"), "text");
    EXPECT_EQ(object.object("o").integer("k"), 1);
    EXPECT_EQ(object.find_integer("none"), std::nullopt);
    EXPECT_EQ(object.find_string("absent"), std::nullopt);
    EXPECT_ERROR(object.integer("absent"), "f lacks the key \"absent\", which should be an integer");
    EXPECT_ERROR(object.integer("x"), "f: \"x\" is 0.5, and should be an integer");
    EXPECT_ERROR(object.integer("big"), "too large");
    EXPECT_ERROR(object.boolean("s"), "f: \"s\" is \"text\", and should be true or false");
    EXPECT_ERROR(object.string("o"), "f: \"o\" is object, and should be a string");
    EXPECT_ERROR(object.object("n"), "should be an object");
    EXPECT_ERROR(JsonObject(value["n"], "f"), "where an object should be");
}

TEST(Json, KeysThatNobodyReadsAreToldWithTheNearestThatSomebodyDoes) {
    const nlohmann::json value = {{"sequence", 1}, {"globl_batch", 2}};
    const JsonObject object(value, "f"), copy = object;
    copy.integer("sequence");
    EXPECT_FALSE(object.find("global_batch"));
    EXPECT_ERROR(object.expect_no_others(), "f: unknown key \"globl_batch\"; did you mean global_batch?");
    object.find("globl_batch");
    EXPECT_NO_THROW(copy.expect_no_others());
}

TEST(Json, StringsInSentencesAreShortAndPrintable) {
    EXPECT_EQ(in_quotes("plain"), "\"plain\"");
    EXPECT_EQ(in_quotes("\x1b[31m"), "\"\\u001b[31m\"");
    EXPECT_LT(in_quotes(std::string(100'000, 'x')).size(), 120u);
    EXPECT_NO_THROW(in_quotes("\xff\xfe"));
}

TEST(Json, DamagedTextIsAnErrorOrJsonButNeverACrash) {
    const std::string text =
        R"({"model_type":"llama","hidden_size":64,"rope":{"factor":8.0,"list":[1,-2,3e4,"\u00e9"]},"tie":true})";
    int refused = 0;
    for (std::uint64_t seed = 0; seed < 4000; ++seed) {
        try {
            parse_json(Mutator(seed)(text), "f");
        } catch (const Error&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 1000);
}

} // namespace
} // namespace tutti
