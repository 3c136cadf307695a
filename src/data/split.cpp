#include "data/split.h"

#include "base/counted.h"
#include "base/error.h"

#include <utility>

namespace tutti::data {
namespace {

class View final : public TokenSource {
  public:
    View(std::shared_ptr<const TokenSource> source, std::int64_t first, std::int64_t count)
        : source_(std::move(source)), first_(first), count_(count) {}

    std::int64_t samples() const override { return count_; }
    std::int64_t sequence() const override { return source_->sequence(); }
    void read(std::int64_t sample, std::span<std::int64_t> input, std::span<std::int64_t> targets) const override {
        TUTTI_CHECK(sample >= 0 && sample < count_, "sample {} of {}", sample, count_);
        source_->read(first_ + sample, input, targets);
    }
    bool has_documents() const override { return source_->has_documents(); }
    void read_documents(std::int64_t sample, std::span<std::int32_t> begins) const override {
        TUTTI_CHECK(sample >= 0 && sample < count_, "sample {} of {}", sample, count_);
        source_->read_documents(first_ + sample, begins);
    }
    bool ordered() const override { return source_->ordered(); }
    std::int64_t batch() const override { return source_->batch(); }
    std::int64_t vocabulary() const override { return source_->vocabulary(); }
    std::vector<std::string> files() const override { return source_->files(); }
    std::string name() const override { return source_->name(); }
    std::string describe() const override {
        return fmt::format("{} (samples {} to {})", source_->describe(), first_, first_ + count_ - 1);
    }

  private:
    std::shared_ptr<const TokenSource> source_;
    std::int64_t first_;
    std::int64_t count_;
};

} // namespace

Split hold_out(std::shared_ptr<const TokenSource> source, std::int64_t evaluation_samples) {
    const std::int64_t samples = source->samples();
    if (evaluation_samples < 0 || evaluation_samples >= samples)
        fail("cannot hold {} of the {} of {} back for evaluation: at least one must be left to train on",
             evaluation_samples, counted(samples, "sample"), source->name());
    if (source->batch() > 0 && evaluation_samples % source->batch() != 0)
        fail("cannot hold {} of {} back for evaluation: it holds whole steps of {}",
             counted(evaluation_samples, "sample"), source->name(), counted(source->batch(), "sample"));
    if (evaluation_samples == 0) return {std::move(source), nullptr};
    const std::int64_t training_samples = samples - evaluation_samples;
    return {std::make_shared<View>(source, 0, training_samples),
            std::make_shared<View>(source, training_samples, evaluation_samples)};
}

} // namespace tutti::data
