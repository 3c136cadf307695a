#include "sharding/compare.h"

#include "backend/reference/reference.h"

#include <cmath>
#include <limits>
#include <random>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
using namespace models;
using namespace sharding;
namespace {

constexpr double tolerance = 1e-10, zero = 1e-13;
constexpr double not_held = std::numeric_limits<double>::quiet_NaN();

StepScalars scalars() {
    StepScalars scalars;
    scalars.step = 3;
    scalars.first_sample = 40;
    scalars.seed = 1234;
    scalars.inverse_tokens = 0.125;
    return scalars;
}

// A sentence where values differ by more than the tolerance, relative to the largest. Some gradients are zero but for
// rounding, as those of a bias of all keys.
std::string difference(const std::vector<double>& got, const std::vector<double>& expected) {
    double largest = 0;
    for (double value : expected)
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < got.size(); ++i)
        if (got[i] != expected[i] && !(std::abs(got[i] - expected[i]) <= tolerance * largest + zero))
            return fmt::format("element {} of {} is {} instead of {}", i, got.size(), got[i], expected[i]);
    return got.size() == expected.size() ? "" : fmt::format("{} elements, not {}", got.size(), expected.size());
}

// The gradient of a stored tensor: all contributions to parameters that are views of it.
std::vector<double> gradient_of(const Graph& graph, Interpreter& run, std::size_t stored) {
    std::vector<double> sum(static_cast<std::size_t>(graph.stored()[stored].type.elements()), 0);
    for (const Output& output : graph.outputs()) {
        if (output.parameter == ValueId::none) continue;
        if (static_cast<std::size_t>(graph.parameter_of(output.parameter)->stored) != stored) continue;
        const Value& parameter = graph.value(output.parameter);
        const HostTensor view{parameter.type, parameter.layout, {}};
        const std::vector<double> values = run.get(output.value);
        for (std::size_t i = 0; i < values.size(); ++i) sum[view.place(static_cast<std::int64_t>(i))] += values[i];
    }
    return sum;
}

// What ranks hold of a tensor, in the whole's place: added up, or one and the same where several hold it.
std::vector<double> put_together(const std::vector<std::vector<double>>& held, bool add, std::string& complaint) {
    std::vector<double> result = held[0];
    for (std::size_t r = 1; r < held.size(); ++r)
        for (std::size_t i = 0; i < result.size(); ++i) {
            const double value = held[r][i];
            if (add)
                result[i] += value;
            else if (std::isnan(result[i]))
                result[i] = value;
            else if (!std::isnan(value) && std::abs(value - result[i]) > 1e-9 * (1 + std::abs(value)))
                complaint = fmt::format("ranks hold {} and {} of element {}", result[i], value, i);
        }
    return result;
}

std::size_t ranks_of(const std::vector<AxisPlace>& axes) {
    std::size_t ranks = 1;
    for (const AxisPlace& axis : axes) ranks *= static_cast<std::size_t>(axis.size);
    return ranks;
}

// Along an axis: lists of ranks that differ only there.
std::vector<std::vector<std::size_t>> groups_along(const std::vector<AxisPlace>& axes, std::size_t axis) {
    const std::size_t ranks = ranks_of(axes), size = static_cast<std::size_t>(axes[axis].size);
    std::size_t stride = 1;
    for (std::size_t a = axis + 1; a < axes.size(); ++a) stride *= static_cast<std::size_t>(axes[a].size);
    std::vector<std::vector<std::size_t>> groups;
    for (std::size_t r = 0; r < ranks; ++r) {
        if (r / stride % size != 0) continue;
        std::vector<std::size_t>& group = groups.emplace_back();
        for (std::size_t i = 0; i < size; ++i) group.push_back(r + i * stride);
    }
    return groups;
}

int place_along(const std::vector<AxisPlace>& axes, std::size_t axis, std::size_t rank) {
    for (std::size_t a = axes.size() - 1; a > axis; --a) rank /= static_cast<std::size_t>(axes[a].size);
    return static_cast<int>(rank % static_cast<std::size_t>(axes[axis].size));
}

class Comparison {
  public:
    Comparison(const Graph& step, const ShardedMesh& mesh, const Numbers& numbers)
        : step_(step), mesh_(mesh), device_(make_reference_device()), whole_(step, *device_),
          ranks_(graphs(), *device_, groups()) {
        whole_.scalars = scalars();
        for (std::size_t i = 0; i < step.inputs().size(); ++i) whole_.set(step.inputs()[i], numbers.inputs[i]);
        for (std::size_t s = 0; s < step.stored().size(); ++s) whole_.set_stored(s, numbers.stored[s]);
        for (std::size_t r = 0; r < mesh.ranks.size(); ++r) set_rank(r, numbers);
        whole_.run();
        ranks_.run();
    }

    std::vector<std::string> run() {
        for (std::size_t i = 0; i < step_.outputs().size(); ++i)
            if (step_.outputs()[i].parameter == ValueId::none) compare_output(i);
        for (std::size_t s = 0; s < step_.stored().size(); ++s) compare_gradient(s);
        return std::move(differences_);
    }

  private:
    std::vector<const Graph*> graphs() const {
        std::vector<const Graph*> all;
        for (const ShardedRank& rank : mesh_.ranks) all.push_back(&rank.graph);
        return all;
    }
    Lockstep::Groups groups() const {
        Lockstep::Groups all;
        for (std::size_t a = 0; a < mesh_.axes.size(); ++a) all[mesh_.axes[a].axis] = groups_along(mesh_.axes, a);
        return all;
    }

    // What a rank holds of a value that is split along each axis in turn.
    TensorSlice slice_of(const Shape& whole, std::size_t rank, const std::vector<Sharding>& states) const {
        TensorSlice slice = TensorSlice::all_of(whole);
        for (std::size_t a = 0; a < states.size(); ++a) {
            TensorSlice part = TensorSlice::all_of(slice.shape());
            if (states[a].is_split())
                part.dims[static_cast<std::size_t>(states[a].dim)] =
                    states[a].parts[static_cast<std::size_t>(place_along(mesh_.axes, a, rank))];
            slice = slice.within(part);
        }
        return slice;
    }
    static std::vector<double> cut(const std::vector<double>& whole, const TensorSlice& slice) {
        std::vector<double> part(static_cast<std::size_t>(slice.elements()));
        for (const SliceRun& run : slice.runs({0, slice.elements()}))
            std::copy_n(whole.begin() + run.whole, run.count, part.begin() + run.part);
        return part;
    }
    static std::vector<double> spread(const std::vector<double>& part, const TensorSlice& slice) {
        std::vector<double> whole(static_cast<std::size_t>(slice.whole.elements()), not_held);
        for (const SliceRun& run : slice.runs({0, slice.elements()}))
            std::copy_n(part.begin() + run.part, run.count, whole.begin() + run.whole);
        return whole;
    }

    void set_rank(std::size_t r, const Numbers& numbers) {
        const ShardedRank& rank = mesh_.ranks[r];
        ranks_.rank(r).scalars = scalars();
        for (std::size_t i = 0; i < step_.inputs().size(); ++i) {
            std::vector<Sharding> states;
            for (const auto& axis : rank.inputs) states.push_back(axis[i]);
            ranks_.rank(r).set(rank.graph.inputs()[i],
                               cut(numbers.inputs[i], slice_of(step_.shape(step_.inputs()[i]), r, states)));
        }
        for (std::size_t s = 0; s < step_.stored().size(); ++s)
            ranks_.rank(r).set_stored(s, cut(numbers.stored[s], rank.stored[s]));
    }

    // Along the last axis first.
    void compare(const std::string& what, std::vector<std::vector<double>> held, const std::vector<bool>& add,
                 const std::vector<double>& expected) {
        std::string complaint;
        std::vector<AxisPlace> axes = mesh_.axes;
        for (std::size_t a = axes.size(); a-- > 0; axes.pop_back()) {
            std::vector<std::vector<double>> together;
            for (const auto& group : groups_along(axes, a)) {
                std::vector<std::vector<double>> theirs;
                for (std::size_t r : group) theirs.push_back(held[r]);
                together.push_back(put_together(theirs, add[a], complaint));
            }
            held = std::move(together);
        }
        if (complaint.empty()) complaint = difference(held[0], expected);
        if (!complaint.empty()) differences_.push_back(what + ": " + complaint);
    }

    void compare_output(std::size_t i) {
        const Output& output = step_.outputs()[i];
        std::vector<std::vector<double>> held;
        for (std::size_t r = 0; r < mesh_.ranks.size(); ++r) {
            std::vector<Sharding> states;
            for (const auto& axis : mesh_.ranks[r].outputs) {
                states.push_back(axis[i]);
                if (axis[i].is_partial()) differences_.push_back(output.name + " is partial");
            }
            held.push_back(spread(ranks_.rank(r).get(mesh_.ranks[r].graph.outputs()[i].value),
                                  slice_of(step_.shape(output.value), r, states)));
        }
        compare(output.name, std::move(held), std::vector<bool>(mesh_.axes.size(), false), whole_.get(output.value));
    }

    void compare_gradient(std::size_t s) {
        std::vector<std::vector<double>> held;
        std::vector<bool> add;
        for (const auto& axis : mesh_.ranks[0].partial) add.push_back(axis[s]);
        for (std::size_t r = 0; r < mesh_.ranks.size(); ++r)
            held.push_back(spread(gradient_of(mesh_.ranks[r].graph, ranks_.rank(r), s), mesh_.ranks[r].stored[s]));
        compare("gradient of " + step_.stored()[s].name, std::move(held), add, gradient_of(step_, whole_, s));
    }

    const Graph& step_;
    const ShardedMesh& mesh_;
    std::unique_ptr<Device> device_;
    Interpreter whole_;
    Lockstep ranks_;
    std::vector<std::string> differences_;
};

} // namespace

Numbers draw_numbers(const Graph& step, std::uint32_t seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(0, 1);
    std::int64_t vocabulary = 0; // ids have to be below it
    for (const Output& output : step.outputs())
        if (output.name == "logits") vocabulary = step.shape(output.value).back();
    Numbers numbers;
    for (ValueId input : step.inputs()) {
        std::vector<double>& values = numbers.inputs.emplace_back();
        for (std::int64_t i = 0; i < step.type(input).elements(); ++i)
            values.push_back(is_floating(step.type(input).dtype)
                                 ? normal(engine)
                                 : static_cast<double>(engine() % static_cast<std::uint64_t>(vocabulary)));
        if (step.value(input).name == "targets") values[1] = -100;
    }
    for (const StoredTensor& stored : step.stored()) {
        std::vector<double>& values = numbers.stored.emplace_back();
        for (std::int64_t i = 0; i < stored.type.elements(); ++i) values.push_back(0.3 * normal(engine));
    }
    return numbers;
}

Graph step_graph(const Model& model) {
    Graph graph = model.graph;
    graph.begin(Phase::backward);
    const std::string dtype(name_of(graph.type(model.loss).dtype));
    const ValueId seed = graph.add("step_scalar", {}, {{"field", std::string("loss_seed")}, {"dtype", dtype}}, "loss");
    differentiate(graph, model.loss, seed);
    return add_matmuls_first(eliminate_dead_code(eliminate_common_subexpressions(graph)));
}

ShardedMesh shard_mesh(const Graph& step, const std::vector<AxisPlace>& axes, const Assign& assign) {
    ShardedMesh mesh{axes, {}};
    for (std::size_t r = 0; r < ranks_of(axes); ++r) {
        ShardedRank rank{step, {}, {}, {}, {}};
        for (const StoredTensor& stored : step.stored()) rank.stored.push_back(TensorSlice::all_of(stored.type.shape));
        for (std::size_t a = 0; a < axes.size(); ++a) {
            AxisPlace place = axes[a];
            place.rank = place_along(axes, a, r);
            Sharded sharded = shard(rank.graph, place, assign(rank.graph, place));
            for (std::size_t s = 0; s < rank.stored.size(); ++s)
                rank.stored[s] = rank.stored[s].within(sharded.stored[s]);
            rank.graph = std::move(sharded.graph);
            rank.partial.push_back(std::move(sharded.partial));
            rank.inputs.push_back(std::move(sharded.inputs));
            rank.outputs.push_back(std::move(sharded.outputs));
        }
        mesh.ranks.push_back(std::move(rank));
    }
    return mesh;
}

std::vector<std::string> differences(const Graph& step, const ShardedMesh& mesh, const Numbers& numbers) {
    return Comparison(step, mesh, numbers).run();
}

} // namespace tutti::testing
