#include "offload/policy.h"

#include "base/error.h"

namespace tutti::offload {

std::string_view name_of(Eviction eviction) {
    switch (eviction) {
    case Eviction::farthest_use: return "farthest";
    case Eviction::least_recent: return "lru";
    case Eviction::first_in: return "fifo";
    }
    TUTTI_CHECK(false, "eviction {}", static_cast<int>(eviction));
}

std::optional<Eviction> parse_eviction(std::string_view name) {
    for (Eviction one : {Eviction::farthest_use, Eviction::least_recent, Eviction::first_in})
        if (name == name_of(one)) return one;
    return std::nullopt;
}

std::string_view name_of(OptimizerPlacement placement) {
    switch (placement) {
    case OptimizerPlacement::automatic: return "auto";
    case OptimizerPlacement::device: return "device";
    case OptimizerPlacement::host: return "host";
    }
    TUTTI_CHECK(false, "optimizer placement {}", static_cast<int>(placement));
}

std::optional<OptimizerPlacement> parse_optimizer_placement(std::string_view name) {
    for (OptimizerPlacement one : {OptimizerPlacement::automatic, OptimizerPlacement::device, OptimizerPlacement::host})
        if (name == name_of(one)) return one;
    return std::nullopt;
}

std::string_view name_of(UpdateTime time) {
    switch (time) {
    case UpdateTime::automatic: return "auto";
    case UpdateTime::backward: return "backward";
    case UpdateTime::end: return "end";
    case UpdateTime::next: return "next";
    }
    TUTTI_CHECK(false, "update time {}", static_cast<int>(time));
}

std::optional<UpdateTime> parse_update_time(std::string_view name) {
    for (UpdateTime one : {UpdateTime::automatic, UpdateTime::backward, UpdateTime::end, UpdateTime::next})
        if (name == name_of(one)) return one;
    return std::nullopt;
}

} // namespace tutti::offload
