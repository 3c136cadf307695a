#include "run/memory_table.h"

#include <fmt/format.h>

namespace tutti::run {

std::vector<MemoryRow> MemoryTable::rows() const {
    const bool device = capacity.count > 0;
    const char* const away = "of the model data above, the rest is offloaded";
    std::vector<MemoryRow> rows = {
        {"weights", weights, "in the type they are computed with"},
        {"gradients", gradients, over_weights.count > 0 ? "that do not lie over the weights" : ""},
        {"master", master, "float32 weights beside narrower ones"},
        {"moments", moments, "AdamW's two"},
        {"activations", activations, "what backward needs, and values in between"},
        {"buffers", buffers, "tokens, tables, sums"},
        {"workspace", workspace, "of kernels"},
        {"libraries", libraries,
         device ? "CUDA's context and code, other programs" : "code, thread stacks, kernel caches"},
        {"total", total(), ""},
    };
    if (limited) {
        const std::vector<MemoryRow> places = {
            {"on device", on_device, away},
            {"in host memory", on_host, on_disk.count > 0 ? "with the buffers of copies to and from the disk" : ""},
            {"on disk", on_disk, ""}};
        rows.insert(rows.begin() + 4, places.begin(), places.end());
        if (offloaded.count > 0)
            rows.insert(rows.begin() + 4, {"offloaded", offloaded, "activations, of all micro-batches in flight"});
    }
    if (limit.count > 0)
        rows.push_back({"limit", limit,
                        fmt::format("set by --device-memory: {} of it are taken; {} come on top", to_string(arena()),
                                    device || on_host.count == 0 ? "libraries" : "libraries and host memory")});
    if (device) rows.push_back({"free", fits() ? capacity - total() : Bytes{}, "of the device's memory"});
    return rows;
}

std::string MemoryTable::sentence() const {
    std::string text;
    for (const MemoryRow& row : {MemoryRow{"weights", weights, ""},
                                 {"gradients", gradients, ""},
                                 {"master weights", master, ""},
                                 {"moments", moments, ""},
                                 {"activations", activations, ""},
                                 {"buffers", buffers, ""},
                                 {"workspace", workspace, ""}})
        if (row.bytes.count > 0)
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row.name, to_string(row.bytes));
    return text;
}

} // namespace tutti::run
