#include "base/tensor_type.h"

namespace tutti {
namespace {

// Dimensions [first, last) collapse to one dimension: each stride is the next one's times its size.
bool collapses(const Shape& shape, const Shape& strides, int first, int last) {
    std::int64_t expected = -1;
    for (int i = last - 1; i >= first; --i) {
        if (shape[i] == 1) continue;
        if (expected >= 0 && strides[i] != expected) return false;
        expected = strides[i] * shape[i];
    }
    return true;
}

} // namespace

bool is_dense(const Shape& shape, const Shape& strides) {
    const Shape dense = dense_strides(shape);
    for (int i = 0; i < shape.rank(); ++i)
        if (shape[i] != 1 && strides[i] != dense[i]) return false;
    return true;
}

bool has_unit_rows(const Shape& shape, const Shape& strides) {
    return shape.empty() || shape.back() == 1 || strides.back() == 1;
}

bool is_matrix(const Shape& shape, const Shape& strides) {
    if (shape.rank() < 2) return has_unit_rows(shape, strides);
    const int last = shape.rank() - 1;
    if (!collapses(shape, strides, 0, last)) return false;
    if (has_unit_rows(shape, strides)) {
        for (int i = 0; i < last; ++i) // expanded rows are no matrix
            if (shape[i] != 1 && strides[i] < shape[last]) return false;
        return true;
    }
    for (int i = last - 1; i >= 0; --i)
        if (shape[i] != 1) return strides[i] == 1 && strides[last] >= shape.elements() / shape[last];
    return false;
}

std::string to_string(const TensorType& type) { return std::string(name_of(type.dtype)) + to_string(type.shape); }

} // namespace tutti
