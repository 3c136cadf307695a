#include "planner/evaluate/segments.h"

#include "base/error.h"
#include "compile/compile.h"
#include "planner/evaluate/overlap.h"
#include "planner/evaluate/workers.h"
#include "schedule/families.h"

#include <algorithm>
#include <bit>

namespace tutti::planner {
namespace {

std::optional<StagePart> part_of(TaskKind kind) {
    switch (kind) {
    case TaskKind::forward: return StagePart::forward;
    case TaskKind::recompute: return StagePart::recompute;
    case TaskKind::backward: return StagePart::backward;
    case TaskKind::weight_gradient: return StagePart::weight_gradient;
    default: return std::nullopt;
    }
}

// Bytes of the chunks that a part of a stage has whole in its transient memory, one after the other.
double window_bytes(const Segment& segment) {
    double bytes = 0;
    for (const Instruction& instruction : segment.instructions) {
        if (instruction.kind == InstructionKind::gather_chunk)
            bytes += static_cast<double>(instruction.outputs[0].type.bytes().count);
        if (instruction.kind == InstructionKind::reduce_chunk &&
            instruction.inputs[0].address.region == Region::transient)
            bytes += static_cast<double>(instruction.inputs[0].type.bytes().count);
    }
    return bytes;
}

double spared_by_first(const Segment& segment, const costs::CostModel& costs, int kind) {
    double seconds = 0;
    for (const Instruction& one : segment.instructions)
        if (one.lane == Lane::compute && one.first_overwrites && adds(one))
            seconds += costs.kernel_seconds(one, kind) - costs.first_kernel_seconds(one, kind);
    return seconds;
}

} // namespace

std::string to_string(const TensorParallelism& tensor) {
    if (tensor.ranks == 1) return "whole operators";
    return fmt::format("tensor={}{}{}{}", tensor.ranks, tensor.sequence_parallel ? "" : ", norms whole",
                       tensor.sub_pipeline ? ", in halves" : "",
                       tensor.strategies > 0 ? fmt::format(", strategies of list entry {}", tensor.strategies) : "");
}

StageFigures operator+(const StageFigures& a, const StageFigures& b) {
    StageFigures sum = a;
    for (std::size_t i = 0; i < stage_part_count; ++i) {
        sum.seconds[i] += b.seconds[i];
        sum.exposed[i] += b.exposed[i];
        sum.spared[i] += b.spared[i];
    }
    for (std::size_t i = 0; i < slotted_count; ++i) sum.slots[i] += b.slots[i];
    sum.constants += b.constants;
    sum.batch += b.batch;
    sum.elements += b.elements;
    sum.partial += b.partial;
    sum.over += b.over;
    sum.windows += b.windows;
    sum.transient = std::max(a.transient, b.transient);
    sum.workspace = std::max(a.workspace, b.workspace);
    return sum;
}

StageFigures operator-(const StageFigures& a, const StageFigures& b) {
    StageFigures difference = a;
    for (std::size_t i = 0; i < stage_part_count; ++i) {
        difference.seconds[i] -= b.seconds[i];
        difference.exposed[i] -= b.exposed[i];
        difference.spared[i] -= b.spared[i];
    }
    for (std::size_t i = 0; i < slotted_count; ++i) difference.slots[i] -= b.slots[i];
    difference.constants -= b.constants;
    difference.batch -= b.batch;
    difference.elements -= b.elements;
    difference.partial -= b.partial;
    difference.over -= b.over;
    difference.windows -= b.windows;
    return difference;
}

ChainFigures::ChainFigures(std::array<std::vector<StageFigures>, BlockChain::longest_window> windows,
                           std::vector<std::vector<double>> open)
    : windows_(std::move(windows)), open_(std::move(open)) {
    const auto& [one, two, three] = windows_;
    sums_.emplace_back();
    for (std::size_t b = 0; b < one.size(); ++b) {
        if (b == 0)
            added_.emplace_back();
        else
            added_.push_back(b == 1 ? two[0] - one[0] : three[b - 2] - two[b - 2]);
        sums_.push_back(sums_.back() + added_.back());
    }
    auto without_chunks = [&](const StageFigures& stage, std::size_t first, std::size_t count) {
        return stage.transient - whole_at_once(stage, first, count);
    };
    transients_.emplace_back();
    for (std::size_t b = 0; b < three.size(); ++b) {
        const double more = std::max(0.0, without_chunks(three[b], b, 3) - without_chunks(two[b], b, 2));
        growth_ = b == 0 ? more : std::min(growth_, more);
        transients_[0].push_back(without_chunks(three[b], b, 3));
    }
    for (std::size_t width = 1; 2 * width <= three.size(); width *= 2) {
        const std::vector<double>& half = transients_.back();
        std::vector<double> whole(half.size());
        for (std::size_t b = 0; b + 2 * width <= half.size(); ++b) whole[b] = std::max(half[b], half[b + width]);
        transients_.push_back(std::move(whole));
    }
}

double ChainFigures::whole_at_once(const StageFigures& stage, std::size_t first, std::size_t count) const {
    return open_.empty() ? 0 : std::min(stage.windows, open_[first][count - 1]);
}

StageFigures ChainFigures::stage(int first, int end) const {
    const auto i = static_cast<std::size_t>(first), count = static_cast<std::size_t>(end - first);
    if (count <= windows_.size()) return windows_[count - 1][i];
    StageFigures total = windows_[1][i] + (sums_[i + count] - sums_[i + 2]);
    const std::size_t held = count - 2, level = std::bit_width(held) - 1; // windows of three
    const std::vector<double>& maxima = transients_[level];
    total.transient = std::max(maxima[i], maxima[i + held - (std::size_t{1} << level)]) +
                      growth_ * static_cast<double>(held - 1) + whole_at_once(total, i, count);
    // Of small stages much is exposed that longer ones hide: what a block adds may be less than nothing.
    for (std::size_t part = 0; part < stage_part_count; ++part)
        total.exposed[part] = std::clamp(total.exposed[part], 0.0, std::max(total.seconds[part], 0.0));
    return total;
}

StageFigures ChainFigures::added(int block, int first) const {
    if (block == first) return stage(first, first + 1);
    if (block == first + 1) return stage(first, first + 2) - stage(first, first + 1);
    return added_[static_cast<std::size_t>(block)];
}

// A small stage, compiled and boiled down.
struct SegmentTable::Sample {
    StageFigures memory;                                                         // without times
    std::vector<std::array<std::vector<OverlapAction>, stage_part_count>> parts; // per kind of node
    std::vector<std::array<double, stage_part_count>> spared;                    // likewise
    std::vector<OverlapCommunication> communications;
};

SegmentTable::SegmentTable(const BlockChain& chain, const costs::CostModel& costs, const PlannerWorkload& workload,
                           int threads)
    : chain_(chain), costs_(costs), workload_(workload), threads_(threads) {}
SegmentTable::~SegmentTable() = default;

int SegmentTable::add_strategies(sharding::OperatorStrategies added) {
    const auto at = std::ranges::find(strategies_, added);
    const auto number = static_cast<int>(at - strategies_.begin()) + 1;
    if (at == strategies_.end()) strategies_.push_back(std::move(added));
    return number;
}

int SegmentTable::compiled() const { return static_cast<int>(samples_.size()); }

Plan sample_plan(const BlockChain& chain, const PlannerWorkload& workload, const SegmentKey& key, int blocks, int first,
                 int end) {
    Plan plan;
    plan.model = chain.model;
    plan.precision = workload.precision;
    plan.chunk_elements = workload.chunk_elements;
    plan.zero = key.zero;
    plan.gradients_over_weights = workload.over_weights;
    plan.sequence_parallel = key.tensor_parallel.sequence_parallel;
    plan.sub_pipeline = key.tensor_parallel.sub_pipeline;
    if (first > 0) plan.cuts.push_back(first);
    if (end < blocks) plan.cuts.push_back(end);
    const int stages = plan.stages();
    plan.mesh = {.pipe = stages, .data = key.zero.shards_gradients() ? 2 : 1, .tensor = key.tensor_parallel.ranks};
    plan.workload = {chain.sequence, key.micro_batch * plan.mesh.data, key.micro_batch};
    if (key.recomputed) {
        plan.recompute.resize(static_cast<std::size_t>(stages));
        auto& own = plan.recompute[first > 0 ? 1 : 0];
        for (int block = first; block < end; ++block) own.push_back(block);
    }
    const char* family = key.style == BackwardStyle::split   ? "zb-1p"
                         : key.style == BackwardStyle::early ? "early-recompute"
                                                             : "1f1b";
    const schedule::ScheduleParameters parameters =
        schedule::resolve({.family = family, .ranks = stages, .micro_batches = 1});
    const schedule::Costs costs = schedule::uniform_costs(parameters, {.recompute = key.recomputed ? 1.0 : 0.0});
    plan.schedule = PlannedSchedule{schedule::make_schedule(parameters, costs), costs};
    return plan;
}

void SegmentTable::compile(const SegmentKey& key, std::span<const Window> windows) {
    std::vector<std::pair<Window, std::unique_ptr<Sample>*>> missing;
    for (const Window& window : windows) {
        std::unique_ptr<Sample>& place = samples_[{key, window.first, window.count}];
        if (!place) missing.emplace_back(window, &place);
    }
    const std::int64_t built = key.tensor_parallel.sub_pipeline ? key.micro_batch / 2 : key.micro_batch;
    std::shared_ptr<const models::Model>& model = models_[built];
    if (!model)
        model = std::make_shared<const models::Model>(
            chain_.sample.build({built, chain_.sequence, workload_.precision.compute}));
    in_parallel(missing.size(), threads_,
                [&](std::size_t i) { *missing[i].second = measure(key, missing[i].first, *model); });
}

std::unique_ptr<SegmentTable::Sample> SegmentTable::measure(const SegmentKey& key, const Window& window,
                                                            const models::Model& model) const {
    const auto [first, count] = window;
    Plan plan = sample_plan(chain_, workload_, key, chain_.sample_blocks, first, first + count);
    if (key.tensor_parallel.strategies > 0) plan.strategies = strategies(key.tensor_parallel.strategies);
    const int rank = plan.mesh.rank_of({.pipe = first > 0 ? 1 : 0});
    plan.fusion = FusionOptions{.head_logits = workload_.head_logits};
    const compile::Compiled compiled = compile::compile(model.graph, plan, rank);
    const Program& program = compiled.program;
    costs_.expect(program);

    auto made = std::make_unique<Sample>();
    const LocalStage& stage = program.stages.front();
    for (std::size_t r = 0; r < slotted_count; ++r) made->memory.slots[r] = static_cast<double>(stage.sizes[r].count);
    made->memory.constants = static_cast<double>(program.sizes[static_cast<std::size_t>(Region::constants)].count);
    made->memory.batch = static_cast<double>(program.sizes[static_cast<std::size_t>(Region::batch)].count);
    for (std::size_t c = 0; c < program.chunk_elements.size(); ++c) {
        const auto elements = static_cast<double>(program.chunk_elements[c]);
        const compile::ChunkKind& kind = compiled.ownership.kind_of(c);
        made->memory.elements += elements;
        if (std::ranges::count(kind.partial, true) > 0) made->memory.partial += elements;
        // What is tied may meet its other users in a longer stage.
        if (kind.tie < 0 && program.owned_of(Region::gradients, static_cast<std::int32_t>(c)).size() == 0)
            made->memory.over += elements;
    }
    const int kinds = static_cast<int>(costs_.cluster().kinds.size());
    made->parts.resize(static_cast<std::size_t>(kinds));
    made->spared.resize(static_cast<std::size_t>(kinds));
    for (const Segment& segment : program.segments) {
        const auto part = part_of(segment.kind);
        if (!part) continue;
        if (const auto transient = static_cast<double>(segment.transient.count); transient > made->memory.transient) {
            made->memory.transient = transient;
            made->memory.windows = window_bytes(segment);
        }
        const auto first_communication = static_cast<std::int32_t>(made->communications.size());
        for (int kind = 0; kind < kinds; ++kind) {
            made->communications.resize(static_cast<std::size_t>(first_communication));
            made->parts[static_cast<std::size_t>(kind)][at(*part)] =
                overlap_actions(program, segment, costs_, kind, made->communications);
            made->spared[static_cast<std::size_t>(kind)][at(*part)] += spared_by_first(segment, costs_, kind);
        }
        for (const Instruction& one : segment.instructions)
            if (one.lane == Lane::compute)
                made->memory.workspace =
                    std::max(made->memory.workspace, static_cast<double>(costs_.workspace(one).count));
    }
    return made;
}

const ChainFigures& SegmentTable::figures(const SegmentKey& key, const GroupShapes& shapes, int kind) {
    for (const Recent& one : recent_)
        if (one.kind == kind && one.key == key && one.shapes == shapes) return *one.figures;
    const ChainFigures& found = find(key, shapes, kind);
    recent_[next_recent_++ % recent_.size()] = {key, shapes, kind, &found};
    return found;
}

ShardedChunks SegmentTable::sharded_chunks(const SegmentKey& key, std::span<const StageFigures> blocks) const {
    const Precision& types = workload_.precision;
    ShardedChunks chunks{.most = workload_.chunk_elements,
                         .weight = static_cast<double>(key.zero.shards_weights() ? size_of(types.compute) : 0),
                         .gradient = static_cast<double>(size_of(types.gradients)),
                         .ties = chain_.ties};
    for (const StageFigures& block : blocks) chunks.blocks.push_back(block.elements);
    for (TiedTensor& tie : chunks.ties) {
        tie.elements /= key.tensor_parallel.ranks;
        for (int block : tie.blocks)
            chunks.blocks[static_cast<std::size_t>(block)] -= static_cast<double>(tie.elements);
    }
    return chunks;
}

const ChainFigures& SegmentTable::find(const SegmentKey& key, const GroupShapes& shapes, int kind) {
    if (before_work_) before_work_();
    std::unique_ptr<ChainFigures>& place = figures_[{
        key, shapes.tensor.factors, key.zero.shards_gradients() ? shapes.data.factors : std::vector<int>{}, kind}];
    if (place) return *place;
    // Every window of up to three neighbours, once.
    std::map<std::vector<int>, StageFigures> known;
    for (std::size_t b = 0; b < chain_.classes.size(); ++b) {
        std::vector<int> window;
        for (std::size_t n = 0; n < BlockChain::longest_window && b + n < chain_.classes.size(); ++n) {
            window.push_back(chain_.classes[b + n]);
            known.try_emplace(window);
        }
    }
    std::vector<Window> wanted;
    for (const auto& [window, figures] : known)
        wanted.push_back({chain_.windows.at(window), static_cast<int>(window.size())});
    compile(key, wanted);
    for (auto& [window, figures] : known) {
        const Sample& found = *samples_.at({key, chain_.windows.at(window), static_cast<int>(window.size())});
        figures = found.memory;
        for (std::size_t part = 0; part < stage_part_count; ++part) {
            const OverlapTime time = overlapped_time(found.parts[static_cast<std::size_t>(kind)][part],
                                                     found.communications, shapes, costs_, kind);
            figures.seconds[part] = time.seconds;
            figures.exposed[part] = time.exposed;
            figures.spared[part] = found.spared[static_cast<std::size_t>(kind)][part];
        }
    }
    std::array<std::vector<StageFigures>, BlockChain::longest_window> windows;
    for (std::size_t b = 0; b < chain_.classes.size(); ++b) {
        std::vector<int> window;
        for (std::size_t n = 0; n < windows.size() && b + n < chain_.classes.size(); ++n) {
            window.push_back(chain_.classes[b + n]);
            windows[n].push_back(known.at(window));
        }
    }
    std::vector<std::vector<double>> open;
    if (key.zero.shards_gradients()) open = open_bytes(sharded_chunks(key, windows[0]));
    place = std::make_unique<ChainFigures>(std::move(windows), std::move(open));
    return *place;
}

} // namespace tutti::planner
