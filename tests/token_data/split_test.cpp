#include "data/split.h"

#include "support/temporary_folder.h"

#include <vector>

namespace tutti {

using namespace data;
namespace {

// Sample k holds k, and belongs to steps of `batch`.
class Numbered final : public TokenSource {
  public:
    explicit Numbered(std::int64_t batch) : batch_(batch) {}
    std::int64_t samples() const override { return 10; }
    std::int64_t sequence() const override { return 1; }
    void read(std::int64_t sample, std::span<std::int64_t> input, std::span<std::int64_t> targets) const override {
        input[0] = targets[0] = sample;
    }
    bool ordered() const override { return batch_ > 0; }
    std::int64_t batch() const override { return batch_; }
    std::vector<std::string> files() const override { return {}; }
    std::string name() const override { return "numbers"; }
    std::string describe() const override { return "numbers"; }

  private:
    std::int64_t batch_;
};

std::int64_t first_token(const TokenSource& source, std::int64_t sample) {
    std::int64_t input = 0, target = 0;
    source.read(sample, {&input, 1}, {&target, 1});
    return input;
}

TEST(Split, TheLastSamplesAreHeldOut) {
    const Split split = hold_out(std::make_shared<Numbered>(0), 3);
    EXPECT_EQ(split.training->samples(), 7);
    EXPECT_EQ(split.evaluation->samples(), 3);
    EXPECT_EQ(first_token(*split.training, 6), 6);
    EXPECT_EQ(first_token(*split.evaluation, 0), 7);
    EXPECT_THROW(first_token(*split.training, 7), Bug);
}

TEST(Split, NothingHeldOutIsTheSourceItself) {
    const auto source = std::make_shared<Numbered>(0);
    const Split split = hold_out(source, 0);
    EXPECT_EQ(split.training, source);
    EXPECT_EQ(split.evaluation, nullptr);
}

TEST(Split, HoldingOutEverythingOrPartOfAStepIsRefused) {
    EXPECT_ERROR(hold_out(std::make_shared<Numbered>(0), 10), "cannot hold 10 of the 10 samples of numbers back");
    EXPECT_ERROR(hold_out(std::make_shared<Numbered>(0), -1), "cannot hold -1");
    EXPECT_ERROR(hold_out(std::make_shared<Numbered>(5), 3), "whole steps of 5 samples");
    EXPECT_EQ(hold_out(std::make_shared<Numbered>(5), 5).evaluation->batch(), 5);
}

} // namespace
} // namespace tutti
