#include "backend/reference/reference.h"

#include "backend/host_device.h"
#include "backend/kernel_table.h"
#include "backend/reference/dense.h"
#include "backend/storage.h"
#include "base/error.h"

namespace tutti::backend::reference {

double rounded(double value, DType dtype) {
    with_storage(dtype, [&]<class T>(T) { value = to_double(from_double<T>(value)); });
    return value;
}

namespace {

void load(const Operand& operand, const std::byte* from, double* to) {
    with_storage(operand.type.dtype, [&]<class T>(T) {
        for_each_index(operand.type.shape, [&](const Shape& index) {
            std::int64_t at = 0;
            for (int d = 0; d < index.rank(); ++d) at += index[d] * operand.strides[d];
            *to++ = to_double(reinterpret_cast<const T*>(from)[at]);
        });
    });
}

void store(const Operand& operand, const double* from, std::byte* to, bool accumulate) {
    with_storage(operand.type.dtype, [&]<class T>(T) {
        for_each_index(operand.type.shape, [&](const Shape& index) {
            std::int64_t at = 0;
            for (int d = 0; d < index.rank(); ++d) at += index[d] * operand.strides[d];
            T& element = reinterpret_cast<T*>(to)[at];
            element = from_double<T>(*from++ + (accumulate ? to_double(element) : 0));
        });
    });
}

class ReferenceKernel : public Kernel {
  public:
    ReferenceKernel(const Formula& formula, KernelRequest request) : formula_(formula), request_(std::move(request)) {
        for (const Operand& operand : request_.inputs) elements_ += operand.elements();
        for (const Operand& operand : request_.outputs) elements_ += operand.elements();
    }

    Bytes workspace() const override { return {elements_ * static_cast<std::int64_t>(sizeof(double))}; }

    void run(const Launch& launch) const override {
        auto* next = reinterpret_cast<double*>(launch.workspace);
        auto place = [&](const std::vector<Operand>& operands) {
            std::vector<Tensor> tensors;
            for (const Operand& operand : operands) {
                tensors.push_back({operand.type.dtype, operand.type.shape, next});
                next += operand.elements();
            }
            return tensors;
        };
        const std::vector<Tensor> in = place(request_.inputs), out = place(request_.outputs);
        for (std::size_t i = 0; i < in.size(); ++i) load(request_.inputs[i], launch.inputs[i], in[i].data);
        for (std::size_t i = 0; i < out.size(); ++i) {
            if (formula_.updates)
                load(request_.outputs[i], launch.outputs[i], out[i].data);
            else
                std::fill_n(out[i].data, out[i].elements(), 0.0);
        }
        StepScalars none;
        formula_.compute(
            {request_, request_.attributes, in, out, launch.scalars ? *launch.scalars : none, launch.samples_before});
        for (std::size_t i = 0; i < out.size(); ++i)
            store(request_.outputs[i], out[i].data, launch.outputs[i],
                  request_.accumulate && static_cast<int>(i) >= formula_.accumulates_from);
    }

  private:
    const Formula& formula_; // lives in the table, as long as the program
    KernelRequest request_;
    std::int64_t elements_ = 0;
};

const KernelTable& kernels() {
    static const std::vector<Formula> formulas = [] {
        std::vector<Formula> all;
        for (auto family : {matrix_formulas, norm_formulas, unary_formulas, binary_formulas, reduction_formulas,
                            shape_formulas, index_formulas, attention_formulas, loss_formulas, head_formulas,
                            random_formulas, source_formulas, step_formulas}) {
            std::vector<Formula> some = family();
            all.insert(all.end(), some.begin(), some.end());
        }
        return all;
    }();
    static const KernelTable table = [] {
        KernelTable made;
        for (const Formula& formula : formulas)
            made.add(formula.op, PrepareKernel([&formula](const KernelRequest& request) {
                         if (formula.check) formula.check(request);
                         return std::make_unique<ReferenceKernel>(formula, request);
                     }));
        return made;
    }();
    return table;
}

class ReferenceDevice : public HostDevice {
  public:
    std::string name() const override { return "reference"; }
    std::string model() const override { return "naive loops"; }
    bool supports(DType) const override { return true; }
    std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
        return kernels().prepare(name(), request);
    }
};

} // namespace

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

} // namespace tutti::backend::reference
