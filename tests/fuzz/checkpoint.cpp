// A checkpoint.json in the folder of a run, beside a state.safetensors. The checksum that it holds of itself is put
// right first: what it guards is fuzzed, too.
#include "checkpoints/checkpoint.h"

#include "formats/checksum.h"
#include "formats/json.h"
#include "fuzz.h"

using namespace tutti;
using namespace tutti::checkpoints;
using namespace tutti::formats;

namespace {

std::string with_checksum(std::string_view text) {
    nlohmann::json json = parse_json(text, "checkpoint.json");
    if (!json.is_object() || !json.contains("checksum")) return std::string(text);
    json.erase("checksum");
    const std::string rest = json.dump();
    Checksum checksum;
    checksum.update(std::as_bytes(std::span(rest)));
    json["checksum"] = checksum.hex();
    return json.dump();
}

} // namespace

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    static const fuzz::Folder run;
    static const bool filled = [] {
        run.make("checkpoints/step-00000100");
        run.write("checkpoints/step-00000100/state.safetensors", fuzz::small_safetensors("weights/"));
        return true;
    }();
    TUTTI_CHECK(filled, "no state");
    const std::string_view text = fuzz::text_of(data, size);
    std::string written(text);
    fuzz::accepts([&] { written = with_checksum(text); });
    run.write("checkpoints/step-00000100/checkpoint.json", written);
    CheckpointList list;
    if (!fuzz::accepts([&] { list = list_checkpoints(run.path()); })) return 0; // of another version
    TUTTI_CHECK(list.readable.size() + list.damaged.size() == 1, "{}", list.readable.size());
    for (const CheckpointInfo& info : list.readable) {
        TUTTI_CHECK(info.state.step >= 0 && info.state.samples >= 0, "{}", info.state.step);
        static_cast<void>(is_intact(info));
    }
    return 0;
}
