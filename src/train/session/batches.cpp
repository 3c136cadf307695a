#include "train/session/batches.h"

#include "base/counted.h"
#include "base/error.h"
#include "data/split.h"
#include "models/builtin.h"
#include "models/checkpoint.h"
#include "run/layout.h"

#include <algorithm>

namespace tutti::train {
namespace {

constexpr std::int64_t default_sequence = 256;
constexpr std::int64_t default_batch = 8;

std::int64_t pick_sequence(const run::RunConfig& config, const models::ModelFacts& model, const std::string& data) {
    if (config.workload.sequence == 0) {
        const std::int64_t most = model.max_sequence > 0 ? model.max_sequence : model.context;
        return most > 0 ? std::min(most, default_sequence) : default_sequence;
    }
    if (model.max_sequence > 0 && config.workload.sequence > model.max_sequence)
        fail("sequence {} for {} is longer than the {} of the model", config.workload.sequence, data,
             counted(model.max_sequence, "position"));
    return config.workload.sequence;
}

// Why bytes are not the model's tokens; empty where they are: all 256 and at most as many special tokens, and no
// tokenizer of its own.
std::string not_bytes(const models::ModelSource& model) {
    if (model.facts().vocabulary > 2 * models::byte_vocabulary)
        return fmt::format("the model has a vocabulary of {} tokens", model.facts().vocabulary);
    const std::string tokenizer = models::tokenizer_in(model.folder());
    return tokenizer.empty() ? "" : fmt::format("the model has its own tokenizer, {}", tokenizer);
}

// Data of the model's tokens, or bytes for a model of bytes. The built-in stories are for trying any model, so of them
// it is only said what they are.
void check_vocabulary(const data::TokenSource& data, const models::ModelSource& model,
                      std::vector<std::string>& warnings) {
    const std::int64_t vocabulary = model.facts().vocabulary;
    if (data.vocabulary() > vocabulary)
        fail("{} holds tokens up to {}, but the model's vocabulary has {}", data.name(), data.vocabulary() - 1,
             vocabulary);
    if (data.origin() == data::TokenOrigin::tokenizer) return;
    const std::string reason = not_bytes(model);
    if (reason.empty()) return;
    if (data.origin() == data::TokenOrigin::text)
        fail("{} is text, and {}: --data takes text only for models whose tokens are bytes. Turn the text into tokens "
             "first, with tutti tokenize MODEL {} --output tokens.bin: --data reads {}; --data builtin tries the model "
             "without any",
             data.name(), reason, data.name(), data::token_formats());
    if (!warnings.empty()) return; // said already, of the training data
    warnings.push_back(fmt::format("--data builtin is made-up stories, read byte by byte as tokens 0 to 255, and {}: "
                                   "good for trying speed and memory, not for teaching the model anything",
                                   reason));
}

} // namespace

OpenedData open_data(const run::RunConfig& config, const models::ModelSource& model_source) {
    const models::ModelFacts& model = model_source.facts();
    // An ordered file has a sequence of its own; asking for another is its error.
    OpenedData opened;
    std::shared_ptr<const data::TokenSource> source = data::open_tokens(config.data, config.workload.sequence);
    if (!source->ordered()) {
        const std::int64_t sequence = pick_sequence(config, model, config.data);
        if (sequence != source->sequence()) source = data::open_tokens(config.data, sequence);
    }
    opened.sequence = source->sequence();
    if (model.max_sequence > 0 && opened.sequence > model.max_sequence)
        fail("{} holds sequences of {}, but the model has positions for {}", source->name(), opened.sequence,
             model.max_sequence);
    check_vocabulary(*source, model_source, opened.warnings);

    const std::int64_t own = source->ordered() ? source->batch() : 0;
    const std::int64_t unit = std::max<std::int64_t>(1, config.workload.micro_batch) * run::mesh_of(config).data;
    const std::int64_t fallback = default_batch % unit != 0 ? unit : default_batch;
    opened.global_batch = config.workload.global_batch > 0 ? config.workload.global_batch : (own > 0 ? own : fallback);
    if (own > 0 && opened.global_batch != own)
        fail("{} holds batches of {}; global_batch is {}", source->name(), counted(own, "sequence"),
             opened.global_batch);

    opened.training = source;
    opened.has_documents = source->has_documents();
    if (config.eval_every == 0) return opened;
    if (!config.eval_data.empty()) {
        opened.evaluation = data::open_tokens(config.eval_data, opened.sequence);
        opened.has_documents |= opened.evaluation->has_documents();
        check_vocabulary(*opened.evaluation, model_source, opened.warnings);
        return opened;
    }
    if (source->ordered()) fail("{} is used in order, so nothing of it is held out: give --eval-data", source->name());
    const std::int64_t micro = run::micro_batch_of(config, opened.global_batch);
    const std::int64_t wanted = std::min(config.eval_batches * micro, source->samples() / 10);
    if (wanted < micro)
        fail("{} has {}, too few to hold out one batch of {} for evaluation: give --eval-data", source->name(),
             counted(source->samples(), "sample"), micro);
    const data::Split split = data::hold_out(source, wanted);
    opened.training = split.training;
    opened.evaluation = split.evaluation;
    return opened;
}

Batches::Batches(std::shared_ptr<const data::TokenSource> source, const run::RunConfig& config,
                 const models::ModelFacts& model, std::int64_t batch)
    : source_(std::move(source)), sampler_(source_->samples(), config.seed, source_->ordered()),
      vocabulary_(model.vocabulary), sequence_(source_->sequence()), batch_(batch) {
    input_ids_.resize(static_cast<std::size_t>(batch * sequence_));
    targets_.resize(input_ids_.size());
    documents_.resize(input_ids_.size());
    if (model.causal || source_->ordered()) return;
    const std::int64_t mask_token = config.mask_token < 0 ? model.mask_token : config.mask_token;
    if (mask_token < 0 || mask_token >= model.vocabulary)
        fail("{} is a masked language model: give --mask-token, the id below {} that stands for a hidden token",
             model.architecture, model.vocabulary);
    masking_ = data::Masking{.mask_token = mask_token, .vocabulary = model.vocabulary, .seed = config.seed};
}

std::int64_t Batches::read(std::int64_t first) {
    const auto length = static_cast<std::size_t>(sequence_);
    for (std::int64_t row = 0; row < batch_; ++row) {
        const std::int64_t sample = sampler_.at(first + row);
        const auto begin = static_cast<std::size_t>(row) * length;
        const std::span input(input_ids_.data() + begin, length), target(targets_.data() + begin, length);
        source_->read(sample, input, target);
        source_->read_documents(sample, std::span(documents_.data() + begin, length));
        data::check_tokens(input, vocabulary_, sample, *source_);
        data::check_tokens(target, vocabulary_, sample, *source_);
        if (masking_) data::mask_tokens(*masking_, first + row, input, target);
    }
    return std::ranges::count_if(targets_, [](std::int64_t target) { return target != data::ignored_target; });
}

void Batches::ignore_targets() { std::ranges::fill(targets_, data::ignored_target); }

void Batches::clear() {
    std::ranges::fill(input_ids_, 0);
    std::ranges::fill(documents_, 0);
    ignore_targets();
}

void BatchesAhead::read(std::int64_t step, std::int64_t first_sample) {
    Read& next = ring_[static_cast<std::size_t>(step) % ring_.size()];
    next.tokens = next.batches.read(first_sample);
    if (next.tokens == 0) fail("step {}: no target of the batch counts, so there is no loss", step + 1);
}

namespace {

// `count` samples of a sequence of values each.
template <class T>
std::span<const T> samples_of(const std::vector<T>& values, std::int64_t sequence, std::int64_t sample,
                              std::int64_t count) {
    return std::span(values).subspan(static_cast<std::size_t>(sample * sequence),
                                     static_cast<std::size_t>(count * sequence));
}

} // namespace

std::span<const std::int64_t> Batches::input_ids(std::int64_t sample, std::int64_t count) const {
    return samples_of(input_ids_, sequence_, sample, count);
}

std::span<const std::int64_t> Batches::targets(std::int64_t sample, std::int64_t count) const {
    return samples_of(targets_, sequence_, sample, count);
}

std::span<const std::int32_t> Batches::documents(std::int64_t sample, std::int64_t count) const {
    return samples_of(documents_, sequence_, sample, count);
}

void fill_inputs(const Program& program, const Batches& batches, std::int64_t first,
                 std::span<std::byte* const> inputs) {
    const std::int64_t size = program.micro_batch_samples;
    auto values_of = [&](const std::string& name) {
        if (name == "documents") return std::as_bytes(batches.documents(first, size));
        return std::as_bytes(name == "targets" ? batches.targets(first, size) : batches.input_ids(first, size));
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) std::ranges::copy(values_of(program.inputs[i].name), inputs[i]);
}

} // namespace tutti::train
