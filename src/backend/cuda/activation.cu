// The gated activation of feed-forwards and its gradient, and rotary position embedding.
#include "backend/cuda/rows.h"

#include <string>

namespace tutti::backend::cuda {
namespace {

// Good to the last bits in float32; in bf16 the faster ones are as good.
template <class T>
__device__ float exponential(float x) {
    if constexpr (std::is_same_v<T, bf16>)
        return __expf(x);
    else
        return expf(x);
}
template <class T>
__device__ float sigmoid(float x) {
    if constexpr (std::is_same_v<T, bf16>)
        return __fdividef(1, 1 + __expf(fminf(-x, 80.0f)));
    else
        return 1 / (1 + expf(-x));
}

enum class Activation { silu, gelu, gelu_tanh, relu };

Activation activation_of(const KernelRequest& request) {
    const std::string& name = request.attributes.text("activation");
    if (name == "silu") return Activation::silu;
    if (name == "gelu") return Activation::gelu;
    if (name == "gelu_tanh") return Activation::gelu_tanh;
    if (name == "relu") return Activation::relu;
    fail("[{}] there is no activation {}", request.op, name);
}

struct ValueAndSlope {
    float value, slope;
};

// The slope costs nothing where it is not used.
template <class T, Activation activation>
__device__ ValueAndSlope activate(float x) {
    if constexpr (activation == Activation::silu) {
        const float s = sigmoid<T>(x);
        return {x * s, s * (1 + x * (1 - s))};
    } else if constexpr (activation == Activation::gelu) {
        constexpr float inverse_root_two = 0.70710678118654752f, inverse_root_two_pi = 0.39894228040143268f;
        const float cdf = 0.5f * (1 + erff(x * inverse_root_two));
        return {x * cdf, cdf + x * inverse_root_two_pi * exponential<T>(-0.5f * x * x)};
    } else if constexpr (activation == Activation::gelu_tanh) {
        // (1 + tanh u) / 2 = sigmoid 2u, with u = sqrt(2/pi) (x + 0.044715 x^3)
        constexpr float twice_root = 2 * 0.79788456080286536f, cubic = 0.044715f;
        const float s = sigmoid<T>(twice_root * (x + cubic * x * x * x));
        return {x * s, s + x * s * (1 - s) * twice_root * (1 + 3 * cubic * x * x)};
    } else {
        return {x < 0 ? 0 : x, x > 0 ? 1.0f : 0.0f};
    }
}

template <class Body>
void for_activation(Activation activation, Body body) {
    switch (activation) {
    case Activation::silu: return body.template operator()<Activation::silu>();
    case Activation::gelu: return body.template operator()<Activation::gelu>();
    case Activation::gelu_tanh: return body.template operator()<Activation::gelu_tanh>();
    case Activation::relu: return body.template operator()<Activation::relu>();
    }
}

constexpr int threads = 256;

// Division by a number known before: where what is divided stays below 2^31, a multiplication and a shift (Granlund and
// Montgomery, 1994).
struct Divider {
    std::int64_t divisor = 1;
    unsigned multiplier = 0; // 0: numbers may be larger
    int shift = 31;

    Divider() = default;
    Divider(std::int64_t by, bool narrow) : divisor(by) {
        if (!narrow) return;
        while ((std::int64_t{1} << (shift - 31)) < by) ++shift;
        multiplier = static_cast<unsigned>((std::uint64_t{1} << shift) / static_cast<std::uint64_t>(by) + 1);
    }
    __device__ std::int64_t operator()(std::int64_t n) const {
        if (multiplier == 0) return n / divisor;
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(n) * multiplier >> shift);
    }
};
__device__ std::int64_t place_of(const Strided& places, std::int64_t i, bool narrow) {
    if (!narrow) return places.at(i);
    std::int64_t place = 0;
    auto number = static_cast<unsigned>(i);
    for (int d = places.rank - 1; d > 0; --d) {
        const unsigned size = static_cast<unsigned>(places.sizes[d]), above = number / size;
        place += (number - above * size) * places.strides[d];
        number = above;
    }
    return places.rank == 0 ? 0 : place + number * places.strides[0];
}
constexpr bool is_narrow(std::int64_t count) { return count < (std::int64_t{1} << 31); }

// Operands that are gone through together, an access of `size` neighbours at a time. As rows where all have contiguous
// rows, as one row where all are dense, else element by element.
template <int operands>
struct Together {
    Strided places[operands]; // of rows, or of elements
    std::int64_t width = 1, accesses = 0;
    Divider by_row, by_packs; // accesses of one element, or of a pack, to their row
    bool fits = true, narrow = true;

    void plan(const Operand* (&list)[operands], std::int64_t pack) {
        const bool dense = std::all_of(list, list + operands, [](const Operand* o) { return o->dense(); });
        const bool rows = std::all_of(list, list + operands, [](const Operand* o) {
            return !o->type.shape.empty() && has_unit_rows(o->type.shape, o->strides);
        });
        accesses = list[0]->elements();
        narrow = is_narrow(accesses);
        width = dense ? accesses : rows ? width_of(*list[0]) : 1;
        for (int i = 0; i < operands; ++i) {
            places[i] = dense ? Strided() : rows ? rows_of(*list[i]) : Strided(*list[i]);
            fits = fits && rows_fit(places[i], pack);
        }
        fits = fits && width % pack == 0;
        by_row = Divider(width, narrow);
        if (fits) by_packs = Divider(width / pack, narrow);
    }
    // Where the access begins, in the operand.
    template <int size>
    __device__ std::int64_t at(int operand, std::int64_t access) const {
        if (places[operand].rank == 0 && width > 1) return access * size;
        const std::int64_t row = size > 1 ? by_packs(access) : by_row(access);
        return place_of(places[operand], row, narrow) + (access * size - row * width);
    }
};

// y = activation(gate) up
template <class T, int size, Activation activation>
__global__ __launch_bounds__(threads) void gate(Together<3> o, const T* gate, const T* up, T* y) {
    const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (i >= o.accesses) return;
    const auto g = load_elements<size>(gate + o.at<size>(0, i)), u = load_elements<size>(up + o.at<size>(1, i));
    Elements<T, size> result;
    for (int e = 0; e < size; ++e)
        result.element[e] =
            from_float<T>(activate<T, activation>(to_float(g.element[e])).value * to_float(u.element[e]));
    store_elements(y + o.at<size>(2, i), result);
}

// dgate = dy up activation'(gate), dup = dy activation(gate)
template <class T, int size, Activation activation>
__global__ __launch_bounds__(threads) void gate_gradient(Together<5> o, const T* dy, const T* gate, const T* up,
                                                         T* dgate, T* dup) {
    const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (i >= o.accesses) return;
    const auto d = load_elements<size>(dy + o.at<size>(0, i)), g = load_elements<size>(gate + o.at<size>(1, i)),
               u = load_elements<size>(up + o.at<size>(2, i));
    Elements<T, size> to_gate, to_up;
    for (int e = 0; e < size; ++e) {
        const ValueAndSlope a = activate<T, activation>(to_float(g.element[e]));
        const float gradient = to_float(d.element[e]);
        to_gate.element[e] = from_float<T>(gradient * to_float(u.element[e]) * a.slope);
        to_up.element[e] = from_float<T>(gradient * a.value);
    }
    store_elements(dgate + o.at<size>(3, i), to_gate);
    store_elements(dup + o.at<size>(4, i), to_up);
}

unsigned blocks_for(std::int64_t accesses) { return static_cast<unsigned>(divide_up(accesses, threads)); }

template <class T>
class Gated : public Kernel {
  public:
    explicit Gated(const KernelRequest& request) : activation_(activation_of(request)) {
        const Operand* list[] = {&request.inputs[0], &request.inputs[1], &request.outputs[0]};
        together_.plan(list, Pack<T>::size);
    }

    void run(const Launch& l) const override {
        const T *gates = l.in<T>(0), *up = l.in<T>(1);
        T* y = l.out<T>(0);
        Together<3> o = together_;
        if (o.accesses == 0) return;
        for_activation(activation_, [&]<Activation activation>() {
            constexpr int pack = Pack<T>::size;
            if (o.fits && aligned({gates, up, y})) {
                o.accesses /= pack;
                gate<T, pack, activation><<<blocks_for(o.accesses), threads, 0, stream_of(l)>>>(o, gates, up, y);
            } else {
                gate<T, 1, activation><<<blocks_for(o.accesses), threads, 0, stream_of(l)>>>(o, gates, up, y);
            }
        });
        launched("gated");
    }

  private:
    Activation activation_;
    Together<3> together_;
};

template <class T>
class GatedGradient : public Kernel {
  public:
    explicit GatedGradient(const KernelRequest& request) : activation_(activation_of(request)) {
        const Operand* list[] = {&request.inputs[0], &request.inputs[1], &request.inputs[2], &request.outputs[0],
                                 &request.outputs[1]};
        together_.plan(list, Pack<T>::size);
    }

    void run(const Launch& l) const override {
        const T *dy = l.in<T>(0), *gates = l.in<T>(1), *up = l.in<T>(2);
        T *dgate = l.out<T>(0), *dup = l.out<T>(1);
        Together<5> o = together_;
        if (o.accesses == 0) return;
        for_activation(activation_, [&]<Activation activation>() {
            constexpr int pack = Pack<T>::size;
            if (o.fits && aligned({dy, gates, up, dgate, dup})) {
                o.accesses /= pack;
                gate_gradient<T, pack, activation>
                    <<<blocks_for(o.accesses), threads, 0, stream_of(l)>>>(o, dy, gates, up, dgate, dup);
            } else {
                gate_gradient<T, 1, activation>
                    <<<blocks_for(o.accesses), threads, 0, stream_of(l)>>>(o, dy, gates, up, dgate, dup);
            }
        });
        launched("gated_gradient");
    }

  private:
    Activation activation_;
    Together<5> together_;
};

template <class T>
struct Rotation {
    const T* x;
    const float *cosines, *sines;
    T* y;
    Strided x_rows, y_rows;
    std::int64_t cosine_stride, sine_stride; // from position to position
    std::int64_t rows, positions;
    Divider by_row, by_heads, by_positions; // a thread to its row, a row to its place, a place to its sequence
    int pairs, width;
    float direction;
    bool narrow;
};

// The pair (x_i, x_{i+p}) turns by the angle of its position: (x cos - y sin, y cos + x sin). A thread takes `size`
// neighbouring pairs, or as many of the elements that stay as they are: y may be x itself.
template <class T, int size>
__global__ __launch_bounds__(threads) void rotate(Rotation<T> a) {
    const int turned = a.pairs / size, in_row = a.width / size - turned;
    const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    const std::int64_t row = a.by_row(i);
    if (row >= a.rows) return;
    const int part = static_cast<int>(i - row * in_row);
    const T* x = a.x + place_of(a.x_rows, row, a.narrow);
    T* y = a.y + place_of(a.y_rows, row, a.narrow);
    if (part >= turned) {
        store_elements(y + (part + turned) * size, load_elements<size>(x + (part + turned) * size));
        return;
    }
    const std::int64_t place = a.by_heads(row);
    const std::int64_t position = place - a.by_positions(place) * a.positions;
    const float *cosines = a.cosines + position * a.cosine_stride + part * size,
                *sines = a.sines + position * a.sine_stride + part * size;
    auto first = load_elements<size>(x + part * size), second = load_elements<size>(x + part * size + a.pairs);
    constexpr int table = size < 4 ? size : 4; // floats in an access to the tables
    for (int e = 0; e < size; e += table) {
        const auto cosine = load_elements<table>(cosines + e), sine = load_elements<table>(sines + e);
        for (int k = 0; k < table; ++k) {
            const float u = to_float(first.element[e + k]), v = to_float(second.element[e + k]);
            const float c = cosine.element[k], s = a.direction * sine.element[k];
            first.element[e + k] = from_float<T>(u * c - v * s);
            second.element[e + k] = from_float<T>(v * c + u * s);
        }
    }
    store_elements(y + part * size, first);
    store_elements(y + part * size + a.pairs, second);
}

template <class T>
class Rotary : public Kernel {
  public:
    explicit Rotary(const KernelRequest& request) {
        const Operand &x = request.inputs[0], &cosines = request.inputs[1], &sines = request.inputs[2];
        a_.x_rows = rows_of(x), a_.y_rows = rows_of(request.outputs[0]);
        a_.cosine_stride = cosines.strides[0], a_.sine_stride = sines.strides[0];
        a_.rows = a_.x_rows.count, a_.positions = x.type.shape[1];
        a_.pairs = static_cast<int>(width_of(cosines)), a_.width = static_cast<int>(width_of(x));
        a_.narrow = is_narrow(x.elements() + threads); // of the last block, some are beyond the end
        a_.by_heads = Divider(x.type.shape[2], a_.narrow), a_.by_positions = Divider(a_.positions, a_.narrow);
        a_.direction = request.attributes.flag("inverse") ? -1.0f : 1.0f;
        constexpr int pack = Pack<T>::size;
        const bool tables = a_.positions == 1 || (a_.cosine_stride % 4 == 0 && a_.sine_stride % 4 == 0);
        fits_ = tables && a_.pairs % pack == 0 && a_.width % pack == 0 && rows_fit(a_.x_rows, pack) &&
                rows_fit(a_.y_rows, pack);
    }

    void run(const Launch& l) const override {
        Rotation<T> a = a_;
        a.x = l.in<T>(0), a.cosines = l.in<float>(1), a.sines = l.in<float>(2), a.y = l.out<T>(0);
        if (a.rows == 0) return;
        constexpr int pack = Pack<T>::size;
        const std::int64_t in_row = a.width - a.pairs;
        if (fits_ && aligned({a.x, a.cosines, a.sines, a.y})) {
            a.by_row = Divider(in_row / pack, a.narrow);
            rotate<T, pack><<<blocks_for(a.rows * in_row / pack), threads, 0, stream_of(l)>>>(a);
        } else {
            a.by_row = Divider(in_row, a.narrow);
            rotate<T, 1><<<blocks_for(a.rows * in_row), threads, 0, stream_of(l)>>>(a);
        }
        launched("rotary");
    }

  private:
    Rotation<T> a_{};
    bool fits_ = false;
};

} // namespace

void add_activation_kernels(KernelTable& table) {
    add_floating<Gated>(table, "gated");
    add_floating<GatedGradient>(table, "gated_gradient");
    add_floating<Rotary>(table, "rotary");
}

} // namespace tutti::backend::cuda
