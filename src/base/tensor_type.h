// TensorType: what a value is. StoredTensor: one that is known by name, in a model and in the files that hold it.
// Layout: where the elements of a value lie in the storage it is a view of.
#pragma once

#include "base/dtype.h"
#include "base/shape.h"
#include "base/units.h"

#include <string>

namespace tutti {

struct TensorType {
    DType dtype = DType::float32;
    Shape shape;

    std::int64_t elements() const { return shape.elements(); }
    Bytes bytes() const { return {elements() * size_of(dtype)}; }
    bool operator==(const TensorType&) const = default;
};

// A tensor as checkpoints and model folders store it. Its name and shape never change, whatever is done to the graph.
struct StoredTensor {
    std::string name;
    TensorType type;

    bool operator==(const StoredTensor&) const = default;
};

struct Layout {
    Shape strides; // in elements, one per dimension; 0 where a dimension is expanded
    std::int64_t offset = 0;

    bool operator==(const Layout&) const = default;
};

inline Layout dense_layout(const Shape& shape) { return {dense_strides(shape), 0}; }

// Strides matter only along dimensions of more than one element.
bool is_dense(const Shape& shape, const Shape& strides);
bool has_unit_rows(const Shape& shape, const Shape& strides); // the last dimension is contiguous
// All dimensions but the last collapse to one, and one of the two that remain is contiguous: what matrix kernels take.
bool is_matrix(const Shape& shape, const Shape& strides);

std::string to_string(const TensorType& type); // "float32[8,32,64]"

} // namespace tutti
