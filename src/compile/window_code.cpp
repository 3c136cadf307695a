#include "compile/window_code.h"

#include "compile/stage_code.h"

namespace tutti::compile {

void WindowCode::open() {
    for (const Window& window : here(placement_.weights))
        if (window.first == writer_.position()) gather(window);
    for (const Window& window : here(placement_.gradients))
        if (window.first == writer_.position())
            writer_.add(zeros(
                flat({Region::transient, 0, window.offset}, precision_.gradients, elements_of(window), Access::write)));
}

// This rank's share of the sum is formed where it lies in the window, and added to what is kept when the next reduction
// has begun.
void WindowCode::close() {
    for (const Window& window : here(placement_.gradients))
        if (window.used == writer_.position()) reduce(window);
    for (const Window& window : here(placement_.gradients))
        if (window.last == writer_.position()) add_share(window);
}

std::optional<std::int32_t> WindowCode::take_gather(std::int32_t chunk) {
    const auto at = gathered_.find({writer_.part(), chunk});
    if (at == gathered_.end()) return std::nullopt;
    const std::int32_t instruction = at->second;
    gathered_.erase(at);
    return instruction;
}

void WindowCode::gather(const Window& window) {
    const auto c = static_cast<std::size_t>(window.chunk);
    const DType dtype = precision_.compute;
    Instruction gather = communication_of(InstructionKind::gather_chunk, ownership_.kind_of(c).sharded_over);
    gather.inputs.push_back(flat({Region::weights, window.chunk, 0}, dtype, ownership_.share(c).size(), Access::read));
    gather.outputs.push_back(flat({Region::transient, 0, window.offset}, dtype, elements_of(window), Access::write));
    gathered_[{writer_.part(), window.chunk}] = writer_.add(std::move(gather));
}

void WindowCode::reduce(const Window& window) {
    Instruction reduce = communication_of(InstructionKind::reduce_chunk,
                                          ownership_.kind_of(static_cast<std::size_t>(window.chunk)).sharded_over);
    reduce.inputs.push_back(
        flat({Region::transient, 0, window.offset}, precision_.gradients, elements_of(window), Access::read));
    reduce.outputs.push_back(share_of(window, Access::write));
    reducing_[{writer_.part(), window.chunk}] = writer_.add(std::move(reduce));
}

void WindowCode::add_share(const Window& window) {
    const DType dtype = precision_.gradients;
    Instruction add{.op = "accumulate", .attributes = {{"dtype", std::string(name_of(dtype))}}};
    add.inputs.push_back(share_of(window, Access::read));
    add.outputs.push_back(flat({Region::gradients, window.chunk, 0}, dtype,
                               ownership_.share(static_cast<std::size_t>(window.chunk)).size(), Access::accumulate));
    add.waits.push_back(reducing_.at({writer_.part(), window.chunk}));
    writer_.add(std::move(add));
}

Argument WindowCode::share_of(const Window& window, Access access) const {
    const Range share = ownership_.share(static_cast<std::size_t>(window.chunk));
    const DType dtype = precision_.gradients;
    return flat({Region::transient, 0, window.offset + share.begin * size_of(dtype)}, dtype, share.size(), access);
}

} // namespace tutti::compile
