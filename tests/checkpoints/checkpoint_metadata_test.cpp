#include "checkpoints/checkpoint.h"

#include "formats/json.h"
#include "support/temporary_folder.h"

namespace tutti {

using namespace checkpoints;
using namespace test;
namespace {

using test::TemporaryFolder;

// A run goes on from these numbers: what is added to them or multiplied by them has to stay a number.
TEST(CheckpointMetadata, CountsThatNoRunReachesAreRefused) {
    const TemporaryFolder folder;
    const nlohmann::json whole = {{"tutti_checkpoint", 1},
                                  {"step", 3},
                                  {"samples", 24},
                                  {"seed", -1},
                                  {"skipped", 0},
                                  {"steps", 10},
                                  {"model", "0123456789abcdef"},
                                  {"files", {{"state.safetensors", "0123456789abcdef"}}}};
    auto read = [&](const nlohmann::json& json) {
        folder.write("checkpoint.json", json.dump());
        return inspect_checkpoint(folder.path());
    };
    EXPECT_EQ(read(whole).state.samples, 24);
    for (const char* key : {"step", "samples", "skipped", "steps"})
        for (const std::int64_t count : {std::int64_t{-1}, INT64_MAX, INT64_MIN}) {
            nlohmann::json json = whole;
            json[key] = count;
            EXPECT_ERROR(read(json), fmt::format("{} is {}; it has to be from 0 to ", key, count));
        }
}

// A newer program may have saved it: to pass it over as damaged would lose what it holds.
TEST(CheckpointMetadata, OneOfAnotherVersionIsNotDamaged) {
    const TemporaryFolder folder;
    folder.write("checkpoint.json", R"({"tutti_checkpoint": 99, "what": "is in it nobody knows"})");
    try {
        inspect_checkpoint(folder.path());
        ADD_FAILURE() << "it was read";
    } catch (const Damage& damage) {
        ADD_FAILURE() << damage.what();
    } catch (const Error& error) {
        EXPECT_NE(std::string_view(error.what()).find("is a checkpoint of version 99; this program reads version 1"),
                  std::string_view::npos)
            << error.what();
    }
}

} // namespace
} // namespace tutti
