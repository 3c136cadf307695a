// Attention of one block of queries against all keys it sees, a block of keys at a time, in the manner of Flash
// Attention: scores never leave the cache.
//
// Tiles hold keys in rows and queries in vector lanes: the running maximum, the sum and every exponential are then
// plain vertical operations, and only the block of queries is ever transposed:
//
//        queries ->                         S' = K Q'         (Q' packed once per block)
//   keys [ S'    ]   O' = V' P'             P' = exp(S' - running maximum)
//    |   [       ]                          O' rescaled as the maximum grows
#include "backend/cpu/simd/kept.h"
#include "backend/cpu/simd/matmul.h"
#include "backend/cpu/simd/parts.h"

namespace tutti::backend::cpu::TUTTI_ISA {
namespace {

constexpr std::int64_t block = attention_block;
constexpr float infinity = __builtin_inff();

// Rows [0, count) of x made dense floats, times factor.
template <class T>
void copy_rows(const void* x, std::int64_t stride, std::int64_t count, std::int64_t width, float factor, float* to) {
    for (std::int64_t i = 0; i < count; ++i) {
        const T* row = static_cast<const T*>(x) + i * stride;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) to[i * width + c] = load(&row[c]) * factor;
    }
}

// [count, width] to [width, block]; lanes beyond count are zero.
void transpose_rows(const float* rows, std::int64_t count, std::int64_t width, float* to) {
    for (std::int64_t c = 0; c < width; ++c) {
        float* lane = to + c * block;
        for (std::int64_t i = 0; i < count; ++i) lane[i] = rows[i * width + c];
        for (std::int64_t i = count; i < block; ++i) lane[i] = 0;
    }
}

// The tiles of one thread, cut from its workspace.
struct Tiles {
    float *queries, *queries_across, *keys, *values;           // [block, d] [d, block] [block, d] [block, e]
    float *gradient, *gradient_across, *out_across, *dqueries; // [block, e] [e, block] [e, block] [block, d]
    float *scores, *dscores, *kept, *slopes;                   // [keys, queries]
    float *most, *sum, *scale, *lse, *delta;                   // [queries]

    explicit Tiles(const AttentionTask& t) {
        float* next = t.tiles;
        auto take = [&](std::int64_t rows) {
            float* taken = next;
            next += rows * block;
            return taken;
        };
        queries = take(t.head), queries_across = take(t.head), keys = take(t.head), dqueries = take(t.head);
        values = take(t.value_head), gradient = take(t.value_head), gradient_across = take(t.value_head);
        out_across = take(t.value_head);
        scores = take(block), dscores = take(block), kept = take(block), slopes = take(block);
        most = take(1), sum = take(1), scale = take(1), lse = take(1), delta = take(1);
    }
};

template <class N>
void add_numbers_of(const AttentionTask& t, const ScoreNumbers<const void>& numbers, std::int64_t first,
                    std::int64_t count, float* scores) {
    const N* from =
        static_cast<const N*>(numbers.data) + t.first_query * numbers.query_stride + first * numbers.key_stride;
    for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t i = 0; i < t.queries; ++i)
            scores[j * block + i] += load(&from[i * numbers.query_stride + j * numbers.key_stride]);
}

void add_numbers(const AttentionTask& t, const ScoreNumbers<const void>& numbers, std::int64_t first,
                 std::int64_t count, float* scores) {
    if (numbers.data != nullptr && numbers.narrow) add_numbers_of<BFloat16>(t, numbers, first, count, scores);
    if (numbers.data != nullptr && !numbers.narrow) add_numbers_of<float>(t, numbers, first, count, scores);
}

// S' to c tanh(S' / c); the slope is the derivative, 1 - tanh^2.
void cap_scores(const AttentionTask& t, const Tiles& tiles, std::int64_t count) {
    const float cap = t.soft_cap, inverse = 1 / cap;
#pragma omp simd
    for (std::int64_t i = 0; i < count * block; ++i) {
        const float bent = hyperbolic_tangent(tiles.scores[i] * inverse);
        tiles.scores[i] = cap * bent;
        tiles.slopes[i] = 1 - bent * bent;
    }
}

// Query i is at key place + i, so what it does not see of key j are whole runs of queries: those before j - place where
// it is causal, and at both ends those a window or more away.
void hide_by_position(const AttentionTask& t, std::int64_t first, std::int64_t count, float* scores) {
    for (std::int64_t j = 0; j < count; ++j) {
        const std::int64_t ahead = first + j - t.place; // of the block's first query
        const std::int64_t seeing = t.causal ? ahead : t.window > 0 ? ahead - t.window + 1 : 0;
        for (std::int64_t i = 0; i < block && i < seeing; ++i) scores[j * block + i] = -infinity;
        if (t.window == 0) continue;
        const std::int64_t past = ahead + t.window;
        for (std::int64_t i = past > 0 ? past : 0; i < block; ++i) scores[j * block + i] = -infinity;
    }
}

struct Documents {
    std::int32_t first, last;
};
Documents documents_among(const std::int32_t* documents, std::int64_t count) {
    Documents found = {documents[0], documents[0]};
    for (std::int64_t i = 1; i < count; ++i) {
        found.first = documents[i] < found.first ? documents[i] : found.first;
        found.last = documents[i] > found.last ? documents[i] : found.last;
    }
    return found;
}

// Whether the block of keys has no document with the block of queries in common, whatever their order.
bool apart(const AttentionTask& t, std::int64_t first, std::int64_t count) {
    if (t.key_documents == nullptr) return false;
    const Documents queries = documents_among(t.query_documents, t.queries),
                    keys = documents_among(t.key_documents + first, count);
    return keys.last < queries.first || keys.first > queries.last;
}

void hide_other_documents(const AttentionTask& t, std::int64_t first, std::int64_t count, float* scores) {
    const Documents queries = documents_among(t.query_documents, t.queries),
                    keys = documents_among(t.key_documents + first, count);
    if (queries.first == queries.last && keys.first == keys.last) return; // the same one
    std::int32_t own[block] = {};
    for (std::int64_t i = 0; i < t.queries; ++i) own[i] = t.query_documents[i];
    for (std::int64_t j = 0; j < count; ++j) {
        const std::int32_t document = t.key_documents[first + j];
#pragma omp simd
        for (std::int64_t i = 0; i < block; ++i)
            scores[j * block + i] = own[i] == document ? scores[j * block + i] : -infinity;
    }
}

// S' = K Q', bent and added to, for `count` keys from `first`; -inf where a query may not look.
void compute_scores(const AttentionTask& t, const Tiles& tiles, std::int64_t first, std::int64_t count) {
    multiply(count, block, t.head, {tiles.keys, t.head, 1}, {tiles.queries_across, block}, {tiles.scores, block},
             false);
    if (t.soft_cap > 0) cap_scores(t, tiles, count);
    add_numbers(t, t.mask, first, count, tiles.scores);
    add_numbers(t, t.bias, first, count, tiles.scores);
    if (t.causal || t.window > 0) hide_by_position(t, first, count, tiles.scores);
    if (t.key_documents != nullptr) hide_other_documents(t, first, count, tiles.scores);
}

// Calls visit(first, count) for each block of keys of which the queries may see some.
template <class Visit>
void for_key_blocks(const AttentionTask& t, Visit visit) {
    for (std::int64_t first = t.begin; first < t.end; first += block) {
        const std::int64_t count = t.end - first < block ? t.end - first : block;
        if (!apart(t, first, count)) visit(first, count);
    }
}

// Element (i, j) of the block's scores is number first_element + i s + j of the stream, s of all keys; four neighbours
// share a draw.
void draw_tile(const AttentionTask& t, std::int64_t first, std::int64_t count, float* kept) {
    const std::uint64_t start = t.first_element + static_cast<std::uint64_t>(first);
    float words[4][block];
    for (std::int64_t j = 0; j < count;) {
        // Where s is a multiple of 4 all lanes are at the same place of their draws.
        const auto element = [&](int i) { return start + static_cast<std::uint64_t>(i * t.whole_keys + j); };
        draw_kept<block>(
            t.drop, [&](int i) { return element(i) / 4; }, words);
        const bool aligned = t.whole_keys % 4 == 0;
        const std::int64_t skipped = static_cast<std::int64_t>(element(0) % 4);
        const std::int64_t rows = !aligned ? 1 : count - j < 4 - skipped ? count - j : 4 - skipped;
        for (std::int64_t row = 0; row < rows; ++row, ++j)
            for (int i = 0; i < block; ++i)
                kept[j * block + i] = words[aligned ? skipped + row : static_cast<std::int64_t>(element(i) % 4)][i];
    }
}

void clear(float* x, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) x[i] = 0;
}

template <class T>
void copy_keys(const AttentionTask& t, const Tiles& tiles, std::int64_t first, std::int64_t count) {
    copy_rows<T>(static_cast<const T*>(t.k) + first * t.k_stride, t.k_stride, count, t.head, 1, tiles.keys);
    copy_rows<T>(static_cast<const T*>(t.v) + first * t.v_stride, t.v_stride, count, t.value_head, 1, tiles.values);
}

// P' = exp(S' - maximum) in place; what is already summed shrinks by exp(old maximum - new).
void update_softmax(const Tiles& tiles, std::int64_t count) {
    float base[block];
#pragma omp simd
    for (std::int64_t i = 0; i < block; ++i) base[i] = tiles.most[i];
    for (std::int64_t j = 0; j < count; ++j)
#pragma omp simd
        for (std::int64_t i = 0; i < block; ++i)
            base[i] = tiles.scores[j * block + i] > base[i] ? tiles.scores[j * block + i] : base[i];
#pragma omp simd
    for (std::int64_t i = 0; i < block; ++i) {
        const float most = base[i];
        base[i] = most == -infinity ? 0.0f : most; // nothing seen yet: e^(-inf - 0) = 0
        tiles.scale[i] = exponential_of_negative(tiles.most[i] - base[i]);
        tiles.sum[i] *= tiles.scale[i];
        tiles.most[i] = most;
    }
    for (std::int64_t j = 0; j < count; ++j)
#pragma omp simd
        for (std::int64_t i = 0; i < block; ++i) {
            const float p = exponential_of_negative(tiles.scores[j * block + i] - base[i]);
            tiles.scores[j * block + i] = p;
            tiles.sum[i] += p;
        }
}

template <class T>
void forward(const AttentionTask& t) {
    const Tiles tiles(t);
    copy_rows<T>(t.q, t.q_stride, t.queries, t.head, t.scale, tiles.queries);
    transpose_rows(tiles.queries, t.queries, t.head, tiles.queries_across);
    clear(tiles.out_across, t.value_head * block);
    // The sink is a score that the sum begins with.
    for (std::int64_t i = 0; i < block; ++i)
        tiles.most[i] = t.has_sink ? t.sink : -infinity, tiles.sum[i] = t.has_sink ? 1.0f : 0.0f;

    for_key_blocks(t, [&](std::int64_t first, std::int64_t count) {
        copy_keys<T>(t, tiles, first, count);
        compute_scores(t, tiles, first, count);
        update_softmax(tiles, count);
        if (t.dropout) {
            draw_tile(t, first, count, tiles.kept);
#pragma omp simd
            for (std::int64_t i = 0; i < count * block; ++i) tiles.scores[i] *= tiles.kept[i];
        }
        for (std::int64_t c = 0; c < t.value_head; ++c)
#pragma omp simd
            for (std::int64_t i = 0; i < block; ++i) tiles.out_across[c * block + i] *= tiles.scale[i];
        multiply(t.value_head, block, count, {tiles.values, 1, t.value_head}, {tiles.scores, block},
                 {tiles.out_across, block}, true);
    });
    for (std::int64_t i = 0; i < t.queries; ++i) {
        const float inverse = tiles.sum[i] == 0 ? 0.0f : 1 / tiles.sum[i];
        T* out = static_cast<T*>(t.out) + i * t.out_stride;
        for (std::int64_t c = 0; c < t.value_head; ++c) store(&out[c], tiles.out_across[c * block + i] * inverse);
        t.lse[i] = tiles.sum[i] == 0 ? -infinity : tiles.most[i] + __builtin_logf(tiles.sum[i]);
    }
}

// The row sums of dout * out, and lse; lanes without a query, and queries that saw nothing, get probabilities of zero.
template <class T>
void prepare_rows(const AttentionTask& t, const Tiles& tiles) {
    for (std::int64_t i = 0; i < block; ++i) tiles.lse[i] = infinity, tiles.delta[i] = 0;
    for (std::int64_t i = 0; i < t.queries; ++i) {
        if (t.lse[i] == -infinity) continue;
        tiles.lse[i] = t.lse[i];
        const T* saved = static_cast<const T*>(t.out_saved) + i * t.out_saved_stride;
        const float* gradient = tiles.gradient + i * t.value_head;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = 0; c < t.value_head; ++c) sum += gradient[c] * load(&saved[c]);
        tiles.delta[i] = sum;
    }
}

// S' to P', dP' to dS' = P' (dP' - delta)
void differentiate_softmax(const AttentionTask& t, const Tiles& tiles, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) {
        float *p = tiles.scores + j * block, *ds = tiles.dscores + j * block;
        const float* kept = tiles.kept + j * block;
        if (t.dropout) {
#pragma omp simd
            for (std::int64_t i = 0; i < block; ++i) {
                const float probability = exponential_of_negative(p[i] - tiles.lse[i]);
                ds[i] = probability * (ds[i] * kept[i] - tiles.delta[i]);
                p[i] = probability * kept[i];
            }
        } else {
#pragma omp simd
            for (std::int64_t i = 0; i < block; ++i) {
                const float probability = exponential_of_negative(p[i] - tiles.lse[i]);
                ds[i] = probability * (ds[i] - tiles.delta[i]);
                p[i] = probability;
            }
        }
    }
}

// Calls visit(first, count) for each block of keys with P' in the scores and dS' in the tile behind them.
template <class T, class Visit>
void for_gradient_blocks(const AttentionTask& t, const Tiles& tiles, Visit visit) {
    const std::int64_t d = t.head, e = t.value_head;
    copy_rows<T>(t.q, t.q_stride, t.queries, d, t.scale, tiles.queries);
    transpose_rows(tiles.queries, t.queries, d, tiles.queries_across);
    copy_rows<T>(t.out_gradient, t.out_gradient_stride, t.queries, e, 1, tiles.gradient);
    transpose_rows(tiles.gradient, t.queries, e, tiles.gradient_across);
    prepare_rows<T>(t, tiles);
    for_key_blocks(t, [&](std::int64_t first, std::int64_t count) {
        copy_keys<T>(t, tiles, first, count);
        compute_scores(t, tiles, first, count);
        multiply(count, block, e, {tiles.values, e, 1}, {tiles.gradient_across, block}, {tiles.dscores, block}, false);
        if (t.dropout) draw_tile(t, first, count, tiles.kept);
        differentiate_softmax(t, tiles, count);
        visit(first, count);
    });
}

template <class T>
void backward(const AttentionTask& t) {
    const Tiles tiles(t);
    const std::int64_t d = t.head, e = t.value_head;
    clear(tiles.dqueries, t.queries * d);
    for_gradient_blocks<T>(t, tiles, [&](std::int64_t first, std::int64_t count) {
        if (t.soft_cap > 0) {
#pragma omp simd
            for (std::int64_t i = 0; i < count * block; ++i) tiles.dscores[i] *= tiles.slopes[i];
        }
        multiply(count, e, t.queries, {tiles.scores, block, 1}, {tiles.gradient, e}, {t.v_gradient + first * e, e},
                 true);
        multiply(count, d, t.queries, {tiles.dscores, block, 1}, {tiles.queries, d}, {t.k_gradient + first * d, d},
                 true); // the queries carry the scale
        multiply(t.queries, d, count, {tiles.dscores, 1, block}, {tiles.keys, d}, {tiles.dqueries, d}, true);
    });
    for (std::int64_t i = 0; i < t.queries; ++i) {
        T* dq = static_cast<T*>(t.q_gradient) + i * t.q_gradient_stride;
#pragma omp simd
        for (std::int64_t c = 0; c < d; ++c) store(&dq[c], tiles.dqueries[i * d + c] * t.scale);
    }
}

template <class T>
void bias_backward(const AttentionTask& t) {
    const Tiles tiles(t);
    const ScoreNumbers<float>& to = t.bias_gradient;
    for_gradient_blocks<T>(t, tiles, [&](std::int64_t first, std::int64_t count) {
        float* sums = to.data + t.first_query * to.query_stride + first * to.key_stride;
        for (std::int64_t i = 0; i < t.queries; ++i)
            for (std::int64_t j = 0; j < count; ++j)
                sums[i * to.query_stride + j * to.key_stride] += tiles.dscores[j * block + i];
    });
}

} // namespace

template <class T>
AttentionFunctions attention_functions() {
    return {forward<T>, backward<T>, bias_backward<T>};
}
template AttentionFunctions attention_functions<float>();
template AttentionFunctions attention_functions<BFloat16>();

} // namespace tutti::backend::cpu::TUTTI_ISA
