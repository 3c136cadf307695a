// Kernels that only move elements: contiguous, concat, slice_gradient.
#include "backend/cuda/elementwise.h"

namespace tutti::backend::cuda {
namespace {

struct Zero {
    __device__ int operator()() const { return 0; }
};

int dim_of(const KernelRequest& request) {
    const std::int64_t dim = request.attributes.integer("dim");
    return static_cast<int>(dim < 0 ? dim + request.outputs[0].type.shape.rank() : dim);
}

// Input i goes into the output from starts[i] along dim; the rest of the output is set to zero.
template <class Element>
class Placing : public Kernel {
  public:
    Placing(const KernelRequest& request, int dim, const std::vector<std::int64_t>& starts) : op_(request.op) {
        const Operand& out = request.outputs[0];
        std::int64_t covered = 0;
        for (std::size_t i = 0; i < request.inputs.size(); ++i) {
            const Operand& in = request.inputs[i];
            const std::int64_t size = in.type.shape[dim];
            copies_.push_back({{part_of(out, dim, size), std::span(&in, 1)}, starts[i] * out.strides[dim]});
            covered += size;
        }
        const std::int64_t all = out.type.shape[dim];
        if (covered == all) return;
        // Two gaps around one input.
        const std::int64_t end = starts[0] + covered;
        if (starts[0] > 0) gaps_.push_back({{part_of(out, dim, starts[0]), {}}, 0});
        if (end < all) gaps_.push_back({{part_of(out, dim, all - end), {}}, end * out.strides[dim]});
    }

    void run(const Launch& launch) const override {
        for (std::size_t i = 0; i < copies_.size(); ++i)
            copies_[i].work.run(op_.c_str(), stream_of(launch), launch.out<Element>(0) + copies_[i].offset,
                                launch.in<Element>(i));
        for (const auto& gap : gaps_) gap.work.run(op_.c_str(), stream_of(launch), launch.out<Element>(0) + gap.offset);
    }

  private:
    static Operand part_of(Operand whole, int dim, std::int64_t size) {
        whole.type.shape[dim] = size;
        return whole;
    }
    template <class Work>
    struct Placed {
        Work work;
        std::int64_t offset; // in the output, in elements
    };
    std::string op_;
    std::vector<Placed<Elementwise<Same, Element, Element>>> copies_;
    std::vector<Placed<Elementwise<Zero, Element>>> gaps_;
};

std::unique_ptr<Kernel> prepare_contiguous(const KernelRequest& request) {
    return for_size(request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<ElementKernel<Same, T, T>>(request);
    });
}

std::unique_ptr<Kernel> prepare_placing(const KernelRequest& request, const std::vector<std::int64_t>& starts) {
    return for_size(request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<Placing<T>>(request, dim_of(request), starts);
    });
}

std::unique_ptr<Kernel> prepare_concat(const KernelRequest& request) {
    std::vector<std::int64_t> starts;
    std::int64_t start = 0;
    for (const Operand& input : request.inputs) {
        starts.push_back(start);
        start += input.type.shape[dim_of(request)];
    }
    return prepare_placing(request, starts);
}

} // namespace

void add_copy_kernels(KernelTable& table) {
    table.add("contiguous", PrepareKernel(prepare_contiguous));
    table.add("concat", PrepareKernel(prepare_concat));
    table.add("slice_gradient", PrepareKernel([](const KernelRequest& request) {
                  return prepare_placing(request, {request.attributes.integer("start")});
              }));
}

} // namespace tutti::backend::cuda
