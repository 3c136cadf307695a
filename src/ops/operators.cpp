#include "ops/operators.h"

#include "ops/families.h"

namespace tutti::ops {

const OperatorSet& all_operators() {
    static const OperatorSet set = [] {
        std::vector<Operator> all;
        for (auto family :
             {matrix_operators, norm_operators, unary_operators, binary_operators, reduction_operators, shape_operators,
              piece_operators, index_operators, attention_operators, loss_operators, gated_operators, head_operators,
              random_operators, source_operators, gradient_operators, collective_operators}) {
            std::vector<Operator> some = family();
            all.insert(all.end(), some.begin(), some.end());
        }
        return OperatorSet(std::move(all));
    }();
    return set;
}

} // namespace tutti::ops
