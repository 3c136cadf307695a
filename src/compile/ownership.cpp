#include "compile/ownership.h"

#include "base/checked.h"
#include "base/error.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

namespace tutti::compile {
namespace {

class Finder {
  public:
    Finder(std::span<const RankStage> stages, const Ties& ties, RankGroups& groups, const std::vector<int>& axes,
           Zero zero)
        : stages_(stages), ties_(ties), groups_(groups), axes_(axes), zero_(zero) {}

    Ownership run(std::int64_t chunk_elements) {
        for (std::size_t s = 0; s < stages_.size(); ++s) visit(static_cast<int>(s));
        for (std::size_t t = 0; t < tensors_.size(); ++t) tensors_[t].kind = kind(result_.tensors[t].name, uses_[t]);
        std::vector<std::int64_t> multiples;
        for (const ChunkKind& kind : result_.kinds) multiples.push_back(kind.shard_count * memory::chunk_alignment);
        result_.layout = memory::lay_out_chunks(tensors_, chunk_elements, multiples);
        for (std::size_t c = 0; c < result_.layout.chunks.size(); ++c)
            result_.saved.push_back(result_.kind_of(c).counts ? result_.share(c) : Range{});
        result_.groups = groups_.specs();
        return std::move(result_);
    }

  private:
    // What a tensor is to the stages of this rank.
    struct Use {
        std::vector<int> stages;               // that use it, by their place among the rank's
        std::vector<bool> partial, replicated; // per part of the tensor axis, as in RankStage
    };

    // Tensors in the order of the stages; one that several stages here use is there once.
    void visit(int s) {
        const RankStage& stage = stages_[static_cast<std::size_t>(s)];
        const std::vector<memory::ChunkTensor> seen = memory::chunk_tensors(stage.graph);
        const int runs = runs_;
        for (std::size_t i = 0; i < seen.size(); ++i) {
            const std::string& name = stage.graph.stored()[i].name;
            auto at = std::ranges::find(result_.tensors, name, &memory::OwnedTensor::name);
            if (at == result_.tensors.end()) {
                at = result_.tensors.insert(at, {name, stage.slice(i)});
                tensors_.push_back(seen[i]);
                Use& use = uses_.emplace_back();
                for (const std::vector<bool>& axis : stage.partial) use.partial.push_back(axis[i]);
                for (const std::vector<bool>& axis : stage.replicated) use.replicated.push_back(axis[i]);
                if (seen[i].run >= 0) {
                    tensors_.back().run = runs + seen[i].run;
                    runs_ = std::max(runs_, runs + seen[i].run + 1);
                }
            }
            const auto number = static_cast<std::size_t>(at - result_.tensors.begin());
            TUTTI_CHECK(at->slice == stage.slice(i), "two stages own different parts of {}", name);
            for (std::size_t axis = 0; axis < stage.partial.size(); ++axis)
                TUTTI_CHECK(uses_[number].partial[axis] == stage.partial[axis][i],
                            "gradients of {} are partial sums in one of two stages", name);
            tensors_[number].trained |= seen[i].trained;
            tensors_[number].alone |= seen[i].alone || ties_.contains(name);
            uses_[number].stages.push_back(s);
        }
    }

    // This rank's place along a part of the tensor axis is not the first.
    bool is_behind(std::size_t axis) const {
        int stride = 1;
        for (std::size_t a = axis + 1; a < axes_.size(); ++a) stride *= axes_[a];
        return groups_.place().tensor / stride % axes_[axis] != 0;
    }

    int kind(const std::string& name, const Use& use) {
        const auto& [stages, partial, replicated] = use;
        ChunkKind kind{.stages = stages, .partial = partial, .replicated = replicated};
        if (const auto tie = ties_.find(name); tie != ties_.end())
            kind.tie = static_cast<int>(std::distance(ties_.begin(), tie));
        if (!partial.empty() && std::ranges::find(partial, false) == partial.end())
            kind.reductions.push_back(groups_.tensor());
        else
            for (std::size_t axis = 0; axis < partial.size(); ++axis)
                if (partial[axis]) kind.reductions.push_back(groups_.tensor(axes_, axis));
        const int stage = stages_[static_cast<std::size_t>(stages.front())].stage;
        int last = groups_.owners(stage);
        bool first_owner = groups_.rank_in(last) == 0;
        if (kind.tie >= 0) {
            const int tie = groups_.tie(kind.tie, ties_.at(name));
            if (tie >= 0) kind.reductions.push_back(tie);
            last = groups_.data();
            first_owner = groups_.rank_in(tie) == 0 && groups_.rank_in(last) == 0;
        }
        if (last >= 0) kind.reductions.push_back(last);
        if (zero_.shards_states() && last >= 0) {
            kind.sharded_over = last;
            kind.shard_count = groups_.size(last);
            kind.shard_rank = groups_.rank_in(last);
            first_owner = kind.tie < 0 || groups_.rank_in(groups_.tie(kind.tie, ties_.at(name))) == 0;
        }
        kind.counts = first_owner;
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
    std::vector<memory::ChunkTensor> tensors_; // beside those of the result
    std::vector<Use> uses_;                    // likewise
    Ownership result_;
};

} // namespace

std::array<std::vector<Range>, memory::chunk_region_count> Ownership::owned_ranges(Zero zero) const {
    std::array<std::vector<Range>, memory::chunk_region_count> result;
    for (std::size_t region = 0; region < memory::chunk_region_count; ++region)
        for (std::size_t c = 0; c < layout.chunks.size(); ++c)
            result[region].push_back(zero.shards(static_cast<Region>(region)) ? share(c)
                                                                              : Range{0, layout.chunks[c].elements});
    return result;
}

std::vector<std::int32_t> Ownership::tensors_of(const Graph& graph) const {
    std::map<std::string_view, std::int32_t> numbers;
    for (std::size_t t = 0; t < tensors.size(); ++t) numbers[tensors[t].name] = narrow<std::int32_t>(t);
    std::vector<std::int32_t> result;
    for (const StoredTensor& stored : graph.stored()) {
        const auto found = numbers.find(stored.name);
        TUTTI_CHECK(found != numbers.end(), "{} is not owned here", stored.name);
        result.push_back(found->second);
    }
    return result;
}

Range Ownership::share(std::size_t chunk) const {
    const ChunkKind& kind = kind_of(chunk);
    const std::int64_t each = layout.chunks[chunk].elements / kind.shard_count;
    return {kind.shard_rank * each, (kind.shard_rank + 1) * each};
}

bool is_cleared_first(const ChunkKind& kind, Zero zero) {
    return kind.stages.size() > 1 || (kind.sharded_over >= 0 && zero.shards_gradients());
}

bool reduces_early(const ChunkKind& kind, Zero zero) {
    return kind.reductions.size() == 1 && !is_cleared_first(kind, zero);
}

Ownership find_ownership(std::span<const RankStage> stages, const Ties& ties, RankGroups& groups,
                         const std::vector<int>& axes, std::int64_t chunk_elements, Zero zero) {
    return Finder(stages, ties, groups, axes, zero).run(chunk_elements);
}

} // namespace tutti::compile
