// Loop dims are true: whatever loop an operator declares splittable is split in two uneven parts; the parts, put
// together as the declaration says, must be the whole.
#include "backend/reference/reference.h"
#include "graph/loops.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
using namespace ops;
namespace {

// A loop within an operand: the dense elements seen as [outer, size of the loop, inner].
struct Along {
    int dimension = -1; // -1: the operand does not have the loop
    std::int64_t outer = 1, size = 1, inner = 1;
};

Along find_loop(const LoopDims& dims, const std::vector<LoopDims::Dimension>& operand, const Shape& shape, int loop) {
    Along along;
    along.dimension = LoopDims::dimension_of(operand, loop);
    if (along.dimension < 0) return along;
    for (int d = 0; d < along.dimension; ++d) along.outer *= shape[d];
    for (int d = along.dimension + 1; d < shape.rank(); ++d) along.inner *= shape[d];
    bool after = false; // factors are slowest first
    for (int factor : operand[static_cast<std::size_t>(along.dimension)]) {
        const std::int64_t size = dims.loops[static_cast<std::size_t>(factor)].size;
        if (factor == loop) {
            along.size = size;
            after = true;
        } else {
            (after ? along.inner : along.outer) *= size;
        }
    }
    return along;
}

// Copies the elements of the loop's [begin, begin + size) from the whole to the part, or back.
template <class Copy>
void for_part(const Along& along, std::int64_t begin, std::int64_t size, Copy copy) {
    for (std::int64_t o = 0; o < along.outer; ++o)
        for (std::int64_t s = 0; s < size; ++s)
            for (std::int64_t i = 0; i < along.inner; ++i)
                copy(static_cast<std::size_t>((o * along.size + begin + s) * along.inner + i),
                     static_cast<std::size_t>((o * size + s) * along.inner + i));
}

TensorType part_type(const TensorType& whole, const Along& along, std::int64_t size) {
    TensorType type = whole;
    if (along.dimension >= 0) type.shape[along.dimension] = whole.shape[along.dimension] / along.size * size;
    return type;
}

std::vector<TensorType> types_of(const std::vector<HostTensor>& tensors) {
    std::vector<TensorType> types;
    for (const HostTensor& tensor : tensors) types.push_back(tensor.type);
    return types;
}

// Runs the part [begin, begin + size) of a loop and puts it into the results.
void run_part(const Device& device, const Case& one, const LoopDims& dims, int loop, std::int64_t begin,
              std::int64_t size, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& whole,
              std::vector<std::vector<double>>& results) {
    const Operator& op = all_operators().at(one.op());
    const Loop& split = dims.loops[static_cast<std::size_t>(loop)];
    std::vector<HostTensor> part_inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Along along = find_loop(dims, dims.inputs[i], inputs[i].type.shape, loop);
        if (along.dimension < 0) {
            part_inputs.push_back(inputs[i]);
            continue;
        }
        HostTensor part = dense_tensor(part_type(inputs[i].type, along, size));
        for_part(along, begin, size,
                 [&](std::size_t from, std::size_t to) { part.storage[to] = inputs[i].storage[from]; });
        part_inputs.push_back(std::move(part));
    }
    Attributes attributes = attributes_of(one, DType::float64);
    if (op.part) attributes = op.part(types_of(inputs), attributes, split.name, begin, size);
    const std::vector<HostTensor> outputs = evaluate(device, op, attributes, part_inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const Along along = find_loop(dims, dims.outputs[i], whole[i].type.shape, loop);
        ASSERT_EQ(to_string(outputs[i].type), to_string(part_type(whole[i].type, along, size)));
        const std::vector<double> values = outputs[i].values();
        std::vector<double>& result = results[i];
        if (along.dimension >= 0) {
            for_part(along, begin, size, [&](std::size_t to, std::size_t from) { result[to] = values[from]; });
        } else {
            for (std::size_t j = 0; j < values.size(); ++j)
                result[j] = begin == 0                          ? values[j]
                            : split.combine == Combine::maximum ? std::max(result[j], values[j])
                                                                : result[j] + values[j];
        }
    }
}

TEST(LoopDims, PartsOfASplitLoopMakeTheWhole) {
    const auto device = make_reference_device();
    std::set<std::string> splittable, split;
    for (const Case& one : operator_cases()) {
        const Operator& op = all_operators().at(one.op());
        if (op.collective) continue; // tests/sharding splits them
        const std::vector<HostTensor> inputs = *make_inputs(one, DType::float64);
        const Attributes attributes = attributes_of(one, DType::float64);
        const std::vector<HostTensor> whole = evaluate(*device, op, attributes, inputs);
        const LoopDims dims = resolve_loops(op, types_of(inputs), types_of(whole), attributes);
        for (std::size_t l = 0; l < dims.loops.size(); ++l) {
            if (dims.loops[l].whole) continue;
            splittable.insert(one.op());
            const std::int64_t size = dims.loops[l].size;
            for (std::int64_t cut : std::set<std::int64_t>{1, size - 1, size / 2}) {
                if (cut <= 0 || cut >= size) continue;
                SCOPED_TRACE(fmt::format("{}: loop {} of {} cut at {}", one.name, dims.loops[l].name, size, cut));
                std::vector<std::vector<double>> results;
                for (const HostTensor& output : whole)
                    results.emplace_back(static_cast<std::size_t>(output.type.elements()));
                run_part(*device, one, dims, static_cast<int>(l), 0, cut, inputs, whole, results);
                run_part(*device, one, dims, static_cast<int>(l), cut, size - cut, inputs, whole, results);
                for (std::size_t i = 0; i < whole.size(); ++i)
                    EXPECT_EQ(difference(fmt::format("output {}", i), results[i], whole[i].values(), 1e-12), "");
                split.insert(one.op());
            }
        }
    }
    EXPECT_EQ(splittable, split) << "every operator with a loop that may be split has a case that splits it";
}

// What of each operator may never be split, so that a change of a declaration is seen.
TEST(LoopDims, OperatorsWithoutALoopToSplitAreFew) {
    const auto device = make_reference_device();
    std::set<std::string> never;
    for (const Operator& op : all_operators().all()) never.insert(std::string(op.name));
    for (const Case& one : operator_cases()) {
        const Operator& op = all_operators().at(one.op());
        const std::vector<TensorType> inputs = types_of(*make_inputs(one, DType::float64));
        const Attributes attributes = attributes_of(one, DType::float64);
        const LoopDims dims = resolve_loops(op, inputs, op.infer(inputs, attributes), attributes);
        for (const Loop& loop : dims.loops)
            if (!loop.whole) never.erase(one.op());
    }
    EXPECT_EQ(never, (std::set<std::string>{"adamw", "finish_norm", "step_scalar", "sum_step"}));
}

} // namespace
} // namespace tutti::testing
