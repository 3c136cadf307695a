#include "plan/decisions_json.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/limits.h"
#include "formats/json.h"

#include <array>

namespace tutti {
namespace {

using offload::PlannedResidency;
using offload::PlannedStep;

// A time or a speed: plans are weighed by them, so that none may be endless or negative.
double amount(const formats::JsonObject& json, std::string_view key) {
    const double number = json.number(key);
    if (!(number >= 0 && number <= 1e18)) fail("{}: {} is {}, and should be from 0 to 1e18", json.where(), key, number);
    return number;
}

nlohmann::ordered_json step_to_json(const PlannedStep& step) {
    nlohmann::ordered_json residents = nlohmann::ordered_json::array();
    for (const offload::ResidentIntervals& one : step.residents) residents.push_back(offload::to_text(one));
    return {{"capacity", step.capacity.count},
            {"seconds", step.seconds},
            {"exposed_seconds", step.exposed},
            {"on_device", residents}};
}

PlannedStep read_step(const formats::JsonObject& json) {
    PlannedStep step{.capacity = {json.integer("capacity")},
                     .seconds = amount(json, "seconds"),
                     .exposed = amount(json, "exposed_seconds")};
    for (const nlohmann::json& one : json.list("on_device")) {
        const auto resident = one.is_string() ? offload::parse_resident(one.get<std::string>()) : std::nullopt;
        if (!resident)
            fail("{}: on_device holds {}, which is not a chunk with its intervals, such as \"weights 3 in host: 0-12 "
                 "30-41\"",
                 json.where(), one.is_string() ? formats::in_quotes(one.get<std::string>()) : one.type_name());
        step.residents.push_back(*resident);
    }
    json.expect_no_others();
    return step;
}

nlohmann::ordered_json speed_to_json(const CopySpeed& speed) {
    return {{"latency", speed.latency}, {"in", speed.in}, {"out", speed.out}, {"together", speed.together}};
}

CopySpeed read_speed(const formats::JsonObject& json) {
    const CopySpeed speed{.latency = amount(json, "latency"),
                          .in = amount(json, "in"),
                          .out = amount(json, "out"),
                          .together = amount(json, "together")};
    json.expect_no_others();
    return speed;
}

nlohmann::ordered_json rank_to_json(const std::optional<PlannedResidency>& rank) {
    if (!rank) return nullptr;
    nlohmann::ordered_json json = {{"host_updates", rank->host_updates},
                                   {"later_updates", rank->later_updates},
                                   {"training", step_to_json(rank->training)}};
    if (rank->evaluation) json["evaluation"] = step_to_json(*rank->evaluation);
    json["host_copies"] = speed_to_json(rank->host);
    if (rank->disk) json["disk_copies"] = speed_to_json(*rank->disk);
    json["host_update_bytes"] = rank->host_update_bytes;
    return json;
}

std::optional<PlannedResidency> read_rank(const nlohmann::json& value, const std::string& where) {
    if (value.is_null()) return std::nullopt;
    const formats::JsonObject json(value, where);
    PlannedResidency rank{.later_updates = json.boolean("later_updates"),
                          .host = read_speed({json.object("host_copies").value(), where + ": host_copies"}),
                          .host_update_bytes = amount(json, "host_update_bytes")};
    for (const nlohmann::json& chunk : json.list("host_updates")) {
        if (!chunk.is_number_unsigned() || chunk.get<std::uint64_t>() > INT32_MAX)
            fail("{}: host_updates should be a list of chunks", where);
        rank.host_updates.push_back(chunk.get<std::int32_t>());
    }
    rank.training = read_step({json.object("training").value(), where + ": training"});
    if (const nlohmann::json* evaluation = json.find("evaluation"))
        rank.evaluation = read_step({*evaluation, where + ": evaluation"});
    if (const nlohmann::json* disk = json.find("disk_copies")) rank.disk = read_speed({*disk, where + ": disk_copies"});
    json.expect_no_others();
    return rank;
}

struct FusionKey {
    const char* name;
    bool FusionOptions::*member;
};
constexpr std::array<FusionKey, 4> fusion_keys = {{{"elementwise", &FusionOptions::elementwise},
                                                   {"norm_weights", &FusionOptions::norm_weights},
                                                   {"head", &FusionOptions::head},
                                                   {"merge_linears", &FusionOptions::merge_linears}}};

} // namespace

nlohmann::ordered_json fusion_to_json(const FusionOptions& fusion) {
    nlohmann::ordered_json json;
    for (const FusionKey& key : fusion_keys) json[key.name] = fusion.*key.member;
    json["head_logits"] = fusion.head_logits.count;
    return json;
}

FusionOptions fusion_from_json(const nlohmann::json& value, const std::string& file) {
    const formats::JsonObject json(value, file + ": fusion");
    FusionOptions fusion;
    for (const FusionKey& key : fusion_keys) fusion.*key.member = json.boolean(key.name);
    fusion.head_logits = {json.integer("head_logits")};
    json.expect_no_others();
    return fusion;
}

nlohmann::ordered_json residency_to_json(const Plan::Residencies& ranks) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const auto& rank : ranks) json.push_back(rank_to_json(rank));
    return json;
}

Plan::Residencies residency_from_json(const nlohmann::json& json, const std::string& file) {
    if (!json.is_array()) fail("{}: residency should be a list, with null or an object for each rank", file);
    Plan::Residencies ranks;
    for (const nlohmann::json& one : json)
        ranks.push_back(read_rank(one, fmt::format("{}: residency of rank {}", file, ranks.size())));
    return ranks;
}

Plan::TimedKernels timed_kernels_from_json(const nlohmann::json& json, const std::string& file) {
    Plan::TimedKernels kernels;
    if (!json.is_object()) fail("{}: timed_kernels should be an object of kinds of devices", file);
    for (const auto& [device, choices] : json.items()) {
        if (!choices.is_object()) fail("{}: timed_kernels of {} should be an object", file, formats::in_quotes(device));
        for (const auto& [work, algorithm] : choices.items()) {
            if (!algorithm.is_string())
                fail("{}: timed_kernels of {} should be texts", file, formats::in_quotes(device));
            kernels[device][work] = algorithm.get<std::string>();
        }
    }
    return kernels;
}

std::string to_text(const std::optional<PlannedResidency>& residency) { return rank_to_json(residency).dump(); }

std::optional<PlannedResidency> parse_residency(const std::string& text) {
    return read_rank(nlohmann::json::parse(text), "the residency of another rank");
}

} // namespace tutti
