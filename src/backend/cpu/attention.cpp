// Attention and its gradient, and rotary embedding: how the work of simd/attention.cpp is shared among threads.
#include "backend/attention.h"
#include "backend/cpu/kernels.h"
#include "backend/random_stream.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

namespace tutti::backend::cpu {
namespace {

// An operand that broadcasts to [b, h, t, s]: its strides, 0 where it does.
struct Broadcast {
    std::optional<std::size_t> input = {};
    Shape strides = {};
    bool narrow = false;

    Broadcast() = default;
    Broadcast(const KernelRequest& request, std::optional<std::size_t> place) : input(place) {
        if (!input) return;
        const Operand& operand = request.inputs[*input];
        narrow = operand.type.dtype == DType::bfloat16;
        if (!narrow && operand.type.dtype != DType::float32) fail_unsupported(backend_name, request);
        strides = broadcast_strides(operand);
    }

    static Shape broadcast_strides(const Operand& operand) {
        Shape strides;
        for (int d = 0; d < 4; ++d) strides.push_back(operand.type.shape[d] == 1 ? 0 : operand.strides[d]);
        return strides;
    }

    ScoreNumbers<const void> of(const Launch& l, std::int64_t b, std::int64_t h) const {
        if (!input) return {};
        return {l.inputs[*input] + (b * strides[0] + h * strides[1]) * (narrow ? 2 : 4), strides[2], strides[3],
                narrow};
    }
};

// Sizes, strides and attributes of one attention, forward or backward.
struct Shapes {
    std::size_t first; // of the inputs: q, and behind it k and v
    std::int64_t batch, queries, keys, heads, groups, head, value_head;
    Shape q_strides, k_strides, v_strides;
    AttentionInputs given;
    AttentionPositions positions;
    Broadcast mask, bias;
    std::int64_t query_documents_stride = 0, key_documents_stride = 0; // of a sample
    float scale, soft_cap;
    DropoutRow drop;
    bool dropout;
    std::int64_t first_sample, first_head;
    std::uint64_t source;

    // `required`: inputs in front of the optional ones.
    Shapes(const KernelRequest& request, std::size_t first_input, std::size_t required)
        : Shapes(request, first_input, required, request.inputs[first_input], request.inputs[first_input + 1],
                 request.inputs[first_input + 2]) {}

    std::int64_t blocks() const { return (queries + attention_block - 1) / attention_block; }

    // What forward and backward have in common for one block of queries of one head.
    template <class T>
    AttentionTask task(const Launch& l, std::int64_t b, std::int64_t h, std::int64_t block) const {
        const std::int64_t first_query = block * attention_block, group = h / (heads / groups);
        AttentionTask t{};
        t.q = l.in<T>(first) + b * q_strides[0] + first_query * q_strides[1] + h * q_strides[2];
        t.k = l.in<T>(first + 1) + b * k_strides[0] + group * k_strides[2];
        t.v = l.in<T>(first + 2) + b * v_strides[0] + group * v_strides[2];
        t.q_stride = q_strides[1], t.k_stride = k_strides[1], t.v_stride = v_strides[1];
        t.mask = mask.of(l, b, h), t.bias = bias.of(l, b, h);
        t.first_query = first_query, t.queries = std::min(attention_block, queries - first_query);
        t.keys = keys, t.head = head, t.value_head = value_head;
        const Range seen = positions.seen_by(first_query, t.queries);
        t.begin = seen.begin, t.end = seen.end;
        t.place = positions.first_query + first_query - positions.first_key;
        t.window = positions.window, t.causal = positions.causal;
        if (given.documents) {
            t.query_documents = l.in<std::int32_t>(*given.documents) + b * query_documents_stride + first_query;
            t.key_documents = l.in<std::int32_t>(*given.documents + 1) + b * key_documents_stride;
        }
        t.scale = scale, t.soft_cap = soft_cap;
        t.has_sink = given.sinks.has_value();
        if (t.has_sink) t.sink = sink(l, h);
        t.dropout = dropout;
        if (dropout) {
            t.drop = drop;
            t.drop.key = key_of(*l.scalars);
            const std::int64_t sample = l.scalars->first_sample + l.samples_before + first_sample + b;
            t.drop.stream = mix_bits(source, static_cast<std::uint64_t>(sample));
            const std::int64_t row = (first_head + h) * positions.whole_queries + positions.row(first_query);
            t.first_element = static_cast<std::uint64_t>(row * positions.whole_keys + positions.first_key);
            t.whole_keys = positions.whole_keys;
        }
        return t;
    }

    float sink(const Launch& l, std::int64_t h) const {
        return sinks_are_narrow ? float(l.in<BFloat16>(*given.sinks)[h]) : l.in<float>(*given.sinks)[h];
    }

  private:
    Shapes(const KernelRequest& request, std::size_t first_input, std::size_t required, const Operand& q,
           const Operand& k, const Operand& v)
        : first(first_input), batch(q.type.shape[0]), queries(q.type.shape[1]), keys(k.type.shape[1]),
          heads(q.type.shape[2]), groups(k.type.shape[2]), head(q.type.shape[3]), value_head(v.type.shape[3]),
          q_strides(q.strides), k_strides(k.strides), v_strides(v.strides),
          given(request.attributes, required, request.inputs.size()), positions(request.attributes, queries, keys),
          mask(request, given.mask), bias(request, given.bias),
          scale(static_cast<float>(request.attributes.real("scale"))),
          soft_cap(static_cast<float>(request.attributes.real("soft_cap", 0))),
          first_sample(request.attributes.integer("first_sample", 0)),
          first_head(request.attributes.integer("first_head", 0)), source(hash_of(request.source)) {
        expect_attributes(backend_name, request, attention_attributes());
        const double p = request.attributes.real("dropout", 0);
        dropout = p > 0;
        drop.threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
        drop.scale = static_cast<float>(1 / (1 - p));
        if (given.sinks) {
            const DType dtype = request.inputs[*given.sinks].type.dtype;
            sinks_are_narrow = dtype == DType::bfloat16;
            if (!sinks_are_narrow && dtype != DType::float32) fail_unsupported(backend_name, request);
        }
        if (!given.documents) return;
        query_documents_stride = request.inputs[*given.documents].strides[0];
        key_documents_stride = request.inputs[*given.documents + 1].strides[0];
    }

    bool sinks_are_narrow = false;
};

template <class T>
const AttentionFunctions& functions() {
    return sizeof(T) == sizeof(float) ? simd().float_attention : simd().bfloat16_attention;
}

template <class T>
class Attention : public Kernel {
  public:
    explicit Attention(const KernelRequest& request)
        : s_(request, 0, 3), out_strides_(request.outputs[0].strides), threads_(omp_get_max_threads()) {}

    Bytes workspace() const override { return {threads_ * tile_floats() * static_cast<std::int64_t>(sizeof(float))}; }

    // Blocks of queries are independent; the later ones see more keys, so threads take the next when they are ready.
    void run(const Launch& l) const override {
        auto* tiles = reinterpret_cast<float*>(l.workspace);
        const std::int64_t tasks = s_.batch * s_.heads * s_.blocks();
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
        for (std::int64_t i = 0; i < tasks; ++i) {
            const std::int64_t block = i % s_.blocks(), h = i / s_.blocks() % s_.heads, b = i / s_.blocks() / s_.heads;
            AttentionTask t = s_.task<T>(l, b, h, block);
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

// Everything is summed by one thread, in order, in float: a key head's gradients over its query heads and their blocks,
// and in a pass of its own each part of the bias over all that share it.
template <class T>
class AttentionGradient : public Kernel {
  public:
    explicit AttentionGradient(const KernelRequest& request)
        : s_(request, 1, 6), gradient_strides_(request.inputs[0].strides), saved_strides_(request.inputs[4].strides),
          lse_(request.inputs[5]), dq_strides_(request.outputs[0].strides), dk_strides_(request.outputs[1].strides),
          dv_strides_(request.outputs[2].strides), threads_(omp_get_max_threads()) {
        std::size_t next = 3;
        auto take = [&](std::string_view name) -> std::optional<std::size_t> {
            if (!wants_gradient(request.attributes, name)) return std::nullopt;
            if (request.outputs[next].type.dtype != DType::float32) fail_unsupported(backend_name, request);
            return next++;
        };
        dbias_ = take("bias");
        dsinks_ = take("sinks");
        if (!dbias_) return;
        dbias_shape_ = request.outputs[*dbias_].type.shape;
        dbias_strides_ = Broadcast::broadcast_strides(request.outputs[*dbias_]);
    }

    Bytes workspace() const override { return {threads_ * floats() * static_cast<std::int64_t>(sizeof(float))}; }

    void run(const Launch& l) const override {
        auto workspace = [&] { return reinterpret_cast<float*>(l.workspace) + omp_get_thread_num() * floats(); };
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
        for (std::int64_t i = 0; i < s_.batch * s_.groups; ++i)
            run_key_head(l, i / s_.groups, i % s_.groups, workspace());
        if (dbias_) {
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
            for (std::int64_t i = 0; i < bias_parts(); ++i) run_bias_part(l, i, workspace());
        }
        if (dsinks_) {
#pragma omp parallel for num_threads(threads_)
            for (std::int64_t h = 0; h < s_.heads; ++h) run_sink(l, h);
        }
    }

  private:
    // One block of queries of one head; `lse` has room for its rows.
    AttentionTask task(const Launch& l, std::int64_t b, std::int64_t h, std::int64_t block, float* lse,
                       float* tiles) const {
        AttentionTask t = s_.task<T>(l, b, h, block);
        auto at = [&](const Shape& strides) { return b * strides[0] + t.first_query * strides[1] + h * strides[2]; };
        for (std::int64_t i = 0; i < t.queries; ++i)
            lse[i] = l.in<float>(5)[lse_[(b * s_.heads + h) * s_.queries + t.first_query + i]];
        t.lse = lse;
        t.out_gradient = l.in<T>(0) + at(gradient_strides_);
        t.out_gradient_stride = gradient_strides_[1];
        t.out_saved = l.in<T>(4) + at(saved_strides_);
        t.out_saved_stride = saved_strides_[1];
        t.q_gradient = l.out<T>(0) + at(dq_strides_);
        t.q_gradient_stride = dq_strides_[1];
        t.tiles = tiles;
        return t;
    }

    void run_key_head(const Launch& l, std::int64_t b, std::int64_t group, float* workspace) const {
        float* dk = workspace + attention_tile_floats(s_.head, s_.value_head);
        float* dv = dk + s_.keys * s_.head;
        std::fill_n(dk, s_.keys * (s_.head + s_.value_head), 0.0f);
        const std::int64_t members = s_.heads / s_.groups;
        for (std::int64_t h = group * members; h < (group + 1) * members; ++h)
            for (std::int64_t block = 0; block < s_.blocks(); ++block) {
                float lse[attention_block];
                AttentionTask t = task(l, b, h, block, lse, workspace);
                t.k_gradient = dk, t.v_gradient = dv;
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

    // Parts of the bias that no two blocks of queries share: those of its samples, heads, and blocks of its rows.
    std::int64_t bias_blocks() const { return dbias_shape_[2] == 1 ? 1 : s_.blocks(); }
    std::int64_t bias_parts() const { return dbias_shape_[0] * dbias_shape_[1] * bias_blocks(); }

    void run_bias_part(const Launch& l, std::int64_t part, float* tiles) const {
        const std::int64_t block = part % bias_blocks(), head = part / bias_blocks() % dbias_shape_[1],
                           sample = part / bias_blocks() / dbias_shape_[1];
        const Shape& strides = dbias_strides_;
        float* sums = l.out<float>(*dbias_) + sample * strides[0] + head * strides[1];
        const std::int64_t rows =
            dbias_shape_[2] == 1 ? 1 : std::min(attention_block, s_.queries - block * attention_block);
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < dbias_shape_[3]; ++j)
                sums[(block * attention_block + i) * strides[2] + j * strides[3]] = 0;
        auto range = [](std::int64_t size, std::int64_t own, std::int64_t all) {
            return size == 1 ? Range{0, all} : Range{own, own + 1};
        };
        const Range samples = range(dbias_shape_[0], sample, s_.batch), heads = range(dbias_shape_[1], head, s_.heads),
                    blocks = range(dbias_shape_[2], block, s_.blocks());
        for (std::int64_t b = samples.begin; b < samples.end; ++b)
            for (std::int64_t h = heads.begin; h < heads.end; ++h)
                for (std::int64_t q = blocks.begin; q < blocks.end; ++q) {
                    float lse[attention_block];
                    AttentionTask t = task(l, b, h, q, lse, tiles);
                    t.bias_gradient = {sums, strides[2], strides[3]};
                    functions<T>().bias_backward(t);
                }
    }

    // - sum over samples and queries of e^(sink - lse) dout out
    void run_sink(const Launch& l, std::int64_t h) const {
        const float sink = s_.sink(l, h);
        double sum = 0;
        for (std::int64_t b = 0; b < s_.batch; ++b)
            for (std::int64_t i = 0; i < s_.queries; ++i) {
                const float lse = l.in<float>(5)[lse_[(b * s_.heads + h) * s_.queries + i]];
                if (std::isinf(lse)) continue;
                auto row = [&](std::size_t input, const Shape& strides) {
                    return l.in<T>(input) + b * strides[0] + i * strides[1] + h * strides[2];
                };
                const T *gradient = row(0, gradient_strides_), *out = row(4, saved_strides_);
                double delta = 0;
                for (std::int64_t c = 0; c < s_.value_head; ++c)
                    delta += static_cast<double>(float(gradient[c])) * static_cast<double>(float(out[c]));
                sum -= static_cast<double>(std::exp(sink - lse)) * delta;
            }
        l.out<float>(*dsinks_)[h] = static_cast<float>(sum);
    }

    std::int64_t floats() const {
        const std::int64_t all = attention_tile_floats(s_.head, s_.value_head) + s_.keys * (s_.head + s_.value_head);
        return (all + 15) / 16 * 16;
    }

    Shapes s_;
    Shape gradient_strides_, saved_strides_;
    Scalars lse_;
    Shape dq_strides_, dk_strides_, dv_strides_;
    std::optional<std::size_t> dbias_, dsinks_; // outputs
    Shape dbias_shape_, dbias_strides_;
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
