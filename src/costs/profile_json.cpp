#include "base/error.h"
#include "base/limits.h"
#include "costs/profile.h"
#include "formats/json.h"
#include "formats/text_file.h"

#include <algorithm>

namespace tutti::costs {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t profile_version = 4;

Json json_of(const LinkSpeed& link) { return {{"latency", link.latency}, {"bytes_per_second", link.bytes}}; }

double number_in(const formats::JsonObject& object, std::string_view key, const Limits& limits) {
    const double value = object.number(key);
    if (!limits.hold(value)) fail("{}: {} is {}, and should be {}", object.where(), key, value, limits.text());
    return value;
}

std::int64_t integer_in(const formats::JsonObject& object, std::string_view key, std::int64_t least,
                        std::int64_t most) {
    const std::int64_t value = object.integer(key);
    if (value < least || value > most)
        fail("{}: {} is {}, and should be from {} to {}", object.where(), key, value, least, most);
    return value;
}

double seconds_in(const formats::JsonObject& object, std::string_view key) {
    return number_in(object, key, limits::duration);
}

int small_integer(const formats::JsonObject& object, std::string_view key) {
    return static_cast<int>(integer_in(object, key, 1, most_devices));
}

Bytes bytes_in(const formats::JsonObject& object, std::string_view key, std::int64_t least = 0) {
    return {integer_in(object, key, least, limits::bytes)};
}

// Calls `read` with every object of an array.
template <class Read>
void for_each(const formats::JsonObject& object, std::string_view key, const Read& read) {
    const nlohmann::json* list = object.find(key);
    if (!list || !list->is_array()) fail("{}: {} should be an array", object.where(), key);
    for (std::size_t i = 0; i < list->size(); ++i)
        read(formats::JsonObject((*list)[i], fmt::format("{}, {}[{}]", object.where(), key, i)));
}

Fingerprint read_fingerprint(const formats::JsonObject& object) {
    return {.device = object.string("device"),
            .model = object.string("model"),
            .cores = small_integer(object, "cores"),
            .threads = small_integer(object, "threads"),
            .version = object.string("version")};
}

CollectiveSample read_collective(const formats::JsonObject& object) {
    const std::string name = object.string("what");
    const auto what = parse_collective(name);
    if (!what) fail("{}: there is no collective {}", object.where(), formats::in_quotes(name));
    return {*what, small_integer(object, "ranks"), bytes_in(object, "bytes"), seconds_in(object, "seconds")};
}

} // namespace

std::string to_json(const CostProfile& profile) {
    Json kernels = Json::array(), collectives = Json::array(), messages = Json::array(), groups = Json::array();
    for (const auto& [key, sample] : profile.kernels)
        kernels.push_back({{"key", key},
                           {"op", sample.op},
                           {"flops", sample.flops},
                           {"bytes", sample.bytes},
                           {"seconds", sample.seconds},
                           {"workspace", sample.workspace.count}});
    for (const CollectiveSample& sample : profile.collectives)
        collectives.push_back({{"what", name_of(sample.what)},
                               {"ranks", sample.ranks},
                               {"bytes", sample.bytes.count},
                               {"seconds", sample.seconds}});
    for (const MessageSample& sample : profile.messages)
        messages.push_back({{"bytes", sample.bytes.count}, {"seconds", sample.seconds}});
    for (const auto& [ranks, room] : profile.group_room) groups.push_back({{"ranks", ranks}, {"bytes", room.count}});
    const Fingerprint& machine = profile.machine;
    const Json json = {
        {"version", profile_version},
        {"machine",
         {{"device", machine.device},
          {"model", machine.model},
          {"cores", machine.cores},
          {"threads", machine.threads},
          {"version", machine.version}}},
        {"ranks", profile.ranks},
        {"transport", profile.transport},
        {"model", profile.name},
        {"memory", profile.memory.count},
        {"host_memory", profile.host_memory.count},
        {"libraries", profile.libraries.count},
        {"dtype", name_of(profile.dtype)},
        {"speed", {{"flops", profile.speed.flops}, {"bytes", profile.speed.bytes}, {"launch", profile.speed.launch}}},
        {"host_copy", json_of(profile.host_copy)},
        {"contention", {{"compute", profile.contention.compute}, {"communication", profile.contention.communication}}},
        {"slowdown", profile.slowdown},
        {"collectives", collectives},
        {"messages", messages},
        {"group_room", groups},
        {"kernels", kernels}};
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

CostProfile parse_profile(std::string_view text, const std::string& where) {
    const nlohmann::json json = formats::parse_json(text, where);
    const formats::JsonObject all(json, where);
    if (const std::int64_t version = all.integer("version"); version != profile_version)
        fail("{} is a profile of version {}, and this program reads version {}", where, version, profile_version);
    CostProfile profile;
    profile.machine = read_fingerprint(all.object("machine"));
    profile.ranks = small_integer(all, "ranks");
    profile.transport = all.find_string("transport").value_or("");
    profile.name = all.string("model");
    profile.memory = bytes_in(all, "memory", 1);
    profile.host_memory = bytes_in(all, "host_memory");
    profile.libraries = bytes_in(all, "libraries");
    const auto dtype = parse_dtype(all.string("dtype"));
    if (!dtype) fail("{}: dtype is {}", where, formats::in_quotes(all.string("dtype")));
    profile.dtype = *dtype;
    const formats::JsonObject speed = all.object("speed"), copy = all.object("host_copy"),
                              both = all.object("contention");
    profile.speed = {number_in(speed, "flops", limits::flops), number_in(speed, "bytes", limits::rate),
                     number_in(speed, "launch", limits::duration.or_zero())};
    profile.host_copy = {.latency = number_in(copy, "latency", limits::duration.or_zero()),
                         .bytes = number_in(copy, "bytes_per_second", limits::rate)};
    profile.contention = {number_in(both, "compute", limits::factor), number_in(both, "communication", limits::factor)};
    profile.slowdown = number_in(all, "slowdown", limits::factor);
    for_each(all, "collectives",
             [&](const formats::JsonObject& one) { profile.collectives.push_back(read_collective(one)); });
    for_each(all, "messages", [&](const formats::JsonObject& one) {
        profile.messages.push_back({bytes_in(one, "bytes"), seconds_in(one, "seconds")});
    });
    for_each(all, "group_room", [&](const formats::JsonObject& one) {
        profile.group_room[small_integer(one, "ranks")] = bytes_in(one, "bytes");
    });
    for_each(all, "kernels", [&](const formats::JsonObject& one) {
        const KernelSample sample{one.string("op"), number_in(one, "flops", limits::flops.or_zero()),
                                  number_in(one, "bytes", limits::rate.or_zero()), seconds_in(one, "seconds"),
                                  bytes_in(one, "workspace")};
        profile.kernels.insert_or_assign(one.string("key"), sample);
    });
    auto order = [](const CollectiveSample& one) { return std::tuple(one.what, one.ranks, one.bytes); };
    std::ranges::sort(profile.collectives, {}, order);
    std::ranges::sort(profile.messages, {}, &MessageSample::bytes);
    // Between two samples there is a line only where their sizes differ.
    const auto same = std::ranges::adjacent_find(profile.collectives, {}, order);
    if (same != profile.collectives.end())
        fail("{}: {} of {} bytes by {} ranks is in collectives twice", where, name_of(same->what), same->bytes.count,
             same->ranks);
    const auto again = std::ranges::adjacent_find(profile.messages, {}, &MessageSample::bytes);
    if (again != profile.messages.end())
        fail("{}: a message of {} bytes is in messages twice", where, again->bytes.count);
    if (profile.kernels.empty()) fail("{}: kernels is empty: no kernel was timed; tutti profile measures anew", where);
    return profile;
}

CostProfile read_profile(const fs::path& path) {
    return parse_profile(formats::read_text_file(path, "a profile", 64 << 20), path.string());
}

void check_fits(const CostProfile& profile, const Fingerprint& here, const std::string& where) {
    const Fingerprint& there = profile.machine;
    std::string differs;
    auto compare = [&](std::string_view what, const auto& measured, const auto& now) {
        if (differs.empty() && measured != now)
            differs = fmt::format("{} was {}, and here it is {}", what, measured, now);
    };
    compare("the device", there.device, here.device);
    compare("the hardware", formats::in_quotes(there.model), formats::in_quotes(here.model));
    compare("the number of cores", there.cores, here.cores);
    compare("the number of threads of a rank", there.threads, here.threads);
    compare("the version of this program", there.version, here.version);
    if (!differs.empty())
        fail("{} does not hold here: when it was measured, {}; tutti profile measures anew", where, differs);
}

} // namespace tutti::costs
