#include "compile/graphs/recompute_choice.h"

#include "base/error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace tutti::compile {
namespace {

Bytes saved_by(const BlockActivations& block) { return block.kept - block.boundary; }

// Blocks that save and cost the same; which of them are taken does not matter.
struct Kind {
    Bytes saves;
    double work = 0;
    std::vector<int> blocks{};

    double work_per_byte() const { return work / static_cast<double>(saves.count); }
};

// The cheapest bytes first. Blocks that save nothing are left out.
std::vector<Kind> kinds_of(const StageActivations& stage) {
    std::vector<Kind> kinds;
    for (const BlockActivations& block : stage.blocks) {
        if (saved_by(block).count <= 0) continue;
        auto same = [&](const Kind& kind) { return kind.saves == saved_by(block) && kind.work == block.again.count; };
        auto found = std::ranges::find_if(kinds, same);
        if (found == kinds.end()) found = kinds.insert(kinds.end(), {saved_by(block), block.again.count, {}});
        found->blocks.push_back(block.block);
    }
    std::ranges::stable_sort(kinds, {}, &Kind::work_per_byte);
    return kinds;
}

// The least work that saves so many bytes, by branch and bound over how many to take of each kind. The first descent
// takes the cheapest bytes; a limit on what is tried keeps strange models from taking forever.
class Cover {
  public:
    explicit Cover(std::vector<Kind> kinds) : kinds_(std::move(kinds)), taken_(kinds_.size(), 0) {}

    void run(Bytes need) { descend(0, static_cast<double>(need.count), 0); }
    double work() const { return best_work_; } // infinity: not all of them suffice

    std::vector<int> blocks() const {
        std::vector<int> chosen;
        for (std::size_t k = 0; k < best_.size(); ++k)
            chosen.insert(chosen.end(), kinds_[k].blocks.begin(),
                          kinds_[k].blocks.begin() + static_cast<std::ptrdiff_t>(best_[k]));
        std::ranges::sort(chosen);
        return chosen;
    }

  private:
    void descend(std::size_t k, double need, double work) {
        if (need <= 0) {
            if (work >= best_work_) return;
            best_work_ = work;
            best_ = taken_;
            return;
        }
        if (++tried_ > most_tried || work + least_work(k, need) >= best_work_) return;
        if (k == kinds_.size()) return;
        const double saves = static_cast<double>(kinds_[k].saves.count);
        const auto enough = static_cast<std::size_t>(std::ceil(need / saves));
        for (std::size_t count = std::min(kinds_[k].blocks.size(), enough) + 1; count-- > 0;) {
            taken_[k] = count;
            descend(k + 1, need - saves * static_cast<double>(count),
                    work + kinds_[k].work * static_cast<double>(count));
        }
        taken_[k] = 0;
    }

    // Were parts of blocks to be had.
    double least_work(std::size_t k, double need) const {
        double work = 0;
        for (; k < kinds_.size() && need > 0; ++k) {
            const double all =
                static_cast<double>(kinds_[k].saves.count) * static_cast<double>(kinds_[k].blocks.size());
            work += std::min(need, all) * kinds_[k].work_per_byte();
            need -= all;
        }
        return need > 0 ? std::numeric_limits<double>::infinity() : work * (1 - 1e-9);
    }

    static constexpr int most_tried = 200'000;

    std::vector<Kind> kinds_;
    std::vector<std::size_t> taken_, best_;
    double best_work_ = std::numeric_limits<double>::infinity();
    int tried_ = 0;
};

std::vector<int> all_of(const std::vector<Kind>& kinds) {
    std::vector<int> blocks;
    for (const Kind& kind : kinds) blocks.insert(blocks.end(), kind.blocks.begin(), kind.blocks.end());
    std::ranges::sort(blocks);
    return blocks;
}

// As many blocks as this fraction of them, the cheapest bytes first.
std::vector<int> some_of(const std::vector<Kind>& kinds, double fraction) {
    std::vector<int> blocks;
    for (const Kind& kind : kinds) blocks.insert(blocks.end(), kind.blocks.begin(), kind.blocks.end());
    blocks.resize(static_cast<std::size_t>(std::floor(fraction * static_cast<double>(blocks.size()) + 1e-9)));
    std::ranges::sort(blocks);
    return blocks;
}

std::vector<int> least_that_fits(const StageActivations& stage, schedule::Recompute when) {
    const Bytes excess = peak_of(stage, {}, when) - stage.budget;
    if (excess.count <= 0) return {};
    const std::vector<Kind> kinds = kinds_of(stage);
    if (when == schedule::Recompute::early) {
        const int waiting = stage.in_flight - 1;
        if (waiting == 0) return {}; // the active micro-batch has everything in any case
        Cover cover(kinds);
        cover.run({(excess.count + waiting - 1) / waiting});
        return std::isfinite(cover.work()) ? cover.blocks() : all_of(kinds);
    }
    // One block's activations are there beside what is kept: for each size that may be the largest of these.
    double least = std::numeric_limits<double>::infinity();
    std::vector<int> best = all_of(kinds);
    for (const Kind& largest : kinds) {
        std::vector<Kind> smaller;
        for (const Kind& kind : kinds)
            if (kind.saves <= largest.saves) smaller.push_back(kind);
        Cover cover(std::move(smaller));
        cover.run({(excess.count + largest.saves.count + stage.in_flight - 1) / stage.in_flight});
        if (cover.work() >= least) continue;
        least = cover.work();
        best = cover.blocks();
    }
    return best;
}

Bytes kept_in_all(const StageActivations& stage) {
    Bytes kept;
    for (const BlockActivations& block : stage.blocks) kept += block.kept;
    return kept;
}

// r_s = 1 - (1 - r_1) w_1 A_1 / (w_s A_s) for w waiting micro-batches and activations A.
double fraction_of(const StageActivations& stage, const StageActivations& first, double fraction) {
    auto waiting = [](const StageActivations& s) {
        return static_cast<double>(s.in_flight - 1) * static_cast<double>(kept_in_all(s).count);
    };
    if (waiting(stage) <= 0) return 0;
    return std::clamp(1 - (1 - fraction) * waiting(first) / waiting(stage), 0.0, 1.0);
}

} // namespace

RecomputeRule parse_recompute_rule(const std::string& text) {
    if (text == "none") return {RecomputeRule::Kind::none};
    if (text == "full") return {RecomputeRule::Kind::full};
    if (text == "auto") return {RecomputeRule::Kind::automatic};
    double fraction = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fraction);
    if (error != std::errc() || end != text.data() + text.size() || !(fraction > 0 && fraction <= 1))
        fail("\"{}\" says nothing about recomputation; it is none, full, auto, or a fraction of the first stage's "
             "blocks "
             "above 0 and up to 1",
             text);
    return {RecomputeRule::Kind::fraction, fraction};
}

std::string to_string(const RecomputeRule& rule) {
    switch (rule.kind) {
    case RecomputeRule::Kind::none: return "none";
    case RecomputeRule::Kind::full: return "full";
    case RecomputeRule::Kind::automatic: return "auto";
    case RecomputeRule::Kind::fraction: break;
    }
    return fmt::format("{}", rule.fraction);
}

Bytes peak_of(const StageActivations& stage, std::span<const int> recomputed, schedule::Recompute when) {
    Bytes waits, largest;
    for (const BlockActivations& block : stage.blocks) {
        const bool again = std::ranges::find(recomputed, block.block) != recomputed.end();
        waits += again ? block.boundary : block.kept;
        if (again) largest = std::max(largest, saved_by(block));
    }
    if (when == schedule::Recompute::early) return stage.fixed + (stage.in_flight - 1) * waits + kept_in_all(stage);
    return stage.fixed + stage.in_flight * waits + largest;
}

std::vector<std::vector<int>> choose_recompute(std::span<const StageActivations> stages, const RecomputeRule& rule,
                                               schedule::Recompute when) {
    if (when == schedule::Recompute::never) return std::vector<std::vector<int>>(stages.size());
    std::vector<std::vector<int>> chosen;
    for (const StageActivations& stage : stages) {
        const std::vector<Kind> kinds = kinds_of(stage);
        switch (rule.kind) {
        case RecomputeRule::Kind::none: chosen.emplace_back(); break;
        case RecomputeRule::Kind::full: chosen.push_back(all_of(kinds)); break;
        case RecomputeRule::Kind::automatic: chosen.push_back(least_that_fits(stage, when)); break;
        case RecomputeRule::Kind::fraction:
            chosen.push_back(some_of(
                kinds, &stage == &stages.front() ? rule.fraction : fraction_of(stage, stages.front(), rule.fraction)));
            break;
        }
    }
    return chosen;
}

} // namespace tutti::compile
