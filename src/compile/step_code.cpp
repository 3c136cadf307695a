#include "compile/step_code.h"

#include "base/checked.h"
#include "base/philox.h"
#include "compile/stage_code.h"
#include "memory/liveness.h"

#include <algorithm>
#include <iterator>

namespace tutti::compile {
namespace {

constexpr std::int64_t sum_count = 3; // squares, loss, ranks that ask to stop

// Of a chunk that is sharded, this rank has a share in that region.
bool is_share(const ChunkKind& kind, Zero zero, Region region) { return kind.sharded_over >= 0 && zero.shards(region); }
// The optimizer of this rank updates a share of it.
bool updates_share(const ChunkKind& kind, Zero zero) { return kind.sharded_over >= 0 && zero.shards_states(); }

// Elements of a chunk, where the region holds all of it.
Argument elements(Region region, std::size_t chunk, DType dtype, Range range, Access access) {
    return {{region, narrow<std::int32_t>(chunk), range.begin * size_of(dtype)}, {dtype, {range.size()}}, {1}, access};
}

Range whole(const Ownership& ownership, std::size_t chunk) { return {0, ownership.layout.chunks[chunk].elements}; }

// What the optimizer of this rank updates of a chunk, as it lies in a region: a share, where the region keeps only
// that, begins at 0.
Argument updated(const Ownership& ownership, Region region, std::size_t chunk, DType dtype, Access access, Zero zero) {
    const ChunkKind& kind = ownership.kind_of(chunk);
    if (!updates_share(kind, zero)) return elements(region, chunk, dtype, whole(ownership, chunk), access);
    const Range share = ownership.share(chunk);
    const std::int64_t begin = is_share(kind, zero, region) ? 0 : share.begin;
    return elements(region, chunk, dtype, {begin, begin + share.size()}, access);
}

} // namespace

ResultLayout lay_out_results(DType loss, std::size_t chunks) {
    ResultLayout layout;
    layout.loss = {{Region::results, 0, 0}, {loss, {}}, {}, Access::accumulate};
    layout.norm = {{Region::results, 0, 64}, {DType::float64, {}}, {}, Access::write};
    layout.sums = {{Region::results, 0, 128}, {DType::float64, {sum_count}}, {1}, Access::write};
    layout.square = {{Region::results, 0, 72}, {DType::float64, {}}, {}, Access::write};
    layout.squares = 192;
    layout.size = {round_up(layout.squares + 8 * static_cast<std::int64_t>(chunks), memory::buffer_alignment)};
    return layout;
}

Instruction reduction_of(const Ownership& ownership, std::size_t chunk, DType gradients, Zero zero) {
    const ChunkKind& kind = ownership.kind_of(chunk);
    const bool share = updates_share(kind, zero);
    Instruction reduce = communication_of(share ? InstructionKind::reduce_chunk : InstructionKind::all_reduce,
                                          kind.reductions.back(), {{"combine", std::string("sum")}});
    reduce.inputs.push_back(elements(Region::gradients, chunk, gradients, whole(ownership, chunk), Access::read));
    reduce.outputs.push_back(elements(Region::gradients, chunk, gradients,
                                      share ? ownership.share(chunk) : whole(ownership, chunk), Access::write));
    return reduce;
}

Segment clear_segment(const Ownership& ownership, const StepCodeOptions& options) {
    Segment segment{.kind = TaskKind::clear};
    for (std::size_t c = 0; c < ownership.layout.chunks.size(); ++c) {
        if (!is_cleared_first(ownership.kind_of(c), options.zero)) continue;
        Range range = whole(ownership, c);
        if (is_share(ownership.kind_of(c), options.zero, Region::gradients)) range = {0, ownership.share(c).size()};
        segment.instructions.push_back(
            zeros(elements(Region::gradients, c, options.precision.gradients, range, Access::write)));
    }
    return segment;
}

Segment reduce_segment(const Ownership& ownership, const StepCodeOptions& options) {
    Segment segment{.kind = TaskKind::reduce};
    const DType dtype = options.precision.gradients;
    std::size_t most = 0;
    for (const ChunkKind& kind : ownership.kinds) most = std::max(most, kind.reductions.size());
    std::map<std::size_t, std::int32_t> before; // per chunk, the reduction under way
    for (std::size_t level = 0; level < most; ++level)
        for (std::size_t c = 0; c < ownership.layout.chunks.size(); ++c) {
            const ChunkKind& kind = ownership.kind_of(c);
            const bool in_windows =
                is_share(kind, options.zero, Region::gradients); // its last reduction was done by micro-batch
            if (level >= kind.reductions.size() || reduces_early(kind, options.zero)) continue;
            const bool last = level + 1 == kind.reductions.size();
            if (last && in_windows) continue;
            Instruction reduce = reduction_of(ownership, c, dtype, options.zero);
            if (!last || in_windows) {
                const Range range = in_windows ? Range{0, ownership.share(c).size()} : whole(ownership, c);
                reduce = communication_of(InstructionKind::all_reduce, kind.reductions[level], reduce.attributes);
                reduce.inputs = {elements(Region::gradients, c, dtype, range, Access::read)};
                reduce.outputs = {elements(Region::gradients, c, dtype, range, Access::write)};
            }
            if (const auto at = before.find(c); at != before.end()) reduce.waits.push_back(at->second);
            before[c] = narrow<std::int32_t>(segment.instructions.size());
            segment.instructions.push_back(std::move(reduce));
        }
    return segment;
}

Instruction square_of(const Ownership& ownership, std::size_t chunk, std::int64_t squares, DType gradients, Zero zero) {
    std::int64_t before = 0;
    for (std::size_t c = 0; c < chunk; ++c) before += ownership.kind_of(c).counts;
    Instruction square{.op = "squared_norm", .kind = InstructionKind::squared_norm};
    square.inputs.push_back(updated(ownership, Region::gradients, chunk, gradients, Access::read, zero));
    square.outputs.push_back({{Region::results, 0, squares + 8 * before}, {DType::float64, {}}, {}, Access::write});
    return square;
}

bool squares_early(const Ownership& ownership, std::size_t chunk) {
    const ChunkKind& kind = ownership.kind_of(chunk);
    return kind.counts && kind.reductions.empty() && kind.sharded_over < 0 && kind.stages.size() == 1;
}

Segment norm_segment(const Ownership& ownership, const ResultLayout& results, const StepCodeOptions& options) {
    Segment segment{.kind = TaskKind::norm};
    std::int64_t squares = 0;
    for (std::size_t c = 0; c < ownership.layout.chunks.size(); ++c) {
        if (!ownership.kind_of(c).counts) continue;
        ++squares;
        if (!options.squared.contains(narrow<std::int32_t>(c)))
            segment.instructions.push_back(
                square_of(ownership, c, results.squares, options.precision.gradients, options.zero));
    }
    Instruction sum{.op = "sum_step", .attributes = {{"squares", squares}, {"loss", options.has_loss}}};
    if (squares > 0)
        sum.inputs.push_back({{Region::results, 0, results.squares}, {DType::float64, {squares}}, {1}, Access::read});
    if (options.has_loss) {
        sum.inputs.push_back(results.loss);
        sum.inputs.back().access = Access::read;
    }
    sum.outputs.push_back(results.sums);
    segment.instructions.push_back(std::move(sum));
    Instruction finish{.op = "finish_norm", .kind = InstructionKind::finish_norm};
    if (options.world >= 0) {
        Instruction all =
            communication_of(InstructionKind::all_reduce, options.world, {{"combine", std::string("sum")}});
        all.inputs.push_back(results.sums);
        all.inputs.back().access = Access::read;
        all.outputs.push_back(results.sums);
        finish.waits.push_back(narrow<std::int32_t>(segment.instructions.size()));
        segment.instructions.push_back(std::move(all));
    }
    finish.inputs.push_back(results.sums);
    finish.inputs.back().access = Access::read;
    finish.outputs.push_back(results.norm);
    segment.instructions.push_back(std::move(finish));
    return segment;
}

namespace {

Instruction adamw(const Ownership& ownership, std::size_t c, const Precision& types, Zero zero,
                  std::vector<std::int64_t> ranges, std::vector<std::int64_t> streams,
                  std::vector<std::int64_t> firsts) {
    auto share = [&](Region region, DType dtype, Access access) {
        return updated(ownership, region, c, dtype, access, zero);
    };
    Instruction update{.op = "adamw", .kind = InstructionKind::update, .attributes = {{"ranges", std::move(ranges)}}};
    if (types.rounds_weights() || types.rounds_moments()) {
        update.attributes.set("streams", std::move(streams));
        if (std::ranges::any_of(firsts, [](std::int64_t first) { return first > 0; }))
            update.attributes.set("firsts", std::move(firsts));
    }
    if (types.compute != types.gradients) update.attributes.set("weights", std::string(name_of(types.compute)));
    if (types.moments != types.gradients) update.attributes.set("moments", std::string(name_of(types.moments)));
    update.inputs.push_back(share(Region::gradients, types.gradients, Access::read));
    update.outputs.push_back(share(Region::weights, types.compute, Access::write));
    update.outputs.push_back(share(Region::moments1, types.moments, Access::write));
    update.outputs.push_back(share(Region::moments2, types.moments, Access::write));
    if (types.has_master()) {
        update.attributes.set("master", true);
        update.outputs.push_back(share(Region::master, types.master, Access::write));
    }
    return update;
}

// What updates a chunk: nothing, where nothing of it is trained.
std::vector<Instruction> update_of(const Ownership& ownership, std::size_t c, const Precision& types, Zero zero) {
    const bool shares = updates_share(ownership.kind_of(c), zero);
    const Range mine = shares ? ownership.share(c) : whole(ownership, c);
    std::vector<std::int64_t> ranges, streams, firsts;
    bool trained = false;
    for (std::int32_t stored : ownership.layout.chunks[c].tensors) {
        const memory::ChunkTensor& tensor = ownership.layout.tensor(stored);
        trained |= tensor.trained;
        const std::int64_t begin = std::max(tensor.range().begin, mine.begin),
                           end = std::min(tensor.range().end, mine.end);
        if (!tensor.trained || begin >= end) continue;
        ranges.insert(ranges.end(), {begin - mine.begin, end - mine.begin, tensor.decays});
        streams.push_back(static_cast<std::int64_t>(hash_of(ownership.tensors[static_cast<std::size_t>(stored)].name)));
        firsts.push_back(begin - tensor.offset);
    }
    std::vector<Instruction> result;
    if (!ranges.empty())
        result.push_back(adamw(ownership, c, types, zero, std::move(ranges), std::move(streams), std::move(firsts)));
    // Every owner gathers, whether there is anything to train in its own share or not.
    if (trained && shares && !zero.shards_weights()) {
        Instruction all = communication_of(InstructionKind::gather_chunk, ownership.kind_of(c).sharded_over);
        all.inputs.push_back(updated(ownership, Region::weights, c, types.compute, Access::read, zero));
        all.outputs.push_back(elements(Region::weights, c, types.compute, whole(ownership, c), Access::write));
        result.push_back(std::move(all));
    }
    return result;
}

} // namespace

Segment update_segment(const Ownership& ownership, const StepCodeOptions& options) {
    Segment segment{.kind = TaskKind::update};
    for (std::size_t c = 0; c < ownership.layout.chunks.size(); ++c)
        if (!options.updated.contains(narrow<std::int32_t>(c)))
            std::ranges::move(update_of(ownership, c, options.precision, options.zero),
                              std::back_inserter(segment.instructions));
    return segment;
}

bool is_final_early(const Ownership& ownership, std::size_t chunk) {
    const ChunkKind& kind = ownership.kind_of(chunk);
    if (kind.stages.size() != 1 || kind.reductions.size() > 1) return false;
    return kind.reductions.empty() || !ownership.groups[static_cast<std::size_t>(kind.reductions.front())].across_pipe;
}

std::vector<Instruction> early_update(const Ownership& ownership, std::size_t chunk, const ResultLayout& results,
                                      const Precision& precision, Zero zero, bool has_loss) {
    std::vector<Instruction> update = update_of(ownership, chunk, precision, zero);
    if (update.empty()) return update;
    Instruction square = square_of(ownership, chunk, results.squares, precision.gradients, zero);
    if (!ownership.kind_of(chunk).counts) square.outputs[0] = results.square;
    // The step's own norm writes over both when it is known.
    Instruction sum{.op = "sum_step", .attributes = {{"squares", std::int64_t{1}}, {"loss", has_loss}}};
    sum.inputs.push_back({square.outputs[0].address, {DType::float64, {1}}, {1}, Access::read});
    if (has_loss) {
        sum.inputs.push_back(results.loss);
        sum.inputs.back().access = Access::read;
    }
    sum.outputs.push_back(results.sums);
    Instruction finish{.op = "finish_norm", .kind = InstructionKind::finish_norm};
    finish.inputs.push_back(results.sums);
    finish.inputs.back().access = Access::read;
    finish.outputs.push_back(results.norm);
    std::vector<Instruction> result = {std::move(square), std::move(sum), std::move(finish)};
    std::ranges::move(update, std::back_inserter(result));
    return result;
}

} // namespace tutti::compile
