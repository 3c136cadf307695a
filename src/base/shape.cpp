#include "base/shape.h"

namespace tutti {

Shape dense_strides(const Shape& shape) {
    Shape strides = shape;
    std::int64_t stride = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
        strides[i] = stride;
        stride *= shape[i];
    }
    return strides;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ",")); }

} // namespace tutti
