// Look-ups by index: embedding, gather and its gradient. (The embedding's gradient has a file of its own.)
#include "backend/cuda/elementwise.h"
#include "backend/cuda/index.h"

namespace tutti::backend::cuda {
namespace {

constexpr int threads = 256;

// ---- embedding

// A thread for each unit (16 bytes, or an element) of the output. Rows of other parts of the table read as zero.
template <class Unit>
__global__ void __launch_bounds__(threads)
    embedding_kernel(const Unit* __restrict__ table, Ids ids, Unit* __restrict__ y, std::int64_t count,
                     std::uint32_t width, std::int64_t rows, std::int64_t first) {
    const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (i >= count) return;
    const bool narrow = count < (std::int64_t{1} << 31);
    const std::int64_t token = narrow ? static_cast<std::uint32_t>(i) / width : i / width;
    const std::int64_t row = ids.at(token) - first;
    y[i] = row >= 0 && row < rows ? table[row * width + (i - token * width)] : Unit{};
}

class Embedding : public Kernel {
  public:
    explicit Embedding(const KernelRequest& request)
        : rows_(request.inputs[0].type.shape[0]), width_(request.inputs[0].type.shape[1]),
          tokens_(request.inputs[1].elements()), element_(size_of(request.inputs[0].type.dtype)),
          first_(request.attributes.integer("first_row", 0)), wide_ids_(request.inputs[1].type.dtype == DType::int64) {}

    void run(const Launch& launch) const override {
        const auto places =
            reinterpret_cast<std::uintptr_t>(launch.inputs[0]) | reinterpret_cast<std::uintptr_t>(launch.outputs[0]);
        if (width_ * element_ % 16 == 0 && places % 16 == 0) return copy<uint4>(launch);
        switch (element_) {
        case 1: return copy<std::uint8_t>(launch);
        case 2: return copy<std::uint16_t>(launch);
        case 4: return copy<std::uint32_t>(launch);
        default: return copy<std::uint64_t>(launch);
        }
    }

  private:
    template <class Unit>
    void copy(const Launch& launch) const {
        const std::int64_t units = width_ * element_ / static_cast<std::int64_t>(sizeof(Unit)), count = tokens_ * units;
        embedding_kernel<<<static_cast<unsigned>(divide_up(count, threads)), threads, 0, stream_of(launch)>>>(
            launch.in<Unit>(0), Ids{launch.inputs[1], wide_ids_}, launch.out<Unit>(0), count,
            static_cast<std::uint32_t>(units), rows_, first_);
        launched("embedding");
    }

    std::int64_t rows_, width_, tokens_, element_, first_;
    bool wide_ids_;
};

// ---- gather

// The dimension along which elements are picked, in steps of the tensor that is picked from.
struct Picked {
    std::int64_t size, step;
};

// Operands of the walk. `whole` is seen at the shape of the picks, with no step along the picked dimension.
enum { picked, picks, whole, walked };

template <class Element>
__global__ void __launch_bounds__(threads) gather_kernel(Walk<walked> walk, Picked along, const Element* __restrict__ x,
                                                         Ids indices, Element* __restrict__ y) {
    const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (i >= walk.count) return;
    std::int64_t at[walked];
    walk.locate(i, at);
    const std::int64_t pick = indices.at(at[picks]);
    if (pick < 0 || pick >= along.size) __trap(); // ends the run: a defect of the model
    y[at[picked]] = x[at[whole] + pick * along.step];
}

int dim_of(const KernelRequest& request) {
    const std::int64_t dim = request.attributes.integer("dim");
    return static_cast<int>(dim < 0 ? dim + request.inputs[0].type.shape.rank() : dim);
}

Shape without_step(Shape strides, int dim) {
    strides[dim] = 0;
    return strides;
}

template <class Element>
class Gather : public Kernel {
  public:
    explicit Gather(const KernelRequest& request) : wide_ids_(request.inputs[1].type.dtype == DType::int64) {
        const int dim = dim_of(request);
        const Operand &x = request.inputs[0], &indices = request.inputs[1], &y = request.outputs[0];
        walk_ = {y.type.shape, std::vector{y.strides, indices.strides, without_step(x.strides, dim)}};
        along_ = {x.type.shape[dim], x.strides[dim]};
    }
    void run(const Launch& launch) const override {
        const auto blocks = static_cast<unsigned>(divide_up(walk_.count, threads));
        gather_kernel<<<blocks, threads, 0, stream_of(launch)>>>(
            walk_, along_, launch.in<Element>(0), Ids{launch.inputs[1], wide_ids_}, launch.out<Element>(0));
        launched("gather");
    }

  private:
    Walk<walked> walk_;
    Picked along_;
    bool wide_ids_;
};

// ---- gather_gradient

// dx, and where its line begins in dy and in the picks.
enum { dx_place, dx_number, dy_line, picks_line, lines };

// A thread for each element of dx goes through all picks of its line in order: there are few of them where this is
// used.
template <class T>
__global__ void __launch_bounds__(threads)
    gather_gradient_kernel(Walk<lines> walk, Picked dy_along, std::int64_t pick_step, const T* __restrict__ dy,
                           Ids indices, T* __restrict__ dx) {
    const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (i >= walk.count) return;
    std::int64_t at[lines];
    walk.locate(i, at);
    float sum = 0;
    for (std::int64_t j = 0; j < dy_along.size; ++j)
        if (indices.at(at[picks_line] + j * pick_step) == at[dx_number])
            sum += to_float(dy[at[dy_line] + j * dy_along.step]);
    dx[at[dx_place]] = from_float<T>(sum);
}

template <class T>
class GatherGradient : public Kernel {
  public:
    explicit GatherGradient(const KernelRequest& request) : wide_ids_(request.inputs[1].type.dtype == DType::int64) {
        const int dim = dim_of(request);
        const Operand &dy = request.inputs[0], &indices = request.inputs[1], &dx = request.outputs[0];
        Shape number = dx.strides;
        std::ranges::fill(number, 0);
        number[dim] = 1;
        walk_ = {dx.type.shape,
                 std::vector{dx.strides, number, without_step(dy.strides, dim), without_step(indices.strides, dim)}};
        dy_along_ = {dy.type.shape[dim], dy.strides[dim]};
        pick_step_ = indices.strides[dim];
    }
    void run(const Launch& launch) const override {
        const auto blocks = static_cast<unsigned>(divide_up(walk_.count, threads));
        gather_gradient_kernel<<<blocks, threads, 0, stream_of(launch)>>>(
            walk_, dy_along_, pick_step_, launch.in<T>(0), Ids{launch.inputs[1], wide_ids_}, launch.out<T>(0));
        launched("gather_gradient");
    }

  private:
    Walk<lines> walk_;
    Picked dy_along_;
    std::int64_t pick_step_;
    bool wide_ids_;
};

std::unique_ptr<Kernel> prepare_gather(const KernelRequest& request) {
    return for_size(request.inputs[0].type.dtype,
                    [&]<class T>() -> std::unique_ptr<Kernel> { return std::make_unique<Gather<T>>(request); });
}

} // namespace

void add_index_kernels(KernelTable& table) {
    table.add("embedding",
              PrepareKernel([](const KernelRequest& request) { return std::make_unique<Embedding>(request); }));
    table.add("gather", PrepareKernel(prepare_gather));
    add_floating<GatherGradient>(table, "gather_gradient");
    add_embedding_gradient_kernel(table);
}

} // namespace tutti::backend::cuda
