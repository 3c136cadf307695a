// The parameters of pipeline schedules. Every schedule is a point of this one family.
//
// Words: P pipeline ranks have V stages each, so a model has S = V·P stages, 0 to S-1. A bidirectional schedule has
// several model replicas on the same ranks. M micro-batches make a step; micro-batch m belongs to replica m mod
// model_replicas.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::schedule {

// Which rank has stage s of model replica c.
enum class StagePlacement : std::uint8_t {
    loop,     // s mod P, for every model replica
    wave,     // 0 1 .. P-1 P-1 .. 1 0 0 1 ..: neighbouring stages meet on a rank at the turns
    mirrored, // loop; odd replicas from the last rank to the first, pairs of replicas rotated (Chimera)
};

// When a stage computes its activations a second time.
enum class Recompute : std::uint8_t {
    never,       // keeps them
    on_gradient, // in the backward, once the gradient is there
    early,       // as a task of its own, which may run before the gradient arrives
};

// Zero or empty stands for what the family would choose; `resolve` puts that in its place.
struct ScheduleParameters {
    std::string family = "1f1b"; // a name of families()
    int ranks = 1;               // P
    int micro_batches = 1;       // M, of all model replicas together
    int stages_per_rank = 0;     // V
    int model_replicas = 0;
    StagePlacement placement = StagePlacement::loop;
    int in_flight = 0;                  // K: micro-batches of a model replica between first forward and last backward
    bool split_backward = false;        // input and weight gradients as tasks of their own
    int deferred_weight_gradients = -1; // per rank, at most; -1: as many as wait
    int group = 0;                      // micro-batches that a rank takes through one of its stages before the next
    std::vector<Recompute> recompute{}; // per stage; empty: on_gradient where recomputing costs anything
    double memory_cap = 0;              // activations of a rank, in the unit of the costs; 0: none

    int stages() const { return ranks * stages_per_rank; }
    bool operator==(const ScheduleParameters&) const = default;
};

// Of resolved parameters.
int rank_of(const ScheduleParameters& parameters, int replica, int stage);

std::string_view name_of(StagePlacement placement);
std::string_view name_of(Recompute recompute);
bool parse(std::string_view name, StagePlacement& placement); // false: no such name
bool parse(std::string_view name, Recompute& recompute);

} // namespace tutti::schedule
