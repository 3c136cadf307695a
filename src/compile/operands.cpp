#include "compile/operands.h"

#include <algorithm>

namespace tutti::compile {

Argument flat(Address address, DType dtype, std::int64_t elements, Access access) {
    return {address, {dtype, {elements}}, {1}, access};
}

Address Operands::seen(Address address, Part part) const {
    if (address.region != Region::weights && address.region != Region::gradients) return address;
    const Windows& windows = address.region == Region::weights ? placement_.weights : placement_.gradients;
    const std::vector<Window>& open = windows[static_cast<std::size_t>(part)];
    const auto window = std::ranges::find(open, address.chunk, &Window::chunk);
    if (window == open.end()) return address;
    return {Region::transient, 0, window->offset + address.offset};
}

Argument Operands::value(ValueId value, Access access, Part part) const {
    const Address address = placement_.addresses[index(value)];
    const bool likely_cached = address.region == Region::transient; // a window is not: much goes by while it is open
    return {seen(address, part), graph_.type(value), placement_.strides[index(value)], access, likely_cached};
}

Argument Operands::gradient_of(ValueId parameter, Part part) const {
    const Value& value = graph_.value(parameter);
    const memory::ChunkTensor& place = places_.of(*graph_.parameter_of(parameter));
    const std::int64_t offset = (place.offset + value.layout.offset) * size_of(gradients_);
    return {seen({Region::gradients, place.chunk, offset}, part),
            {gradients_, value.type.shape},
            value.layout.strides,
            Access::accumulate};
}

} // namespace tutti::compile
