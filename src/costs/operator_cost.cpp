#include "costs/operator_cost.h"

#include "base/error.h"

namespace tutti::costs {

Cost cost_of(const OperatorSet& operators, std::string_view op, Types inputs, Types outputs,
             const Attributes& attributes) {
    if (const Operator* known = operators.find(op); known && known->cost) {
        TUTTI_CHECK(!known->collective, "{} is no kernel", op);
        return known->cost(inputs, outputs, attributes);
    }
    Cost cost;
    for (const TensorType& type : inputs) cost.bytes += type.bytes();
    for (const TensorType& type : outputs) cost.bytes += type.bytes();
    return cost;
}

std::vector<TensorType> types_of(const std::vector<Argument>& arguments) {
    std::vector<TensorType> types;
    types.reserve(arguments.size());
    for (const Argument& argument : arguments) types.push_back(argument.type);
    return types;
}

} // namespace tutti::costs
