// The table of settings that a run asks for and a plan decides.
#include "plan/settings_table.h"

#include "formats/json.h"
#include "plan/plan.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>

namespace tutti {
namespace {

// A value that the setting takes, and that is not its default.
SettingValue other_value(const PlanSetting& setting) {
    const SettingValue usual = setting.given.get({});
    const SettingValue candidates[] = {true,  std::int64_t{2}, "reference", "bf16", "host",
                                       "lru", "end",           "off",       "on",   "12MiB"};
    for (const SettingValue& candidate : candidates) {
        PlanSettings settings;
        if (setting.given.set(settings, candidate) && setting.given.get(settings) != usual) return candidate;
    }
    ADD_FAILURE() << setting.key;
    return usual;
}

TEST(PlanSettings, EveryRowIsAFieldOfItsOwn) {
    std::set<std::string> keys, places;
    for (const PlanSetting& setting : plan_settings()) {
        SCOPED_TRACE(setting.key);
        EXPECT_TRUE(keys.emplace(setting.key).second);
        EXPECT_TRUE(places.insert(std::string(setting.section) + "/" + std::string(setting.name)).second);
        EXPECT_EQ(&plan_setting(setting.key), &setting);
        PlanSettings changed;
        ASSERT_TRUE(setting.given.set(changed, other_value(setting)));
        EXPECT_NE(changed, PlanSettings{});
        for (const PlanSetting& other : plan_settings())
            EXPECT_EQ(other.given.get(changed) == other.given.get({}), &other != &setting) << other.key;
    }
}

TEST(PlanSettings, EveryRowComesBackFromAFile) {
    for (const PlanSetting& setting : plan_settings()) {
        SCOPED_TRACE(setting.key);
        PlanSettings settings;
        ASSERT_TRUE(setting.given.set(settings, other_value(setting)));
        nlohmann::ordered_json json;
        for (std::int64_t version = 1; version <= Plan::version; ++version) add_settings(json, settings, version);
        const nlohmann::json plain = nlohmann::json::parse(json.dump());
        PlanSettings again;
        read_settings(again, {plain, "plan.json"}, Plan::version);
        EXPECT_EQ(again, settings) << json;
    }
}

TEST(PlanSettings, DefaultsOfTheOptionalOnesAreNotWritten) {
    nlohmann::ordered_json json;
    for (std::int64_t version = 1; version <= Plan::version; ++version) add_settings(json, {}, version);
    for (const PlanSetting& setting : plan_settings()) {
        const auto& object = setting.section.empty() ? json : json[setting.section];
        EXPECT_EQ(object.contains(setting.name), !setting.optional) << setting.key;
    }
}

// One type stood for gradients, master weights and moments.
TEST(PlanSettings, Version1HadOneTypeForAllThatTheOptimizerKeeps) {
    const nlohmann::json first = {{"device", "cpu"},
                                  {"workload", {{"sequence", 8}, {"global_batch", 4}, {"micro_batch", 2}}},
                                  {"precision", {{"compute", "bf16"}, {"states", "float32"}}},
                                  {"chunk_elements", 64},
                                  {"split_backward", false}};
    PlanSettings settings;
    read_settings(settings, {first, "old.json"}, 1);
    EXPECT_EQ(settings.precision, (Precision{.compute = DType::bfloat16}));
    EXPECT_EQ(settings.workload.micro_batch, 2);
}

TEST(Setting, ANumberThatAFieldCannotHoldChangesNothing) {
    struct Numbers {
        int small = 3;
        std::uint64_t natural = 4;
        double real = 5;
    } numbers;
    EXPECT_FALSE(plain_setting<Numbers>(path(&Numbers::small)).set(numbers, std::int64_t{1} << 40));
    EXPECT_FALSE(plain_setting<Numbers>(path(&Numbers::natural)).set(numbers, std::int64_t{-1}));
    EXPECT_FALSE(plain_setting<Numbers>(path(&Numbers::real)).set(numbers, std::nan("")));
    EXPECT_FALSE(plain_setting<Numbers>(path(&Numbers::small)).set(numbers, "3"));
    EXPECT_EQ(numbers.small, 3);
    EXPECT_EQ(numbers.natural, 4u);
    EXPECT_EQ(numbers.real, 5);
    EXPECT_TRUE(plain_setting<Numbers>(path(&Numbers::real)).set(numbers, std::int64_t{7}));
    EXPECT_EQ(numbers.real, 7);
}

} // namespace
} // namespace tutti
