// RunConfig: everything a training run can be told, by flag or by the same key in a TOML file. What its plan then
// decides in the same words are the PlanSettings that it begins with.
#pragma once

#include "comm/group.h"
#include "cores/assign.h"
#include "plan/plan_settings.h"
#include "sharding/mesh.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::run {

enum class LearningRateSchedule { constant, linear, cosine, warmup_stable_decay };

// What connects the ranks of a run.
enum class Connection { automatic, threads, mpi };

// How much of the forward is computed again in the backward instead of being kept.
struct RecomputeAmount {
    bool automatic = false; // as much as memory asks for
    double share = 0;       // else this share of the blocks

    bool operator==(const RecomputeAmount&) const = default;
};

// Whose activations may be in host memory between forward and backward: nobody's, all blocks', or automatic: those of
// the blocks whose copies take less time than computing them again, instead of recomputing them.
enum class ActivationOffload { none, automatic, full };

struct RunConfig : PlanSettings {
    RunConfig() { chunk_elements = 0; } // large, or where replicas share gradients about a block

    // What to train, on what
    std::string model = "gpt2-tiny"; // Hugging Face folder or built-in name
    bool from_scratch = false;       // new weights, also where the folder holds some
    std::string data = "builtin";
    std::string eval_data;        // empty: the last samples of `data` are held out
    std::string output;           // the run's folder; empty: nothing is kept
    std::int64_t mask_token = -1; // for masked language models on plain text

    std::int64_t steps = 200;
    std::uint64_t seed = 0;

    // Machine
    std::string gpu;                 // of a dry run: a kind of GPU that need not be here, such as h200; empty: none
    int threads = 0;                 // 0: all cores this process may use
    std::vector<int> rank_threads{}; // instead: of every process, in their order; empty: all have as many
    cores::Bind bind = cores::Bind::automatic;
    std::string disk; // a folder for what host memory does not hold

    // Many ranks; resolved by run/layout.h
    int ranks = 0;             // 0: as many as the mesh has, or as were started
    std::vector<int> places{}; // of a plan: per rank, which process takes it; empty: that of its own number
    Connection comm = Connection::automatic;
    double timeout = comm::default_timeout.count; // seconds

    // Requests that a plan answers in other words: with a mesh, a schedule, and blocks by number
    std::optional<sharding::Mesh> mesh{}; // none: all ranks are replicas
    std::string schedule;                 // a family; empty: 1f1b where there is a pipeline
    int stages_per_rank = 0;              // 0: what the schedule has, here and below
    int model_replicas = 0;               // of a bidirectional schedule
    int in_flight = 0;                    // micro-batches
    RecomputeAmount recompute;
    ActivationOffload offload_activations = ActivationOffload::none;

    std::string plan;    // a file to follow; empty: made of all this
    int measure_top = 3; // plans that are measured where the layout is left open
    std::string trace;   // a file

    // Optimizer
    double lr = 1e-3;
    double lr_min = 0.1; // the last learning rate, as a share of lr
    LearningRateSchedule lr_schedule = LearningRateSchedule::cosine;
    std::int64_t warmup = 0;  // steps
    double decay_share = 0.2; // of the steps, in warmup_stable_decay
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
    double clip = 1.0; // 0: never

    // Evaluation, checkpoints, records
    std::int64_t eval_every = 0;
    std::int64_t eval_batches = 8; // micro-batches per evaluation
    std::int64_t save_every = 0;
    std::int64_t keep = 2;
    bool resume = false;
    std::int64_t resume_from = 0;      // a step; 0: the newest checkpoint
    bool allow_changed_data = false;   // where a run goes on
    std::int64_t stop_after = 0;       // steps of this process; then save and stop
    std::int64_t non_finite_limit = 5; // bad steps in a row that end the run
    std::string metrics;               // JSON lines
    bool tensorboard = true;           // event files in the output folder
    std::string report;                // a page: the residency plan of offloaded model data
    std::string dump_step0;
    bool dry_run = false;

    bool resumes() const { return resume || resume_from > 0; }
    bool operator==(const RunConfig&) const = default;
};

std::string_view name_of(LearningRateSchedule schedule); // constant linear cosine wsd
std::optional<LearningRateSchedule> parse_schedule(std::string_view name);
std::string_view name_of(Connection connection); // auto threads mpi
std::optional<Connection> parse_connection(std::string_view name);
std::string_view name_of(ActivationOffload offload); // none auto full
std::optional<ActivationOffload> parse_activation_offload(std::string_view name);
std::string to_string(const RecomputeAmount& amount); // none auto full, or a share
std::optional<RecomputeAmount> parse_recompute(std::string_view text);

// Error where a number makes no sense, naming the key.
void check(const RunConfig& config);

// The learning rate of a step, counted from 0.
double learning_rate(const RunConfig& config, std::int64_t step);

} // namespace tutti::run
