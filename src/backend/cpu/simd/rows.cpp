// Functions of one row: normalisation, softmax, cross-entropy, rotary embedding, dropout.
#include "backend/cpu/simd/kept.h"
#include "backend/cpu/simd/parts.h"

namespace tutti::backend::cpu::TUTTI_ISA {
namespace {

template <class T>
void widen(const T* from, float* to, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = load(&from[i]);
}

template <class T>
void narrow(const float* from, T* to, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) store(&to[i], from[i]);
}

// ---- Normalisation

template <class T>
void layer_norm(const T* x, const T* scale, const T* shift, T* y, std::int64_t width, float eps, float* mean,
                float* rstd) {
    const float inverse = 1.0f / static_cast<float>(width);
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < width; ++i) sum += load(&x[i]);
    const float m = sum * inverse;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < width; ++i) squares += (load(&x[i]) - m) * (load(&x[i]) - m);
    const float r = 1.0f / __builtin_sqrtf(squares * inverse + eps);
    *mean = m;
    *rstd = r;
    if (scale) {
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i)
            store(&y[i], (load(&x[i]) - m) * r * load(&scale[i]) + load(&shift[i]));
    } else {
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i) store(&y[i], (load(&x[i]) - m) * r);
    }
}

// y[i] = f(i) (+ residual[i])
template <class T, class Function>
TUTTI_INLINE void write_row(const T* residual, T* y, std::int64_t width, Function f) {
    if (residual) {
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i) store(&y[i], f(i) + load(&residual[i]));
    } else {
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i) store(&y[i], f(i));
    }
}

// dx = rstd (g - mean(g) - n mean(g n)) with g = dy scale and n the normalised row
template <class T>
void layer_norm_input_gradient(const T* dy, const T* x, const T* scale, const T* residual, T* dx, std::int64_t width,
                               float mean, float rstd) {
    const float inverse = 1.0f / static_cast<float>(width);
    float sum = 0, projection = 0;
    auto rest = [&](float g, float value)
                    [[gnu::always_inline]] { return rstd * (g - sum - (value - mean) * rstd * projection); };
    if (scale) {
#pragma omp simd reduction(+ : sum, projection)
        for (std::int64_t i = 0; i < width; ++i) {
            const float g = load(&dy[i]) * load(&scale[i]);
            sum += g;
            projection += g * (load(&x[i]) - mean);
        }
        sum *= inverse, projection *= inverse * rstd;
        write_row(residual, dx, width, [&](std::int64_t i) [[gnu::always_inline]] {
            return rest(load(&dy[i]) * load(&scale[i]), load(&x[i]));
        });
    } else {
#pragma omp simd reduction(+ : sum, projection)
        for (std::int64_t i = 0; i < width; ++i) {
            sum += load(&dy[i]);
            projection += load(&dy[i]) * (load(&x[i]) - mean);
        }
        sum *= inverse, projection *= inverse * rstd;
        write_row(residual, dx, width,
                  [&](std::int64_t i) [[gnu::always_inline]] { return rest(load(&dy[i]), load(&x[i])); });
    }
}

template <class T>
void rms_norm(const T* x, const T* scale, T* y, std::int64_t width, float eps, float offset, float* rstd) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < width; ++i) squares += load(&x[i]) * load(&x[i]);
    const float r = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + eps);
    *rstd = r;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) store(&y[i], load(&x[i]) * r * (offset + load(&scale[i])));
}

template <class T>
void rms_norm_input_gradient(const T* dy, const T* x, const T* scale, const T* residual, T* dx, std::int64_t width,
                             float rstd, float offset) {
    float projection = 0;
#pragma omp simd reduction(+ : projection)
    for (std::int64_t i = 0; i < width; ++i) projection += load(&dy[i]) * (offset + load(&scale[i])) * load(&x[i]);
    projection *= rstd * rstd / static_cast<float>(width);
    write_row(residual, dx, width, [&](std::int64_t i) [[gnu::always_inline]] {
        return rstd * (load(&dy[i]) * (offset + load(&scale[i])) - load(&x[i]) * projection);
    });
}

// ---- One row's share of sums over rows

template <class T>
void add_row(const T* x, float* sum, std::int64_t width) {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) sum[i] += load(&x[i]);
}

template <class T>
void add_layer_norm_row(const T* dy, const T* x, float mean, float rstd, float* dscale, float* dshift,
                        std::int64_t width) {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
        dscale[i] += load(&dy[i]) * ((load(&x[i]) - mean) * rstd);
        dshift[i] += load(&dy[i]);
    }
}

template <class T>
void add_rms_norm_row(const T* dy, const T* x, float rstd, float* dscale, std::int64_t width) {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) dscale[i] += load(&dy[i]) * (load(&x[i]) * rstd);
}

template <class T>
double squared_sum(const T* x, std::int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<double>(load(&x[i]));
        sum += value * value;
    }
    return sum;
}

// ---- Softmax

template <class T>
TUTTI_INLINE float maximum(const T* x, std::int64_t width) {
    float most = -__builtin_inff();
#pragma omp simd reduction(max : most)
    for (std::int64_t i = 0; i < width; ++i) {
        const float value = load(&x[i]);
        most = value > most ? value : most;
    }
    return most;
}

template <class T>
void softmax(const T* x, T* y, std::int64_t width) {
    const float most = maximum(x, width);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < width; ++i) sum += exponential_of_negative(load(&x[i]) - most);
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) store(&y[i], exponential_of_negative(load(&x[i]) - most) * inverse);
}

template <class T>
void softmax_gradient(const T* dy, const T* y, T* dx, std::int64_t width) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < width; ++i) sum += load(&dy[i]) * load(&y[i]);
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) store(&dx[i], load(&y[i]) * (load(&dy[i]) - sum));
}

// In pieces that stay in the nearest cache, so that long rows are read from memory once.
template <class T>
float log_sum_exp(const T* x, std::int64_t width) {
    constexpr std::int64_t piece = 2048;
    float most = -__builtin_inff();
    double total = 0; // of e^(x - most)
    for (std::int64_t begin = 0; begin < width; begin += piece) {
        const std::int64_t count = width - begin < piece ? width - begin : piece;
        const T* part = x + begin;
        const float part_most = maximum(part, count);
        if (part_most > most) {
            total *= static_cast<double>(exponential_of_negative(most - part_most));
            most = part_most;
        }
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < count; ++i) sum += exponential_of_negative(load(&part[i]) - most);
        total += static_cast<double>(sum);
    }
    return most + static_cast<float>(__builtin_log(total));
}

template <class T>
void cross_entropy_gradient(const T* x, T* dx, std::int64_t width, std::int64_t target, float lse, float scale) {
    const float at_target = target < 0 ? 0 : load(&x[target]);
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) store(&dx[i], exponential_of_negative(load(&x[i]) - lse) * scale);
    if (target >= 0) store(&dx[target], (exponential_of_negative(at_target - lse) - 1) * scale);
}

// ---- Rotary embedding

template <class T>
void rotary(const T* x, const float* cos, const float* sin, T* y, std::int64_t pairs, std::int64_t width, float sign) {
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) {
        const float first = load(&x[i]), second = load(&x[i + pairs]), s = sign * sin[i];
        store(&y[i], first * cos[i] - second * s);
        store(&y[i + pairs], second * cos[i] + first * s);
    }
    for (std::int64_t i = 2 * pairs; i < width; ++i) y[i] = x[i];
}

// ---- Dropout

template <class T>
void dropout(const T* x, T* y, std::int64_t count, std::uint64_t first, const DropoutRow& how) {
    constexpr int strip = 64; // blocks of four draws
    float by_word[4][strip], factor[4 * strip];
    for (std::int64_t done = 0; done < count;) {
        const std::uint64_t at = first + static_cast<std::uint64_t>(done);
        draw_kept<strip>(
            how, [block = at / 4](int i) { return block + static_cast<std::uint64_t>(i); }, by_word);
        for (int i = 0; i < strip; ++i)
            for (int word = 0; word < 4; ++word) factor[4 * i + word] = by_word[word][i];
        const auto skipped = static_cast<std::int64_t>(at % 4);
        const std::int64_t here = count - done < 4 * strip - skipped ? count - done : 4 * strip - skipped;
#pragma omp simd
        for (std::int64_t i = 0; i < here; ++i) store(&y[done + i], load(&x[done + i]) * factor[skipped + i]);
        done += here;
    }
}

} // namespace

template <class T>
RowFunctions<T> row_functions() {
    return {widen<T>,
            narrow<T>,
            layer_norm<T>,
            layer_norm_input_gradient<T>,
            rms_norm<T>,
            rms_norm_input_gradient<T>,
            add_row<T>,
            add_layer_norm_row<T>,
            add_rms_norm_row<T>,
            softmax<T>,
            softmax_gradient<T>,
            log_sum_exp<T>,
            cross_entropy_gradient<T>,
            rotary<T>,
            squared_sum<T>,
            dropout<T>};
}
template RowFunctions<float> row_functions();
template RowFunctions<BFloat16> row_functions();

} // namespace tutti::backend::cpu::TUTTI_ISA
