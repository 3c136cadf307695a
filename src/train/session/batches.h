// Batches: the tokens of each step, from a source, in an order that depends only on the seed and a sample counter.
#pragma once

#include "data/masking.h"
#include "data/sampler.h"
#include "data/token_source.h"
#include "models/model.h"
#include "program/program.h"
#include "run/run_config.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti::train {

// What the data says about the workload, with what the config asks for: sequence and global batch are then known.
struct OpenedData {
    std::shared_ptr<const data::TokenSource> training;
    std::shared_ptr<const data::TokenSource> evaluation; // null where nothing is evaluated
    std::int64_t sequence = 0;
    std::int64_t global_batch = 0;
    bool has_documents = false;          // sequences are documents one behind the other, here or there
    std::vector<std::string> warnings{}; // what the reader of the run should know of its data, one sentence each
};
// Error where data, config and model contradict each other.
OpenedData open_data(const run::RunConfig& config, const models::ModelSource& model_source);

class Batches {
  public:
    Batches(std::shared_ptr<const data::TokenSource> source, const run::RunConfig& config,
            const models::ModelFacts& model, std::int64_t batch);

    // Reads the samples [first, first + batch) of the order. Returns how many targets count.
    std::int64_t read(std::int64_t first);
    void ignore_targets(); // of what was read: none of them counts
    void clear();          // tokens that any model has, and no targets
    std::span<const std::int64_t> input_ids(std::int64_t sample, std::int64_t count) const;
    std::span<const std::int64_t> targets(std::int64_t sample, std::int64_t count) const;
    // Per token, the position at which its document begins; 0 where the source has no documents.
    std::span<const std::int32_t> documents(std::int64_t sample, std::int64_t count) const;

  private:
    std::shared_ptr<const data::TokenSource> source_;
    data::Sampler sampler_;
    std::int64_t vocabulary_, sequence_, batch_;
    std::optional<data::Masking> masking_; // masked language models on plain text
    std::vector<std::int64_t> input_ids_, targets_;
    std::vector<std::int32_t> documents_;
};

// The batches of the steps that come, each read before the steps in front of it have begun: a rank that cannot read one
// can then still take part in those.
class BatchesAhead {
  public:
    // `ahead`: steps that may be under way at a time.
    BatchesAhead(const Batches& batches, std::int64_t ahead) : ring_(static_cast<std::size_t>(ahead) + 1, {batches}) {}

    std::int64_t ahead() const { return static_cast<std::int64_t>(ring_.size()) - 1; }
    // Error where no target counts, so that the step would have no loss.
    void read(std::int64_t step, std::int64_t first_sample);
    const Batches& of(std::int64_t step) const { return at(step).batches; }
    std::int64_t tokens_of(std::int64_t step) const { return at(step).tokens; }

  private:
    struct Read {
        Batches batches;
        std::int64_t tokens = 0;
    };
    const Read& at(std::int64_t step) const { return ring_[static_cast<std::size_t>(step) % ring_.size()]; }

    std::vector<Read> ring_;
};

// Copies a micro-batch's tokens, from sample `first` of the batch on, to the inputs of a Program.
void fill_inputs(const Program& program, const Batches& batches, std::int64_t first,
                 std::span<std::byte* const> inputs);

} // namespace tutti::train
