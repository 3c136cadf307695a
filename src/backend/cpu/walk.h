// Walk: how elementwise kernels handle operands of any strides. All operands are seen as one line of elements, in the
// order of the output in memory, and visited in pieces. A piece that is contiguous is used where it lies; any other is
// gathered into a buffer first, or scattered from one. So the inner loops know only contiguous elements.
#pragma once

#include "backend/device.h"

#include <span>
#include <vector>

namespace tutti::backend::cpu {

class Walk {
  public:
    static constexpr std::int64_t piece = 1024;
    using Buffer = std::byte[piece * 8];

    // Inputs broadcast to the output's shape.
    Walk(const Operand& output, std::span<const Operand> inputs);

    std::int64_t elements() const { return elements_; }
    std::int64_t pieces() const { return (elements_ + piece - 1) / piece; }
    std::int64_t begin(std::int64_t index) const { return index * piece; }
    std::int64_t count(std::int64_t index) const { return std::min(piece, elements_ - index * piece); }

    // The piece of an input: where it lies, or gathered into the buffer.
    const std::byte* read(std::size_t input, const std::byte* data, std::int64_t index, std::byte* buffer) const;
    // Where to write the piece of the output: in place, or the buffer, from which `finish` scatters it.
    std::byte* open(std::byte* data, std::int64_t index, std::byte* buffer) const {
        return open(lines_.size() - 1, data, index, buffer);
    }
    void finish(std::byte* data, std::int64_t index, const std::byte* from) const {
        finish(lines_.size() - 1, data, index, from);
    }
    // The same of a further output, given among the inputs.
    std::byte* open(std::size_t input, std::byte* data, std::int64_t index, std::byte* buffer) const;
    void finish(std::size_t input, std::byte* data, std::int64_t index, const std::byte* from) const;

  private:
    // One operand along the walk, with neighbouring dimensions joined where that is possible.
    struct Line {
        Shape sizes, strides;
        std::int64_t element_size = 0;

        Line(const Shape& shape, const Shape& strides, std::int64_t element_size);
        // Offset in elements of [begin, begin + count) where it is contiguous, else -1.
        std::int64_t contiguous_at(std::int64_t begin, std::int64_t count) const;
        // visit(offset in elements, place in the piece, count) for each stretch along the last dimension
        template <class Visit>
        void for_each_run(std::int64_t begin, std::int64_t count, Visit visit) const;
        std::int64_t run_stride() const { return strides.empty() ? 1 : strides.back(); }
    };

    std::int64_t elements_;
    std::vector<Line> lines_; // the output's is the last
};

} // namespace tutti::backend::cpu
