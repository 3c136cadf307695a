// tutti generate on models that say nothing, and with tokens that a terminal would obey.
#include "program.h"

#include <algorithm>

namespace tutti::test {
namespace {

TEST(Generate, SaysThatABuiltInModelHasNoTrainedWeights) {
    const Outcome random = tutti_with({"generate", "gpt2-tiny", "--prompt", "Hello", "--tokens", "1"});
    EXPECT_EQ(random.status, 0) << random.errors;
    EXPECT_TRUE(
        random.errors.starts_with("tutti: warning: gpt2-tiny is a built-in model, which has no trained weights"))
        << random.errors;
    EXPECT_EQ(std::ranges::count(random.errors, '\n'), 1) << random.errors;
    const Outcome trained = tutti_with({"generate", reference("gpt2").string(), "--prompt", "Hello", "--tokens", "1"});
    EXPECT_EQ(trained.errors, "");
}

// JSON lets it through as it is.
TEST(Generate, EscapesTheDeleteCharacterInJson) {
    const Outcome outcome = tutti_with(
        {"generate", "gpt2-tiny", "--prompt", "a", "--tokens", "400", "--temperature", "100", "--seed", "0", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const nlohmann::json json = nlohmann::json::parse(outcome.output);
    ASSERT_NE(json["text"].get<std::string>().find('\x7f'), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.find('\x7f'), std::string::npos) << outcome.output;
}

} // namespace
} // namespace tutti::test
