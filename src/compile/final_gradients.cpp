#include "compile/final_gradients.h"

#include <algorithm>

namespace tutti::compile {

FinalGradients::FinalGradients(const Graph& graph, const Ownership& ownership, const StageCodeOptions& options,
                               const Contributions& contributions, const StoredPlaces& places,
                               const Placement& placement, SegmentWriter& writer)
    : graph_(graph), ownership_(ownership), options_(options), contributions_(contributions), places_(places),
      placement_(placement), writer_(writer) {
    if (options.early) find_early_updates();
}

// Per chunk the position from which on it may be updated: all have contributed, and read its weights.
void FinalGradients::find_early_updates() {
    const std::vector<std::size_t>& order = placement_.order;
    for (const auto& [chunk, node] : contributions_.last_of_chunk)
        if (is_final_early(ownership_, static_cast<std::size_t>(chunk)))
            ready_[chunk] = narrow<std::int32_t>(std::ranges::find(order, node) - order.begin());
    auto not_before = [&](std::int32_t chunk, std::int32_t position) {
        if (const auto at = ready_.find(chunk); at != ready_.end()) at->second = std::max(at->second, position);
    };
    for (std::size_t p = 0; p < order.size(); ++p) {
        const Node& node = graph_.nodes()[order[p]];
        if (node.op->view) continue;
        for (ValueId input : node.inputs)
            if (const Parameter* parameter = graph_.parameter_of(graph_.value(input).storage))
                not_before(places_.chunk_of(*parameter), narrow<std::int32_t>(p));
    }
    for (const std::vector<Window>& windows : placement_.gradients)
        for (const Window& window : windows) not_before(window.chunk, window.last);
    // A reduction is waited for in the segment that starts it.
    std::erase_if(ready_, [&](const auto& one) {
        const auto& [chunk, position] = one;
        return reduces_early(ownership_.kind_of(static_cast<std::size_t>(chunk)), options_.zero) &&
               writer_.part_at(position) != placement_.parts[contributions_.last_of_chunk.at(chunk)];
    });
}

// Where one reduction is all that a chunk needs, it starts with the last contribution of the last micro-batch, and the
// rest of the backward goes on above it. Where chunks are fetched and evicted and none is needed, the square is taken
// while the gradients are there.
void FinalGradients::reduce() {
    if (!options_.trains) return;
    for (const auto& [chunk, node] : contributions_.last_of_chunk) {
        if (writer_.node() != node) continue;
        const auto c = static_cast<std::size_t>(chunk);
        const DType dtype = options_.precision.gradients;
        if (reduces_early(ownership_.kind_of(c), options_.zero)) {
            Instruction reduction = reduction_of(ownership_, c, dtype, options_.zero);
            reduction.awaited = ready_.contains(chunk);
            reduction.only_last = true;
            reductions_.emplace_back(chunk, writer_.add(std::move(reduction)));
        } else if (options_.squares && !ready_.contains(chunk) && squares_early(ownership_, c)) {
            Instruction square = square_of(ownership_, c, *options_.squares, dtype, options_.zero);
            square.only_last = true;
            writer_.add(std::move(square));
        }
    }
}

// A chunk that is reduced is updated when the next reduction has begun, so that one is always under way.
void FinalGradients::update() {
    for (const auto& [chunk, position] : ready_)
        if (position == writer_.position()) waiting_.push_back(chunk);
    const bool part_ends = writer_.is_last_of_part();
    std::vector<std::int32_t> still;
    for (std::int32_t chunk : waiting_)
        if (!part_ends && !reductions_.empty() && reductions_.back().first == chunk)
            still.push_back(chunk);
        else
            update(chunk);
    waiting_ = std::move(still);
    if (part_ends) reductions_.clear();
}

void FinalGradients::update(std::int32_t chunk) {
    const bool has_loss = options_.early->alone && graph_.output("loss") != nullptr;
    std::vector<Instruction> update = early_update(ownership_, static_cast<std::size_t>(chunk), options_.early->results,
                                                   options_.precision, options_.zero, has_loss);
    for (const auto& [reduced, number] : reductions_)
        if (reduced == chunk && !update.empty()) update.front().waits.push_back(number);
    for (Instruction& one : update) {
        one.only_last = true;
        writer_.add(std::move(one));
    }
    updated_.insert(chunk);
}

} // namespace tutti::compile
