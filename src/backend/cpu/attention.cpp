// Attention and its gradient, and rotary embedding: how the work of simd/attention.cpp is shared among threads.
#include "backend/cpu/kernels.h"
#include "backend/random_stream.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

namespace tutti::backend::cpu {
namespace {

// Sizes, strides and attributes of one attention, forward or backward.
struct Shapes {
    std::int64_t batch, queries, keys, heads, groups, head, value_head;
    Shape q_strides, k_strides, v_strides, mask_strides; // the mask's are 0 where it is broadcast
    bool has_mask = false, mask_is_narrow = false, causal;
    float scale;
    DropoutRow drop;
    bool dropout;
    std::int64_t first_sample, first_head;
    std::uint64_t source;

    Shapes(const KernelRequest& request, const Operand& q, const Operand& k, const Operand& v, const Operand* mask)
        : batch(q.type.shape[0]), queries(q.type.shape[1]), keys(k.type.shape[1]), heads(q.type.shape[2]),
          groups(k.type.shape[2]), head(q.type.shape[3]), value_head(v.type.shape[3]), q_strides(q.strides),
          k_strides(k.strides), v_strides(v.strides), causal(request.attributes.flag("causal")),
          scale(static_cast<float>(request.attributes.real("scale"))),
          first_sample(request.attributes.integer("first_sample", 0)),
          first_head(request.attributes.integer("first_head", 0)), source(hash_of(request.source)) {
        const double p = request.attributes.real("dropout", 0);
        dropout = p > 0;
        drop.threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
        drop.scale = static_cast<float>(1 / (1 - p));
        if (mask == nullptr) return;
        has_mask = true;
        mask_is_narrow = mask->type.dtype == DType::bfloat16;
        if (!mask_is_narrow && mask->type.dtype != DType::float32) fail_unsupported(backend_name, request);
        for (int d = 0; d < 4; ++d) mask_strides.push_back(mask->type.shape[d] == 1 ? 0 : mask->strides[d]);
    }

    std::int64_t blocks() const { return (queries + attention_block - 1) / attention_block; }

    // What forward and backward have in common for one block of queries of one head.
    template <class T>
    AttentionTask task(const T* q, const T* k, const T* v, const std::byte* mask, const Launch& launch, std::int64_t b,
                       std::int64_t h, std::int64_t block) const {
        const std::int64_t first = block * attention_block, group = h / (heads / groups);
        AttentionTask t{};
        t.q = q + b * q_strides[0] + first * q_strides[1] + h * q_strides[2];
        t.k = k + b * k_strides[0] + group * k_strides[2];
        t.v = v + b * v_strides[0] + group * v_strides[2];
        t.q_stride = q_strides[1], t.k_stride = k_strides[1], t.v_stride = v_strides[1];
        if (has_mask) {
            t.mask = mask + (b * mask_strides[0] + h * mask_strides[1]) * (mask_is_narrow ? 2 : 4);
            t.mask_query_stride = mask_strides[2], t.mask_key_stride = mask_strides[3];
            t.mask_is_narrow = mask_is_narrow;
        }
        t.first_query = first, t.queries = std::min(attention_block, queries - first);
        t.all_queries = queries, t.keys = keys, t.head = head, t.value_head = value_head;
        t.causal = causal;
        t.scale = scale;
        t.dropout = dropout;
        if (dropout) {
            t.drop = drop;
            t.drop.key = key_of(*launch.scalars);
            const std::int64_t sample = launch.scalars->first_sample + launch.samples_before + first_sample + b;
            t.drop.stream = mix_bits(source, static_cast<std::uint64_t>(sample));
            t.first_element = static_cast<std::uint64_t>((first_head + h) * queries * keys);
        }
        return t;
    }
};

template <class T>
const AttentionFunctions& functions() {
    return sizeof(T) == sizeof(float) ? simd().float_attention : simd().bfloat16_attention;
}

const Operand* optional_input(const KernelRequest& request, std::size_t i) {
    return request.inputs.size() > i ? &request.inputs[i] : nullptr;
}

template <class T>
class Attention : public Kernel {
  public:
    explicit Attention(const KernelRequest& request)
        : s_(request, request.inputs[0], request.inputs[1], request.inputs[2], optional_input(request, 3)),
          out_strides_(request.outputs[0].strides), threads_(omp_get_max_threads()) {}

    Bytes workspace() const override { return {threads_ * tile_floats() * static_cast<std::int64_t>(sizeof(float))}; }

    // Blocks of queries are independent; the later ones see more keys, so threads take the next when they are ready.
    void run(const Launch& l) const override {
        auto* tiles = reinterpret_cast<float*>(l.workspace);
        const std::int64_t tasks = s_.batch * s_.heads * s_.blocks();
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
        for (std::int64_t i = 0; i < tasks; ++i) {
            const std::int64_t block = i % s_.blocks(), h = i / s_.blocks() % s_.heads, b = i / s_.blocks() / s_.heads;
            AttentionTask t =
                s_.task(l.in<T>(0), l.in<T>(1), l.in<T>(2), s_.has_mask ? l.inputs[3] : nullptr, l, b, h, block);
            t.out = l.out<T>(0) + b * out_strides_[0] + t.first_query * out_strides_[1] + h * out_strides_[2];
            t.out_stride = out_strides_[1];
            t.lse = l.out<float>(1) + (b * s_.heads + h) * s_.queries + t.first_query;
            t.tiles = tiles + omp_get_thread_num() * tile_floats();
            functions<T>().forward(t);
        }
    }

  private:
    std::int64_t tile_floats() const { return attention_tile_floats(s_.head, s_.value_head); }
    Shapes s_;
    Shape out_strides_;
    int threads_;
};

// A key head's gradients are summed over its query heads and their blocks by one thread, in order, in float.
template <class T>
class AttentionGradient : public Kernel {
  public:
    explicit AttentionGradient(const KernelRequest& request)
        : s_(request, request.inputs[1], request.inputs[2], request.inputs[3], optional_input(request, 6)),
          gradient_strides_(request.inputs[0].strides), saved_strides_(request.inputs[4].strides),
          lse_(request.inputs[5]), dq_strides_(request.outputs[0].strides), dk_strides_(request.outputs[1].strides),
          dv_strides_(request.outputs[2].strides), threads_(omp_get_max_threads()) {}

    Bytes workspace() const override { return {threads_ * floats() * static_cast<std::int64_t>(sizeof(float))}; }

    void run(const Launch& l) const override {
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
        for (std::int64_t i = 0; i < s_.batch * s_.groups; ++i)
            run_key_head(l, i / s_.groups, i % s_.groups,
                         reinterpret_cast<float*>(l.workspace) + omp_get_thread_num() * floats());
    }

  private:
    void run_key_head(const Launch& l, std::int64_t b, std::int64_t group, float* workspace) const {
        float* dk = workspace + attention_tile_floats(s_.head, s_.value_head);
        float* dv = dk + s_.keys * s_.head;
        std::fill_n(dk, s_.keys * (s_.head + s_.value_head), 0.0f);
        const std::int64_t members = s_.heads / s_.groups;
        for (std::int64_t h = group * members; h < (group + 1) * members; ++h)
            for (std::int64_t block = 0; block < s_.blocks(); ++block) {
                AttentionTask t =
                    s_.task(l.in<T>(1), l.in<T>(2), l.in<T>(3), s_.has_mask ? l.inputs[6] : nullptr, l, b, h, block);
                auto at = [&](const Shape& strides) {
                    return b * strides[0] + t.first_query * strides[1] + h * strides[2];
                };
                float lse[attention_block];
                for (std::int64_t i = 0; i < t.queries; ++i)
                    lse[i] = l.in<float>(5)[lse_[(b * s_.heads + h) * s_.queries + t.first_query + i]];
                t.lse = lse;
                t.out_gradient = l.in<T>(0) + at(gradient_strides_);
                t.out_gradient_stride = gradient_strides_[1];
                t.out_saved = l.in<T>(4) + at(saved_strides_);
                t.out_saved_stride = saved_strides_[1];
                t.q_gradient = l.out<T>(0) + at(dq_strides_);
                t.q_gradient_stride = dq_strides_[1];
                t.k_gradient = dk, t.v_gradient = dv;
                t.tiles = workspace;
                functions<T>().backward(t);
            }
        auto write = [&](const float* from, T* to, const Shape& strides, std::int64_t width) {
            for (std::int64_t j = 0; j < s_.keys; ++j)
                simd().rows<T>().narrow(from + j * width, to + b * strides[0] + j * strides[1] + group * strides[2],
                                        width);
        };
        write(dk, l.out<T>(1), dk_strides_, s_.head);
        write(dv, l.out<T>(2), dv_strides_, s_.value_head);
    }

    std::int64_t floats() const {
        const std::int64_t all = attention_tile_floats(s_.head, s_.value_head) + s_.keys * (s_.head + s_.value_head);
        return (all + 15) / 16 * 16;
    }

    Shapes s_;
    Shape gradient_strides_, saved_strides_;
    Scalars lse_;
    Shape dq_strides_, dk_strides_, dv_strides_;
    int threads_;
};

template <class T>
class Rotary : public Kernel {
  public:
    explicit Rotary(const KernelRequest& request)
        : x_(request.inputs[0]), cos_(request.inputs[1]), sin_(request.inputs[2]), y_(request.outputs[0]),
          positions_(request.inputs[0].type.shape[1]), heads_(request.inputs[0].type.shape[2]),
          sign_(request.attributes.flag("inverse") ? -1.0f : 1.0f) {}

    void run(const Launch& l) const override {
        parallel_for(x_.count() / heads_, heads_ * x_.width(), [&](std::int64_t place) {
            const std::int64_t t = place % positions_;
            for (std::int64_t row = place * heads_; row < (place + 1) * heads_; ++row)
                simd().rows<T>().rotary(l.in<T>(0) + x_[row], l.in<float>(1) + cos_[t], l.in<float>(2) + sin_[t],
                                        l.out<T>(0) + y_[row], cos_.width(), x_.width(), sign_);
        });
    }

  private:
    Rows x_, cos_, sin_, y_;
    std::int64_t positions_, heads_;
    float sign_;
};

} // namespace

void add_attention_kernels(KernelTable& table) {
    add_floating<Attention>(table, "attention");
    add_floating<AttentionGradient>(table, "attention_gradient");
    add_floating<Rotary>(table, "rotary");
}

} // namespace tutti::backend::cpu
