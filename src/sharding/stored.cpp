#include "sharding/stored.h"

#include "base/error.h"

#include <algorithm>
#include <optional>

namespace tutti::sharding {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// A parameter whose dimensions are dimensions of the stored tensor: in any order, from anywhere on, with any step.
struct View {
    std::vector<int> dims;       // of the stored tensor, per dimension of the parameter; -1 where its size is 1
    Shape steps;                 // per dimension of the parameter
    std::vector<Range> window;   // per stored dimension: what the parameter reaches of it
    std::vector<int> parameters; // per stored dimension: the parameter's, -1 for none
};

std::optional<View> view_of(const Shape& stored, const Shape& shape, const Layout& layout) {
    const Shape strides = dense_strides(stored);
    View view{std::vector<int>(at(shape.rank()), -1), shape, {}, std::vector<int>(at(stored.rank()), -1)};
    std::int64_t rest = layout.offset;
    for (int d = 0; d < stored.rank(); ++d) {
        view.window.push_back({rest / strides[d], rest / strides[d] + 1});
        rest %= strides[d];
    }
    for (int d = 0; d < shape.rank(); ++d) {
        if (shape[d] == 1) continue;
        int dim = 0; // the slowest dimension that the stride is a multiple of
        while (dim < stored.rank() && (stored[dim] == 1 || layout.strides[d] % strides[dim] != 0)) ++dim;
        if (dim == stored.rank() || layout.strides[d] == 0 || view.parameters[at(dim)] >= 0) return std::nullopt;
        view.dims[at(d)] = dim;
        view.parameters[at(dim)] = d;
        view.steps[d] = layout.strides[d] / strides[dim];
        view.window[at(dim)].end += (shape[d] - 1) * view.steps[d];
        if (view.window[at(dim)].end > stored[dim]) return std::nullopt;
    }
    return view;
}

// The part of a stored tensor's split that falls on a view of it.
std::optional<Sharding> state_within(const View& view, const Sharding& stored) {
    if (!stored.is_split()) return Sharding{};
    const int dim = view.parameters[at(stored.dim)];
    if (dim < 0 || view.steps[dim] != 1) return std::nullopt;
    Parts parts;
    for (const Ranges& owned : stored.parts) {
        parts.push_back(within(owned, view.window[at(stored.dim)]));
        if (parts.back().empty()) return std::nullopt;
    }
    return Sharding::split(dim, std::move(parts));
}

// The parameters of one stored tensor.
class Tensor {
  public:
    Tensor(const Graph& graph, std::size_t number, std::span<const Sharding> wanted,
           const std::optional<Sharding>& given)
        : shape_(graph.stored()[number].type.shape) {
        for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
            const Parameter& parameter = graph.parameters()[p];
            if (static_cast<std::size_t>(parameter.stored) != number) continue;
            parameters.push_back(p);
            const Value& value = graph.value(parameter.value);
            layouts_.push_back(value.layout);
            shapes_.push_back(value.type.shape);
            views_.push_back(view_of(shape_, value.type.shape, value.layout));
            wanted_.push_back(wanted[p]);
        }
        if (given)
            state_ = *given;
        else if (find_split())
            for (std::size_t rank = 0; rank < wanted_[0].parts.size(); ++rank) state_.parts.push_back(owned(rank));
        else
            state_ = {};
    }

    std::vector<std::size_t> parameters; // of the graph

    const Sharding& state() const { return state_; }

    TensorSlice slice(int rank) const {
        TensorSlice slice = TensorSlice::all_of(shape_);
        if (state_.is_split()) slice.dims[at(state_.dim)] = state_.parts[at(rank)];
        return slice;
    }

    // Of its i-th parameter, in what the rank owns.
    Layout layout(std::size_t i, int rank) const {
        if (!state_.is_split()) return layouts_[i];
        const View& view = *views_[i];
        const Shape strides = dense_strides(slice(rank).shape());
        Layout result{shapes_[i], 0};
        for (int d = 0; d < shape_.rank(); ++d) {
            const std::int64_t first = view.window[at(d)].begin;
            result.offset += strides[d] * (d == state_.dim ? count(within(state_.parts[at(rank)], {0, first})) : first);
        }
        for (std::size_t d = 0; d < view.dims.size(); ++d) {
            const int p = static_cast<int>(d);
            result.strides[p] = view.dims[d] < 0 ? layouts_[i].strides[p] : view.steps[p] * strides[view.dims[d]];
        }
        return result;
    }

  private:
    // Of the dimension that is split.
    Ranges owned(std::size_t rank) const {
        Ranges all;
        for (std::size_t i = 0; i < views_.size(); ++i)
            if (!repeats(i)) all = joined(all, shifted(wanted_[i].parts[rank], piece(i).begin));
        return all;
    }

    // Whether an earlier parameter has the same piece of the split dimension.
    bool repeats(std::size_t i) const {
        return std::ranges::any_of(views_.begin(), views_.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const auto& view) { return view->window[at(state_.dim)] == piece(i); });
    }
    const Range& piece(std::size_t i) const { return views_[i]->window[at(state_.dim)]; }

    // The dimension that all parameters split, if they agree on one.
    bool find_split() {
        for (std::size_t i = 0; i < views_.size(); ++i) {
            if (!views_[i] || !wanted_[i].is_split()) return false;
            const int dim = views_[i]->dims[at(wanted_[i].dim)];
            if (dim < 0 || views_[i]->steps[wanted_[i].dim] != 1 || (i > 0 && dim != state_.dim)) return false;
            state_ = Sharding::split(dim, {});
        }
        return state_.is_split() && pieces_agree();
    }

    // Pieces are the same, and split alike, or apart; and together all.
    bool pieces_agree() const {
        std::int64_t covered = 0;
        for (std::size_t i = 0; i < views_.size(); ++i) {
            for (std::size_t j = 0; j < i; ++j) {
                const bool same = piece(i) == piece(j);
                if (same && wanted_[i].parts != wanted_[j].parts) return false;
                if (!same && piece(i).begin < piece(j).end && piece(j).begin < piece(i).end) return false;
            }
            if (!repeats(i)) covered += piece(i).size();
        }
        return covered == shape_[state_.dim];
    }

    Shape shape_;
    Sharding state_;
    std::vector<std::optional<View>> views_;
    std::vector<Layout> layouts_;
    std::vector<Shape> shapes_;
    std::vector<Sharding> wanted_;
};

} // namespace

StoredPlacement place_stored(const Graph& graph, std::span<const Sharding> wanted, int rank,
                             std::span<const std::optional<Sharding>> given) {
    StoredPlacement result;
    result.parameters.resize(graph.parameters().size());
    result.layouts.resize(graph.parameters().size());
    for (const Parameter& parameter : graph.parameters())
        TUTTI_CHECK(parameter.further.empty(), "{} is a run of stored tensors", graph.value(parameter.value).name);
    for (std::size_t s = 0; s < graph.stored().size(); ++s) {
        const Tensor tensor(graph, s, wanted, given.empty() ? std::nullopt : given[s]);
        result.stored.push_back(tensor.slice(rank));
        result.states.push_back(tensor.state());
        for (std::size_t i = 0; i < tensor.parameters.size(); ++i) {
            const std::size_t p = tensor.parameters[i];
            if (tensor.state().is_split()) result.parameters[p] = wanted[p];
            result.layouts[p] = tensor.layout(i, rank);
        }
    }
    return result;
}

std::optional<Sharding> state_of_view(const Graph& graph, const Parameter& parameter, const Sharding& stored) {
    if (!stored.is_split()) return Sharding{};
    const Value& value = graph.value(parameter.value);
    const std::optional<View> view =
        view_of(graph.stored()[at(parameter.stored)].type.shape, value.type.shape, value.layout);
    return view ? state_within(*view, stored) : std::nullopt;
}

} // namespace tutti::sharding
