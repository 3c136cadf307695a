#include "planner/evaluate/splitting.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace tutti::planner {
namespace {

double total_of(const StageFigures& figures) {
    double sum = 0;
    for (double seconds : figures.seconds) sum += seconds;
    return sum;
}

double slot_bytes_of(const StageFigures& figures, const StageSlots& slots) {
    double bytes = 0;
    for (std::size_t r = 0; r < slotted_count; ++r) bytes += slots.slots[r] * figures.slots[r];
    return bytes;
}

// Bytes that a block frees where it is recomputed, and the seconds that this takes.
struct Saving {
    double bytes = 0, seconds = 0;
    int stage = 0, block = 0;
};

} // namespace

Splitter::Splitter(PlanModel& model, const PlanPoint& point, const LaidOut& out, const ReadySchedule& schedule)
    : model_(model), point_(point), out_(out), schedule_(schedule), style_(style_of(point.schedule)),
      recomputes_in_(style_ == BackwardStyle::early ? StagePart::recompute : StagePart::backward),
      blocks_(model.chain().blocks()), stages_(point.schedule.stages()),
      alone_(point.schedule.stages_per_rank == 1 && point.schedule.copies == 1) {
    for (int rank = 0; rank < point.pipe; ++rank) {
        const ChainFigures* slowest = nullptr;
        int slowest_kind = 0;
        for (int kind : out.kinds[static_cast<std::size_t>(rank)]) {
            const ChainFigures& one = model.chain_figures(point, out, style_, false, kind);
            if (slowest && total_of(one.stage(0, blocks_)) <= total_of(slowest->stage(0, blocks_))) continue;
            slowest = &one;
            slowest_kind = kind;
        }
        plain_.push_back(slowest);
        kinds_.push_back(slowest_kind);
    }
    slots_.resize(static_cast<std::size_t>(stages_));
    for (const auto& rank : schedule.ranks)
        for (const StageSlots& one : rank)
            if (one.copy == 0) slots_[static_cast<std::size_t>(one.stage)] = &one;
}

const ChainFigures& Splitter::full(int rank) const {
    return model_.chain_figures(point_, out_, style_, true, kinds_[static_cast<std::size_t>(rank)]);
}

bool Splitter::recomputes() const {
    return std::ranges::any_of(point_.recompute, [](const auto& blocks) { return !blocks.empty(); });
}

double Splitter::time_of(int stage, int first, int end) const { return total_of(plain(stage).stage(first, end)); }

// Of a rank that has this stage alone: whether it fits, and what has to be computed again for it, the cheapest bytes
// first.
Splitter::Need Splitter::need_of(int stage, int first, int end) const {
    const StageFigures keeps = plain(stage).stage(first, end);
    const StageSlots& slots = *slots_[static_cast<std::size_t>(stage)];
    const int rank = rank_of_stage(stage), tensor = point_.strategies.tensor;
    RankBytes bytes = model_.chunk_bytes(keeps.elements - model_.doubled_elements(first, end, tensor), point_.zero,
                                         point_.data, PlanModel::over_weights(keeps, point_));
    bytes.capacity = model_.capacity(out_, rank);
    bytes.kept_free = model_.kept_free(bytes.capacity);
    bytes.buffers = keeps.constants + keeps.batch * point_.schedule.micro_batches;
    bytes.activations = slot_bytes_of(keeps, slots) + keeps.transient;
    if (bytes.margin() >= 0) return {};
    if (model_.options().recompute == Recomputing::none) return {.fits = false};
    const StageFigures again = full(rank).stage(first, end);
    bytes.activations = slot_bytes_of(again, slots) + std::max(again.transient, keeps.transient);
    if (bytes.margin() < 0) return {.fits = false};
    const double all =
        std::max(0.0, again.time(recomputes_in_) - (style_ == BackwardStyle::early ? 0.0 : keeps.time(recomputes_in_)));
    // As much of it as is missing.
    const double saved = slot_bytes_of(keeps, slots) - slot_bytes_of(again, slots);
    return {.extra = saved > 0 ? all * std::clamp(1 - bytes.margin() / saved, 0.0, 1.0) : all};
}

bool Splitter::holds(int stage, int first, int end, double most) const {
    const double time = time_of(stage, first, end);
    if (time > most) return false;
    if (!alone_) return true;
    const Need need = need_of(stage, first, end);
    return need.fits && time + need.extra <= most;
}

// The furthest ends of each stage; empty where the blocks do not fit in. What holds a run of blocks holds any part of
// it, so going as far as one can is never wrong.
std::vector<int> Splitter::fill_forward(double most) const {
    std::vector<int> cuts;
    int first = 0;
    for (int stage = 0; stage < stages_; ++stage) {
        int low = first, high = blocks_ - (stages_ - 1 - stage); // holds [first, low), not beyond high
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (holds(stage, first, middle, most))
                low = middle;
            else
                high = middle - 1;
        }
        if (low == first) return {};
        first = low;
        if (stage + 1 < stages_) cuts.push_back(first);
    }
    return first == blocks_ ? cuts : std::vector<int>{-1};
}

std::vector<int> Splitter::fill_backward(double most) const {
    std::vector<int> cuts(static_cast<std::size_t>(stages_ - 1));
    int end = blocks_;
    for (int stage = stages_ - 1; stage > 0; --stage) {
        int low = stage, high = end; // holds [high, end), not before low
        while (low < high) {
            const int middle = (low + high) / 2;
            if (holds(stage, middle, end, most))
                high = middle;
            else
                low = middle + 1;
        }
        if (high == end) return {};
        end = high;
        cuts[static_cast<std::size_t>(stage - 1)] = end;
    }
    return holds(0, 0, end, most) ? cuts : std::vector<int>{};
}

std::vector<std::vector<int>> Splitter::balanced() {
    if (stages_ > blocks_) return {};
    if (stages_ == 1) return {std::vector<int>{}};
    auto works = [&](double most) {
        const std::vector<int> cuts = fill_forward(most);
        return static_cast<int>(cuts.size()) == stages_ - 1 && cuts.front() > 0;
    };
    double high = 0;
    for (int rank = 0; rank < point_.pipe; ++rank) {
        high = std::max(high, total_of(plain_[static_cast<std::size_t>(rank)]->stage(0, blocks_)));
    }
    high *= 2; // a recomputation is no more than a forward
    if (!works(high)) return {};
    double low = 0;
    while (high - low > 1e-7 * high) {
        const double middle = (low + high) / 2;
        (works(middle) ? high : low) = middle;
    }
    std::vector<std::vector<int>> found = {fill_forward(high)};
    auto add = [&](std::vector<int> cuts) {
        if (static_cast<int>(cuts.size()) == stages_ - 1 && std::ranges::find(found, cuts) == found.end())
            found.push_back(std::move(cuts));
    };
    const std::vector<int> last = fill_backward(high);
    add(last);
    if (last.size() == found[0].size()) {
        std::vector<int> between;
        for (std::size_t c = 0; c < last.size(); ++c) between.push_back((found[0][c] + last[c] + 1) / 2);
        bool valid = true;
        for (int stage = 0; stage < stages_ && valid; ++stage) {
            const int first = stage == 0 ? 0 : between[static_cast<std::size_t>(stage - 1)],
                      end = stage + 1 == stages_ ? blocks_ : between[static_cast<std::size_t>(stage)];
            valid = first < end && holds(stage, first, end, high);
        }
        if (valid) add(std::move(between));
    }
    return found;
}

std::vector<int> Splitter::even() const {
    std::vector<int> cuts;
    for (int stage = 1; stage < stages_; ++stage) cuts.push_back(stage * blocks_ / stages_);
    return cuts;
}

std::vector<std::vector<int>> Splitter::all_cuts(int most) const {
    double count = 1;
    for (int k = 1; k < stages_; ++k) count *= static_cast<double>(blocks_ - stages_ + k) / k;
    if (count > most + 0.5 || stages_ > blocks_) return {};
    std::vector<std::vector<int>> all;
    std::vector<int> cuts;
    for (int stage = 1; stage < stages_; ++stage) cuts.push_back(stage);
    while (true) {
        all.push_back(cuts);
        int c = stages_ - 2;
        while (c >= 0 && cuts[static_cast<std::size_t>(c)] == blocks_ - (stages_ - 1 - c)) --c;
        if (c < 0) return all;
        ++cuts[static_cast<std::size_t>(c)];
        for (int k = c + 1; k < stages_ - 1; ++k)
            cuts[static_cast<std::size_t>(k)] = cuts[static_cast<std::size_t>(k - 1)] + 1;
    }
}

// More recomputation of this rank's stages until it fits.
bool Splitter::fit_rank(int rank) {
    auto margin = [&] {
        const RankBytes bytes = model_.memory_of(point_, out_, schedule_, style_, rank);
        last_total_ = bytes.total();
        return bytes.margin();
    };
    if (margin() >= 0) return true;
    if (model_.options().recompute == Recomputing::none) return false;
    std::vector<Saving> savings;
    for (const StageSlots& slots : schedule_.ranks[static_cast<std::size_t>(rank)]) {
        const int first = slots.stage == 0 ? 0 : point_.cuts[static_cast<std::size_t>(slots.stage - 1)];
        const int end = slots.stage + 1 == stages_ ? blocks_ : point_.cuts[static_cast<std::size_t>(slots.stage)];
        const std::vector<int>& already = point_.recompute[static_cast<std::size_t>(slots.stage)];
        for (int block = first; block < end; ++block) {
            if (std::ranges::find(already, block) != already.end()) continue;
            const StageFigures freed =
                plain_[static_cast<std::size_t>(rank)]->added(block, first) - full(rank).added(block, first);
            savings.push_back({.bytes = slot_bytes_of(freed, slots),
                               .seconds = std::max(0.0, -freed.time(recomputes_in_)),
                               .stage = slots.stage,
                               .block = block});
        }
    }
    std::erase_if(savings, [](const Saving& one) { return one.bytes <= 0; });
    std::ranges::stable_sort(
        savings, [](const Saving& a, const Saving& b) { return a.seconds * b.bytes < b.seconds * a.bytes; });
    auto recompute = [&](const Saving& one) {
        std::vector<int>& blocks = point_.recompute[static_cast<std::size_t>(one.stage)];
        if (std::ranges::find(blocks, one.block) == blocks.end())
            blocks.insert(std::ranges::lower_bound(blocks, one.block), one.block);
    };
    std::size_t next = 0;
    while (next < savings.size()) {
        double missing = -margin();
        if (missing <= 0) return true;
        while (next < savings.size() && missing > 0) {
            missing -= savings[next].bytes;
            recompute(savings[next++]);
        }
    }
    return margin() >= 0;
}

bool Splitter::complete(std::vector<int> cuts) {
    point_.cuts = std::move(cuts);
    point_.recompute.assign(static_cast<std::size_t>(stages_), {});
    if (model_.options().recompute == Recomputing::all)
        for (int block = 0, stage = 0; block < blocks_; ++block) {
            if (stage + 1 < stages_ && block == point_.cuts[static_cast<std::size_t>(stage)]) ++stage;
            point_.recompute[static_cast<std::size_t>(stage)].push_back(block);
        }
    bool fits = true;
    largest_ = 0;
    for (int rank = 0; rank < point_.pipe; ++rank) {
        fits &= fit_rank(rank);
        largest_ = std::max(largest_, last_total_);
    }
    return fits;
}

} // namespace tutti::planner
