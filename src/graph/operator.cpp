#include "graph/operator.h"

#include "base/error.h"

#include <algorithm>

namespace tutti {

bool accepted(Accepts accepts, const Shape& shape, const Shape& strides) {
    switch (accepts) {
    case Accepts::dense: return is_dense(shape, strides);
    case Accepts::rows: return has_unit_rows(shape, strides);
    case Accepts::matrix: return is_matrix(shape, strides);
    case Accepts::strided: return true;
    }
    return false;
}

bool is_random(const Operator& op, const Attributes& attributes) {
    return !op.drops.empty() && attributes.real(op.drops, 0) > 0;
}

OperatorSet::OperatorSet(std::vector<Operator> operators) : operators_(std::move(operators)) {
    std::ranges::sort(operators_, {}, &Operator::name);
    for (std::size_t i = 1; i < operators_.size(); ++i)
        TUTTI_CHECK(operators_[i - 1].name != operators_[i].name, "operator {} is listed twice", operators_[i].name);
}

const Operator* OperatorSet::find(std::string_view name) const {
    const auto at = std::ranges::lower_bound(operators_, name, {}, &Operator::name);
    return at != operators_.end() && at->name == name ? &*at : nullptr;
}

const Operator& OperatorSet::at(std::string_view name) const {
    const Operator* found = find(name);
    if (!found) fail("there is no operator named {}", name);
    return *found;
}

} // namespace tutti
