// Normalisation of rows, alone or of a sum, and the gradients with respect to the rows. Those of scale and shift are in
// columns.cu, both together in norm_gradient.cu.
#include "backend/cuda/norm.h"
#include "backend/cuda/rows.h"

namespace tutti::backend::cuda {
namespace {

template <class T>
struct NormRows {
    const T *x, *delta, *scale, *shift;
    T *sum, *y;
    float *mean, *rstd;
    Strided x_rows, delta_rows;
    std::int64_t rows;
    int width;
    float eps, offset;
};

// y = (x - mean) rstd scale + shift; without the mean where it is not centred. With `adds` x is x + delta, rounded.
template <class T, int packs, bool centred, bool adds>
__global__ __launch_bounds__(512) void normalize(NormRows<T> a) {
    using Share = RowShare<T, packs>;
    __shared__ float2 shared[GroupSum::places];
    const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
    if (row >= a.rows) return; // the whole group
    GroupSum group_sum(shared);
    const Share share{a.width};
    const T* x = a.x + a.x_rows.at(row);
    const T* delta = adds ? a.delta + a.delta_rows.at(row) : nullptr;
    // All loads come before the first store: the compiler cannot know that they are not of the same memory.
    typename Share::Part kept[Share::kept], more[Share::kept];
    if constexpr (packs > 0)
        share.each([&](int part, int first) {
            kept[part] = load_elements<Share::size>(x + first);
            if constexpr (adds) more[part] = load_elements<Share::size>(delta + first);
        });
    if constexpr (adds) {
        T* sum = a.sum + row * a.width;
        share.each([&](int part, int first) {
            auto value = Share::part_of(kept, part, x, first);
            const auto added = Share::part_of(more, part, delta, first);
            for (int e = 0; e < Share::size; ++e)
                value.element[e] = from_float<T>(to_float(value.element[e]) + to_float(added.element[e]));
            store_elements(sum + first, value);
            kept[part] = value;
        });
        x = sum;
    }

    float mean = 0;
    if constexpr (centred) {
        float sum = 0;
        share.each([&](int part, int first) {
            const auto value = Share::part_of(kept, part, x, first);
            for (int e = 0; e < Share::size; ++e) sum += to_float(value.element[e]);
        });
        mean = group_sum(sum) / static_cast<float>(a.width);
    }
    float squares = 0;
    share.each([&](int part, int first) {
        const auto value = Share::part_of(kept, part, x, first);
        for (int e = 0; e < Share::size; ++e) {
            const float centre = to_float(value.element[e]) - mean;
            squares += centre * centre;
        }
    });
    const float rstd = 1 / sqrtf(group_sum(squares) / static_cast<float>(a.width) + a.eps);

    T* y = a.y + row * a.width;
    share.each([&](int part, int first) {
        auto value = Share::part_of(kept, part, x, first);
        typename Share::Part scale{}, shift{};
        if (a.scale) scale = load_constant<Share::size>(a.scale + first);
        if (centred && a.scale) shift = load_constant<Share::size>(a.shift + first);
        for (int e = 0; e < Share::size; ++e) {
            float normal = (to_float(value.element[e]) - mean) * rstd;
            if (a.scale) normal *= a.offset + to_float(scale.element[e]);
            if (centred && a.scale) normal += to_float(shift.element[e]);
            value.element[e] = from_float<T>(normal);
        }
        store_elements(y + first, value);
    });
    if (threadIdx.x > 0) return;
    if constexpr (centred) a.mean[row] = mean;
    a.rstd[row] = rstd;
}

template <class T, bool centred, bool adds>
class Norm : public Kernel {
  public:
    explicit Norm(const KernelRequest& request)
        : x_rows_(rows_of(request.inputs[0])), width_(width_of(request.inputs[0])),
          eps_(static_cast<float>(request.attributes.real("eps"))), offset_(scale_offset(request)),
          affine_(request.inputs.size() > weights) {
        if constexpr (adds) delta_rows_ = rows_of(request.inputs[1]);
        fits_ = rows_fit(x_rows_, Pack<T>::size) && rows_fit(delta_rows_, Pack<T>::size);
    }

    void run(const Launch& l) const override {
        NormRows<T> a{};
        a.x = l.in<T>(0), a.x_rows = x_rows_;
        if constexpr (adds) a.delta = l.in<T>(1), a.delta_rows = delta_rows_, a.sum = l.out<T>(0);
        if (affine_) a.scale = l.in<T>(weights);
        if (affine_ && centred) a.shift = l.in<T>(weights + 1);
        constexpr std::size_t y = adds ? 1 : 0;
        a.y = l.out<T>(y);
        if constexpr (centred) a.mean = l.out<float>(y + 1);
        a.rstd = l.out<float>(y + (centred ? 2 : 1));
        a.rows = x_rows_.count, a.width = static_cast<int>(width_), a.eps = eps_, a.offset = offset_;
        if (a.rows == 0) return;
        const RowPlan plan =
            plan_rows(width_, Pack<T>::size, fits_ && aligned({a.x, a.delta, a.scale, a.shift, a.sum, a.y}));
        for_packs(plan.packs, [&]<int packs>() {
            normalize<T, packs, centred, adds><<<plan.blocks(a.rows), plan.block(), 0, stream_of(l)>>>(a);
        });
        launched(centred ? "layer_norm" : "rms_norm");
    }

  private:
    static constexpr std::size_t weights = adds ? 2 : 1; // the first input that is one
    Strided x_rows_, delta_rows_;
    std::int64_t width_;
    float eps_, offset_;
    bool affine_, fits_ = false;
};

template <class T>
using LayerNorm = Norm<T, true, false>;
template <class T>
using RmsNorm = Norm<T, false, false>;
template <class T>
using AddLayerNorm = Norm<T, true, true>;
template <class T>
using AddRmsNorm = Norm<T, false, true>;

template <class T>
struct GradientRows {
    const T *dy, *x, *scale, *residual;
    const float *mean, *rstd;
    T* dx;
    Strided dy_rows, x_rows, residual_rows, dx_rows, mean_at, rstd_at;
    std::int64_t rows;
    int width;
    float offset;
};

// With g = dy scale and n the normalised row: dx = rstd (g - [mean(g)] - n mean(g n)) [+ residual]; mean(g) only where
// the mean was taken away.
template <class T, int packs, bool centred>
__global__ __launch_bounds__(512) void differentiate(GradientRows<T> a) {
    using Share = RowShare<T, packs>;
    __shared__ float2 shared[GroupSum::places];
    const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
    if (row >= a.rows) return;
    GroupSum group_sum(shared);
    const Share share{a.width};
    const T *dy = a.dy + a.dy_rows.at(row), *x = a.x + a.x_rows.at(row);
    const float rstd = a.rstd[a.rstd_at.at(row)], mean = centred ? a.mean[a.mean_at.at(row)] : 0;
    typename Share::Part kept_dy[Share::kept], kept_x[Share::kept];
    if constexpr (packs > 0)
        share.each([&](int part, int first) {
            kept_dy[part] = load_elements<Share::size>(dy + first);
            kept_x[part] = load_elements<Share::size>(x + first);
        });

    // body(element's place in the part, g, n) for all parts
    auto visit = [&](int part, int first, auto body) {
        const auto gradient = Share::part_of(kept_dy, part, dy, first), value = Share::part_of(kept_x, part, x, first);
        typename Share::Part scale{};
        if (a.scale) scale = load_constant<Share::size>(a.scale + first);
        for (int e = 0; e < Share::size; ++e)
            body(e, to_float(gradient.element[e]) * (a.scale ? a.offset + to_float(scale.element[e]) : 1.0f),
                 (to_float(value.element[e]) - mean) * rstd);
    };
    float2 sums = {0, 0};
    share.each([&](int part, int first) {
        visit(part, first, [&](int, float g, float n) { sums = {sums.x + g, sums.y + g * n}; });
    });
    if constexpr (centred)
        sums = group_sum(sums);
    else
        sums.y = group_sum(sums.y);
    const float shift = centred ? sums.x / static_cast<float>(a.width) : 0;
    const float projection = sums.y / static_cast<float>(a.width);
    const T* residual = a.residual ? a.residual + a.residual_rows.at(row) : nullptr;
    T* dx = a.dx + a.dx_rows.at(row);
    share.each([&](int part, int first) {
        typename Share::Part rest{}, result;
        if (residual) rest = load_elements<Share::size>(residual + first);
        visit(part, first, [&](int e, float g, float n) {
            result.element[e] = from_float<T>(rstd * (g - shift - n * projection) + to_float(rest.element[e]));
        });
        store_elements(dx + first, result);
    });
}

template <class T, bool centred>
class InputGradient : public Kernel {
  public:
    explicit InputGradient(const KernelRequest& request) : offset_(scale_offset(request)) {
        dy_rows_ = rows_of(request.inputs[0]), x_rows_ = rows_of(request.inputs[1]);
        dx_rows_ = rows_of(request.outputs[0]);
        width_ = width_of(request.inputs[1]);
        if constexpr (centred) mean_at_ = Strided(request.inputs[2]);
        rstd_at_ = Strided(request.inputs[scale - 1]);
        if (request.inputs.size() > residual) residual_rows_ = rows_of(request.inputs[residual]);
        fits_ = rows_fit(dy_rows_, Pack<T>::size) && rows_fit(x_rows_, Pack<T>::size) &&
                rows_fit(residual_rows_, Pack<T>::size) && rows_fit(dx_rows_, Pack<T>::size);
    }

    void run(const Launch& l) const override {
        GradientRows<T> a{};
        a.dy = l.in<T>(0), a.dy_rows = dy_rows_;
        a.x = l.in<T>(1), a.x_rows = x_rows_;
        if constexpr (centred) a.mean = l.in<float>(2), a.mean_at = mean_at_;
        a.rstd = l.in<float>(scale - 1), a.rstd_at = rstd_at_;
        if (l.inputs.size() > scale) a.scale = l.in<T>(scale);
        if (l.inputs.size() > residual) a.residual = l.in<T>(residual), a.residual_rows = residual_rows_;
        a.dx = l.out<T>(0), a.dx_rows = dx_rows_;
        a.rows = x_rows_.count, a.width = static_cast<int>(width_), a.offset = offset_;
        if (a.rows == 0) return;
        const RowPlan plan = plan_rows(width_, Pack<T>::size, fits_ && aligned({a.dy, a.x, a.scale, a.residual, a.dx}));
        for_packs(plan.packs, [&]<int packs>() {
            differentiate<T, packs, centred><<<plan.blocks(a.rows), plan.block(), 0, stream_of(l)>>>(a);
        });
        launched("norm_input_gradient");
    }

  private:
    static constexpr std::size_t scale = centred ? 4 : 3, residual = scale + 1; // their places among the inputs
    Strided dy_rows_, x_rows_, residual_rows_, dx_rows_, mean_at_, rstd_at_;
    std::int64_t width_ = 0;
    float offset_;
    bool fits_ = false;
};

} // namespace

std::unique_ptr<Kernel> make_norm_input_gradient(const KernelRequest& request) {
    return for_floating(request, request.inputs[1].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        if (is_centred(request)) return std::make_unique<InputGradient<T, true>>(request);
        return std::make_unique<InputGradient<T, false>>(request);
    });
}

void add_norm_kernels(KernelTable& table, const Gpu& gpu) {
    add_floating<LayerNorm>(table, "layer_norm");
    add_floating<RmsNorm>(table, "rms_norm");
    add_floating<AddLayerNorm>(table, "add_layer_norm");
    add_floating<AddRmsNorm>(table, "add_rms_norm");
    table.add("layer_norm_input_gradient", PrepareKernel(make_norm_input_gradient));
    table.add("rms_norm_input_gradient", PrepareKernel(make_norm_input_gradient));
    add_norm_gradient_kernels(table, gpu);
}

} // namespace tutti::backend::cuda
