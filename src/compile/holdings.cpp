#include "compile/holdings.h"

#include "base/checked.h"
#include "base/error.h"

#include <algorithm>
#include <iterator>

namespace tutti::compile {
namespace {

class Finder {
  public:
    Finder(std::span<const RankStage> stages, const Ties& ties, RankGroups& groups, const std::vector<int>& axes,
           Zero zero)
        : stages_(stages), ties_(ties), groups_(groups), axes_(axes), zero_(zero) {}

    Holdings run(std::int64_t chunk_elements) {
        for (std::size_t s = 0; s < stages_.size(); ++s) visit(static_cast<int>(s));
        for (std::size_t t = 0; t < tensors_.size(); ++t) {
            RankTensor& tensor = result_.tensors[t];
            tensor.kind = tensors_[t].kind = kind(tensor, partial_[t], replicated_[t]);
        }
        std::vector<std::int64_t> multiples;
        for (const ChunkKind& kind : result_.kinds) multiples.push_back(kind.spread_size * memory::chunk_alignment);
        result_.chunks = memory::lay_out_chunks(tensors_, chunk_elements, multiples);
        result_.groups = groups_.specs();
        return std::move(result_);
    }

  private:
    // Tensors in the order of the stages; one that several stages here use is there once.
    void visit(int s) {
        const RankStage& stage = stages_[static_cast<std::size_t>(s)];
        const std::vector<memory::ChunkTensor> seen = memory::chunk_tensors(stage.graph);
        const int runs = runs_;
        for (std::size_t i = 0; i < seen.size(); ++i) {
            const StoredTensor& stored = stage.graph.stored()[i];
            auto at = std::ranges::find(result_.tensors, stored.name, &RankTensor::name);
            if (at == result_.tensors.end()) {
                at = result_.tensors.insert(at, {stored.name, stored.type, stage.slice(i)});
                tensors_.push_back(seen[i]);
                std::vector<bool>&partial = partial_.emplace_back(), &replicated = replicated_.emplace_back();
                for (const std::vector<bool>& axis : stage.partial) partial.push_back(axis[i]);
                for (const std::vector<bool>& axis : stage.replicated) replicated.push_back(axis[i]);
                if (seen[i].run >= 0) {
                    tensors_.back().run = runs + seen[i].run;
                    runs_ = std::max(runs_, runs + seen[i].run + 1);
                }
            }
            const auto place = static_cast<std::size_t>(at - result_.tensors.begin());
            TUTTI_CHECK(at->slice == stage.slice(i), "two stages hold different parts of {}", stored.name);
            tensors_[place].trained |= seen[i].trained;
            tensors_[place].alone |= seen[i].alone || ties_.contains(stored.name);
            at->stages.push_back(s);
        }
    }

    // This rank's place along a part of the tensor axis is not the first.
    bool is_behind(std::size_t axis) const {
        int stride = 1;
        for (std::size_t a = axis + 1; a < axes_.size(); ++a) stride *= axes_[a];
        return groups_.place().tensor / stride % axes_[axis] != 0;
    }

    int kind(const RankTensor& tensor, const std::vector<bool>& partial, const std::vector<bool>& replicated) {
        ChunkKind kind{.stages = tensor.stages, .partial = partial, .replicated = replicated};
        if (const auto tie = ties_.find(tensor.name); tie != ties_.end())
            kind.tie = static_cast<int>(std::distance(ties_.begin(), tie));
        if (!partial.empty() && std::ranges::find(partial, false) == partial.end())
            kind.reductions.push_back(groups_.tensor());
        else
            for (std::size_t axis = 0; axis < partial.size(); ++axis)
                if (partial[axis]) kind.reductions.push_back(groups_.tensor(axes_, axis));
        const int stage = stages_[static_cast<std::size_t>(tensor.stages.front())].stage;
        int last = groups_.holders(stage);
        bool first_holder = groups_.rank_in(last) == 0;
        if (kind.tie >= 0) {
            const int tie = groups_.tie(kind.tie, ties_.at(tensor.name));
            if (tie >= 0) kind.reductions.push_back(tie);
            last = groups_.data();
            first_holder = groups_.rank_in(tie) == 0 && groups_.rank_in(last) == 0;
        }
        if (last >= 0) kind.reductions.push_back(last);
        if (zero_.shards_states() && last >= 0) {
            kind.spread_over = last;
            kind.spread_size = groups_.size(last);
            kind.spread_rank = groups_.rank_in(last);
            first_holder = kind.tie < 0 || groups_.rank_in(groups_.tie(kind.tie, ties_.at(tensor.name))) == 0;
        }
        kind.counts = first_holder;
        for (std::size_t axis = 0; axis < replicated.size(); ++axis)
            if (replicated[axis] && is_behind(axis)) kind.counts = false;
        auto at = std::ranges::find(result_.kinds, kind);
        if (at == result_.kinds.end()) at = result_.kinds.insert(at, kind);
        return static_cast<int>(at - result_.kinds.begin());
    }

    std::span<const RankStage> stages_;
    const Ties& ties_;
    RankGroups& groups_;
    const std::vector<int>& axes_;
    Zero zero_;
    int runs_ = 0;
    std::vector<memory::ChunkTensor> tensors_;
    std::vector<std::vector<bool>> partial_, replicated_; // per tensor and axis
    Holdings result_;
};

} // namespace

memory::Holding Holdings::holding(Zero zero) const {
    memory::Holding result;
    for (const RankTensor& tensor : tensors) {
        memory::HeldTensor& held = result.tensors.emplace_back(memory::HeldTensor{tensor.name, tensor.slice});
        held.saved.fill(kinds[static_cast<std::size_t>(tensor.kind)].counts);
    }
    for (std::size_t region = 0; region < memory::chunk_region_count; ++region)
        for (std::size_t c = 0; c < chunks.chunks.size(); ++c) {
            const Range whole{0, chunks.chunks[c].elements}, mine = kind_of(c).spread_over >= 0 ? share(c) : whole;
            result.held[region].push_back(zero.shards(static_cast<Region>(region)) ? mine : whole);
            result.saved[region].push_back(mine);
        }
    return result;
}

std::vector<std::int32_t> Holdings::places_of(const Graph& graph) const {
    std::map<std::string_view, std::int32_t> numbers;
    for (std::size_t t = 0; t < tensors.size(); ++t) numbers[tensors[t].name] = narrow<std::int32_t>(t);
    std::vector<std::int32_t> places;
    for (const StoredTensor& stored : graph.stored()) {
        const auto found = numbers.find(stored.name);
        TUTTI_CHECK(found != numbers.end(), "{} is not held here", stored.name);
        places.push_back(found->second);
    }
    return places;
}

Range Holdings::share(std::size_t chunk) const {
    const ChunkKind& kind = kind_of(chunk);
    const std::int64_t each = chunks.chunks[chunk].elements / kind.spread_size;
    return {kind.spread_rank * each, (kind.spread_rank + 1) * each};
}

bool is_cleared_first(const ChunkKind& kind, Zero zero) {
    return kind.stages.size() > 1 || (kind.spread_over >= 0 && zero.shards_gradients());
}

bool reduces_early(const ChunkKind& kind, Zero zero) {
    return kind.reductions.size() == 1 && !is_cleared_first(kind, zero);
}

Holdings find_holdings(std::span<const RankStage> stages, const Ties& ties, RankGroups& groups,
                       const std::vector<int>& axes, std::int64_t chunk_elements, Zero zero) {
    return Finder(stages, ties, groups, axes, zero).run(chunk_elements);
}

} // namespace tutti::compile
