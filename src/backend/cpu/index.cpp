// Look-ups by index, and their gradients, which add to where the forward took from.
#include "backend/cpu/kernels.h"

#include <algorithm>
#include <compare>
#include <cstring>
#include <span>

namespace tutti::backend::cpu {
namespace {

// Ids and indices of either width.
class Indices {
  public:
    explicit Indices(const Operand& operand) : at_(operand), wide_(operand.type.dtype == DType::int64) {}
    std::int64_t count() const { return at_.count(); }
    std::int64_t read(const std::byte* data, std::int64_t i) const {
        return wide_ ? reinterpret_cast<const std::int64_t*>(data)[at_[i]]
                     : reinterpret_cast<const std::int32_t*>(data)[at_[i]];
    }

  private:
    Scalars at_;
    bool wide_;
};

// Rows of other parts of the table read as zero.
class Embedding : public Kernel {
  public:
    explicit Embedding(const KernelRequest& request)
        : ids_(request.inputs[1]), rows_(request.inputs[0].type.shape[0]),
          row_bytes_(request.inputs[0].type.shape[1] * size_of(request.inputs[0].type.dtype)),
          first_(request.attributes.integer("first_row", 0)) {}

    void run(const Launch& l) const override {
        parallel_for(ids_.count(), row_bytes_, [&](std::int64_t i) {
            const std::int64_t row = ids_.read(l.inputs[1], i) - first_;
            std::byte* to = l.outputs[0] + i * row_bytes_;
            if (row < 0 || row >= rows_)
                std::memset(to, 0, static_cast<std::size_t>(row_bytes_));
            else
                std::memcpy(to, l.inputs[0] + row * row_bytes_, static_cast<std::size_t>(row_bytes_));
        });
    }

  private:
    Indices ids_;
    std::int64_t rows_, row_bytes_, first_;
};

// Each thread owns columns of the table and goes through the tokens row by row, those of a row in their order: no two
// meet, and the order of additions is always the same. Sums are float until they are stored.
template <class T, class Out>
class EmbeddingGradient : public Kernel {
  public:
    explicit EmbeddingGradient(const KernelRequest& request)
        : ids_(request.inputs[1]), rows_(request.outputs[0].type.shape[0]), width_(request.outputs[0].type.shape[1]),
          row_stride_(request.outputs[0].strides[0]), column_stride_(request.outputs[0].strides[1]),
          first_(request.attributes.integer("first_row", 0)), padding_(request.attributes.integer("padding_row", -1)),
          accumulate_(request.accumulate) {}

    Bytes workspace() const override { return {ids_.count() * static_cast<std::int64_t>(sizeof(Use))}; }

    void run(const Launch& l) const override {
        if (!accumulate_) clear(l.out<Out>(0));
        const std::span<const Use> uses = sorted_uses(l);
        constexpr std::int64_t columns = 32;
        parallel_for((width_ + columns - 1) / columns, static_cast<std::int64_t>(uses.size()) * columns,
                     [&](std::int64_t panel) {
                         const std::int64_t begin = panel * columns, count = std::min(columns, width_ - begin);
                         float sum[columns];
                         for (std::size_t i = 0; i < uses.size();) {
                             const std::int64_t row = uses[i].row;
                             Out* to = l.out<Out>(0) + row * row_stride_ + begin * column_stride_;
                             for (std::int64_t j = 0; j < count; ++j)
                                 sum[j] = static_cast<float>(to[j * column_stride_]);
                             for (; i < uses.size() && uses[i].row == row; ++i)
                                 simd().rows<T>().add_row(l.in<T>(0) + uses[i].token * width_ + begin, sum, count);
                             for (std::int64_t j = 0; j < count; ++j) to[j * column_stride_] = Out(sum[j]);
                         }
                     });
    }

  private:
    struct Use {
        std::int64_t row, token;
        auto operator<=>(const Use&) const = default;
    };

    std::span<const Use> sorted_uses(const Launch& l) const {
        const std::span<Use> all(reinterpret_cast<Use*>(l.workspace), static_cast<std::size_t>(ids_.count()));
        std::size_t count = 0;
        for (std::int64_t i = 0; i < ids_.count(); ++i) {
            const std::int64_t id = ids_.read(l.inputs[1], i), row = id - first_;
            if (row >= 0 && row < rows_ && id != padding_) all[count++] = {row, i};
        }
        std::ranges::sort(all.first(count));
        return all.first(count);
    }

    // Along the dimension that is contiguous.
    void clear(Out* table) const {
        const bool by_rows = column_stride_ == 1 || width_ == 1;
        const std::int64_t lines = by_rows ? rows_ : width_, length = by_rows ? width_ : rows_;
        const std::int64_t stride = by_rows ? row_stride_ : column_stride_, step = by_rows ? 1 : row_stride_;
        parallel_for(lines, length, [&](std::int64_t i) {
            Out* line = table + i * stride;
            if (step == 1)
                std::fill_n(line, length, Out(0.0f));
            else
                for (std::int64_t j = 0; j < length; ++j) line[j * step] = Out(0.0f);
        });
    }

    Indices ids_;
    std::int64_t rows_, width_, row_stride_, column_stride_, first_, padding_;
    bool accumulate_;
};

std::unique_ptr<Kernel> prepare_embedding_gradient(const KernelRequest& request) {
    return for_floating(request, request.inputs[0].type.dtype, [&]<class T>() {
        return for_floating(request, request.outputs[0].type.dtype, [&]<class Out>() -> std::unique_ptr<Kernel> {
            return std::make_unique<EmbeddingGradient<T, Out>>(request);
        });
    });
}

// Lines along `dim` of the tensor that is picked from, numbered as the other dimensions run.
struct Lines {
    Scalars at;
    std::int64_t size, step;

    static Operand others(Operand operand, int dim) {
        operand.type.shape.erase(dim);
        operand.strides.erase(dim);
        return operand;
    }
    Lines(const Operand& operand, int dim)
        : at(others(operand, dim)), size(operand.type.shape[dim]), step(operand.strides[dim]) {}
};

class GatherBase : public Kernel {
  protected:
    explicit GatherBase(const KernelRequest& request)
        : indices_(request.inputs[1]), picks_(request.inputs[1], dim_of(request, request.inputs[1].type.shape.rank())),
          wide_(request.inputs[1].type.dtype == DType::int64) {}

    std::int64_t pick(const Launch& l, std::int64_t line, std::int64_t j) const {
        const std::int64_t at = picks_.at[line] + j * picks_.step;
        return wide_ ? l.in<std::int64_t>(1)[at] : l.in<std::int32_t>(1)[at];
    }
    // Before the parallel loop, which nothing may be thrown out of.
    void check(const Launch& l, std::int64_t size) const {
        for (std::int64_t i = 0; i < indices_.count(); ++i) {
            const std::int64_t index = indices_.read(l.inputs[1], i);
            TUTTI_CHECK(index >= 0 && index < size, "gather of {} from {} elements", index, size);
        }
    }

    Indices indices_;
    Lines picks_;
    bool wide_;
};

template <class Element>
class Gather : public GatherBase {
  public:
    explicit Gather(const KernelRequest& request)
        : GatherBase(request), x_(request.inputs[0], dim_of(request, request.inputs[0].type.shape.rank())),
          y_(request.outputs[0], dim_of(request, request.inputs[0].type.shape.rank())) {}

    void run(const Launch& l) const override {
        check(l, x_.size);
        parallel_for(y_.at.count(), y_.size, [&](std::int64_t line) {
            const Element* x = l.in<Element>(0) + x_.at[line];
            Element* y = l.out<Element>(0) + y_.at[line];
            for (std::int64_t j = 0; j < y_.size; ++j) y[j * y_.step] = x[pick(l, line, j) * x_.step];
        });
    }

  private:
    Lines x_, y_;
};

// Sums in float, whatever is stored: for bf16 a line of floats per thread would do, one per line is simpler.
template <class T>
class GatherGradient : public GatherBase {
  public:
    explicit GatherGradient(const KernelRequest& request)
        : GatherBase(request), dy_(request.inputs[0], dim_of(request, request.inputs[0].type.shape.rank())),
          dx_(request.outputs[0], dim_of(request, request.inputs[0].type.shape.rank())) {}

    Bytes workspace() const override { return {dx_.at.count() * dx_.size * static_cast<std::int64_t>(sizeof(float))}; }

    void run(const Launch& l) const override {
        check(l, dx_.size);
        parallel_for(dx_.at.count(), dx_.size + dy_.size, [&](std::int64_t line) {
            float* sum = reinterpret_cast<float*>(l.workspace) + line * dx_.size;
            std::fill_n(sum, dx_.size, 0.0f);
            const T* dy = l.in<T>(0) + dy_.at[line];
            for (std::int64_t j = 0; j < dy_.size; ++j) sum[pick(l, line, j)] += static_cast<float>(dy[j * dy_.step]);
            T* dx = l.out<T>(0) + dx_.at[line];
            for (std::int64_t j = 0; j < dx_.size; ++j) dx[j * dx_.step] = T(sum[j]);
        });
    }

  private:
    Lines dy_, dx_;
};

std::unique_ptr<Kernel> prepare_gather(const KernelRequest& request) {
    switch (size_of(request.inputs[0].type.dtype)) {
    case 1: return std::make_unique<Gather<std::uint8_t>>(request);
    case 2: return std::make_unique<Gather<std::uint16_t>>(request);
    case 4: return std::make_unique<Gather<std::uint32_t>>(request);
    default: return std::make_unique<Gather<std::uint64_t>>(request);
    }
}

} // namespace

void add_index_kernels(KernelTable& table) {
    table.add("embedding",
              PrepareKernel([](const KernelRequest& request) { return std::make_unique<Embedding>(request); }));
    table.add("embedding_gradient", PrepareKernel(prepare_embedding_gradient));
    table.add("gather", PrepareKernel(prepare_gather));
    add_floating<GatherGradient>(table, "gather_gradient");
}

} // namespace tutti::backend::cpu
