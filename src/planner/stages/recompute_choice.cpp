#include "planner/stages/recompute_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tutti::planner {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// Blocks that free and cost the same; which of them are taken does not matter.
struct EqualBlocks {
    double freed = 0, work = 0, active = 0; // of each
    std::vector<int> blocks{};              // indices

    double work_per_byte() const { return work / freed; }
    double all_freed() const { return freed * static_cast<double>(blocks.size()); }
};

// The cheapest bytes first. Blocks that free nothing are left out.
std::vector<EqualBlocks> grouped(std::span<const RecomputableBlock> blocks) {
    std::vector<EqualBlocks> groups;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const RecomputableBlock& block = blocks[i];
        if (block.freed <= 0) continue;
        auto same = [&](const EqualBlocks& group) {
            return group.freed == block.freed && group.work == block.work && group.active == block.active;
        };
        auto found = std::ranges::find_if(groups, same);
        if (found == groups.end()) found = groups.insert(groups.end(), {block.freed, block.work, block.active});
        found->blocks.push_back(static_cast<int>(i));
    }
    std::ranges::stable_sort(groups, {}, &EqualBlocks::work_per_byte);
    return groups;
}

// The least work that frees so many bytes, by branch and bound over how many blocks to take of each group. The first
// descent takes the cheapest bytes; a limit on what is tried keeps strange models from taking forever.
class LeastWork {
  public:
    explicit LeastWork(std::vector<EqualBlocks> groups) : groups_(std::move(groups)), taken_(groups_.size(), 0) {}

    void run(double need) { descend(0, need, 0); }
    double work() const { return best_work_; } // infinite: not all of them suffice

    std::vector<int> blocks() const {
        std::vector<int> chosen;
        for (std::size_t g = 0; g < best_.size(); ++g)
            chosen.insert(chosen.end(), groups_[g].blocks.begin(),
                          groups_[g].blocks.begin() + static_cast<std::ptrdiff_t>(best_[g]));
        std::ranges::sort(chosen);
        return chosen;
    }

  private:
    // False where no choice from group g on is better than the best so far.
    bool descend(std::size_t g, double need, double work) {
        if (need <= 0) {
            if (work >= best_work_) return false;
            best_work_ = work;
            best_ = taken_;
            return true;
        }
        if (++tried_ > most_tried || work + bound(g, need) >= best_work_) return false;
        if (g == groups_.size()) return false;
        const EqualBlocks& group = groups_[g];
        const auto enough = static_cast<std::size_t>(std::ceil(need / group.freed));
        for (std::size_t count = std::min(group.blocks.size(), enough) + 1; count-- > 0;) {
            taken_[g] = count;
            const double rest = need - group.freed * static_cast<double>(count);
            const double done = work + group.work * static_cast<double>(count);
            // Fewer of the cheapest bytes never make the bound lower.
            if (rest > 0 && done + bound(g + 1, rest) >= best_work_) break;
            descend(g + 1, rest, done);
        }
        taken_[g] = 0;
        return true;
    }

    // Were parts of blocks to be had.
    double bound(std::size_t g, double need) const {
        double work = 0;
        for (; g < groups_.size() && need > 0; ++g) {
            work += std::min(need, groups_[g].all_freed()) * groups_[g].work_per_byte();
            need -= groups_[g].all_freed();
        }
        return need > 0 ? infinite : work * (1 - 1e-9);
    }

    static constexpr int most_tried = 20'000;

    std::vector<EqualBlocks> groups_;
    std::vector<std::size_t> taken_, best_;
    double best_work_ = infinite;
    int tried_ = 0;
};

std::vector<int> indices_of(const std::vector<EqualBlocks>& groups) {
    std::vector<int> all;
    for (const EqualBlocks& group : groups) all.insert(all.end(), group.blocks.begin(), group.blocks.end());
    return all;
}

RecomputeChoice choice_of(std::span<const RecomputableBlock> blocks, std::vector<int> indices, bool fits) {
    std::ranges::sort(indices);
    double freed = 0, active = 0;
    for (const int i : indices) {
        freed += blocks[static_cast<std::size_t>(i)].freed;
        active = std::max(active, blocks[static_cast<std::size_t>(i)].active);
    }
    return {std::move(indices), freed - active, fits};
}

Bytes saved_by(const compile::BlockActivations& block) { return block.kept - block.boundary; }

Bytes kept_in_all(const StageActivations& stage) {
    Bytes kept;
    for (const compile::BlockActivations& block : stage.blocks) kept += block.kept;
    return kept;
}

// Recomputed early, the active micro-batch has everything before its backward. Recomputed within the backward, it has
// one block's activations beside what it keeps.
std::vector<RecomputableBlock> recomputable(const StageActivations& stage, schedule::Recompute when) {
    const bool early = when == schedule::Recompute::early;
    std::vector<RecomputableBlock> blocks;
    for (const compile::BlockActivations& block : stage.blocks) {
        const auto saved = static_cast<double>(saved_by(block).count);
        blocks.push_back({.block = block.block,
                          .work = block.recomputed.count,
                          .freed = (early ? stage.in_flight - 1 : stage.in_flight) * saved,
                          .active = early ? 0 : saved});
    }
    return blocks;
}

// Every block of the stage that saves something, whatever waits.
std::vector<RecomputableBlock> of_one_micro_batch(const StageActivations& stage) {
    StageActivations one = stage;
    one.in_flight = 1;
    return recomputable(one, schedule::Recompute::on_gradient);
}

// Of so many blocks this share, the cheapest bytes first; no more than save something.
std::vector<int> cheapest(std::span<const RecomputableBlock> blocks, double share) {
    std::vector<int> indices = indices_of(grouped(blocks));
    const auto wanted = static_cast<std::size_t>(std::floor(share * static_cast<double>(blocks.size()) + 0.5));
    indices.resize(std::min(indices.size(), wanted));
    std::ranges::sort(indices);
    return indices;
}

} // namespace

RecomputeChoice least_recomputation(std::span<const RecomputableBlock> blocks, double excess) {
    if (excess <= 0) return {};
    const std::vector<EqualBlocks> groups = grouped(blocks);
    // For each size that the largest of active may have, of the blocks that have no more.
    double least = infinite;
    std::vector<int> best;
    std::vector<double> tried;
    for (const EqualBlocks& largest : groups) {
        if (std::ranges::find(tried, largest.active) != tried.end()) continue;
        tried.push_back(largest.active);
        std::vector<EqualBlocks> smaller;
        for (const EqualBlocks& group : groups)
            if (group.active <= largest.active) smaller.push_back(group);
        LeastWork search(std::move(smaller));
        search.run(excess + largest.active);
        if (search.work() >= least) continue;
        least = search.work();
        best = search.blocks();
    }
    const bool fits = least < infinite;
    return choice_of(blocks, fits ? std::move(best) : indices_of(groups), fits);
}

RecomputeChoice full_recomputation(std::span<const RecomputableBlock> blocks) {
    return choice_of(blocks, indices_of(grouped(blocks)), true);
}

double recomputed_share(double excess, double freed) { return freed > 0 ? std::clamp(excess / freed, 0.0, 1.0) : 1; }

KeptActivations kept_by(const StageActivations& stage, std::span<const int> recomputed, schedule::Recompute when) {
    Bytes waiting, largest;
    for (const compile::BlockActivations& block : stage.blocks) {
        const bool again = std::ranges::find(recomputed, block.block) != recomputed.end();
        waiting += again ? block.boundary : block.kept;
        if (again) largest = std::max(largest, saved_by(block));
    }
    return {waiting, when == schedule::Recompute::early ? kept_in_all(stage) - waiting : largest};
}

Bytes peak_of(const StageActivations& stage, std::span<const int> recomputed, schedule::Recompute when) {
    const KeptActivations kept = kept_by(stage, recomputed, when);
    return stage.fixed + stage.in_flight * kept.waiting + kept.active;
}

std::vector<std::vector<int>> choose_recompute(std::span<const StageActivations> stages, const RecomputeRule& rule,
                                               schedule::Recompute when) {
    std::vector<std::vector<int>> chosen(stages.size());
    if (when == schedule::Recompute::never) return chosen;
    for (std::size_t s = 0; s < stages.size(); ++s) {
        const StageActivations& stage = stages[s];
        std::vector<int> indices;
        if (rule.share) {
            indices = cheapest(of_one_micro_batch(stage), *rule.share);
        } else if (rule.which == Recomputing::all) {
            indices = full_recomputation(of_one_micro_batch(stage)).blocks;
        } else if (rule.which == Recomputing::as_needed) {
            const Bytes excess = peak_of(stage, {}, when) - stage.budget;
            indices = least_recomputation(recomputable(stage, when), static_cast<double>(excess.count)).blocks;
        }
        for (const int i : indices) chosen[s].push_back(stage.blocks[static_cast<std::size_t>(i)].block);
    }
    return chosen;
}

} // namespace tutti::planner
