// What attention's attributes mean, held against what they are defined by: masks written out, parts put together by
// their log-sum-exp, documents one by one, one more key for a sink; and draws of all of them together, on the CPU
// against the oracle.
#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "graph/attention.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
using namespace ops;
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

HostTensor random_tensor(const Shape& shape, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    HostTensor tensor = dense_tensor({DType::float64, shape});
    for (double& value : tensor.storage) value = normal(random);
    return tensor;
}

std::vector<HostTensor> attend(const Attributes& attributes, const std::vector<HostTensor>& inputs) {
    static const auto device = make_reference_device();
    return evaluate(*device, all_operators().at("attention"), attributes, inputs);
}

Attributes with(Attributes attributes, const Attributes& more) {
    for (const auto& [name, value] : more.entries()) attributes.set(name, value);
    return attributes;
}

void expect_same(const std::string& what, const HostTensor& found, const HostTensor& expected) {
    EXPECT_EQ(difference(what, found.values(), expected.values(), 1e-12), "");
}

// [begin, end) of a dense tensor's dimension.
HostTensor piece(const HostTensor& whole, int dim, std::int64_t begin, std::int64_t end) {
    Shape shape = whole.type.shape;
    std::int64_t outer = 1, inner = 1;
    for (int d = 0; d < dim; ++d) outer *= shape[d];
    for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
    const std::int64_t from = begin * inner, size = (end - begin) * inner, all = shape[dim] * inner;
    shape[dim] = end - begin;
    Values values;
    for (std::int64_t o = 0; o < outer; ++o)
        for (std::int64_t i = 0; i < size; ++i)
            values.push_back(whole.storage[static_cast<std::size_t>(o * all + from + i)]);
    return dense_tensor({whole.type.dtype, shape}, std::move(values));
}

const Attributes plain = {{"causal", true}, {"scale", 0.5}};

struct Sequence {
    std::int64_t b = 2, t = 11, h = 4, g = 2, d = 5;
    HostTensor q = random_tensor({b, t, h, d}, 1), k = random_tensor({b, t, g, d}, 2),
               v = random_tensor({b, t, g, d}, 3), sinks = random_tensor({h}, 4);
    HostTensor documents = dense_tensor({DType::int32, {b, t}}, {0, 0, 0, 3, 3, 3, 3, 7, 7, 9, 9, //
                                                                 0, 0, 0, 0, 0, 0, 6, 6, 6, 6, 6});
};

// ---- What keys a query sees

TEST(Attention, AWindowIsTheMaskThatHidesAllOtherKeys) {
    const Sequence x;
    for (const bool causal : {true, false})
        for (const std::int64_t window : {1, 2, 5, 11, 100}) {
            HostTensor mask = dense_tensor({DType::float64, {1, 1, x.t, x.t}});
            for (std::int64_t i = 0; i < x.t; ++i)
                for (std::int64_t j = 0; j < x.t; ++j) {
                    // Transformers: a query sees the last `sliding_window` keys, its own among them.
                    const bool sees = causal ? j <= i && i - j < window : std::abs(i - j) < window;
                    mask.storage[static_cast<std::size_t>(i * x.t + j)] = sees ? 0 : -infinity;
                }
            const Attributes attributes = {{"causal", causal}, {"scale", 0.5}};
            const auto found = attend(with(attributes, {{"window", window}}), {x.q, x.k, x.v});
            const auto expected = attend({{"causal", false}, {"scale", 0.5}}, {x.q, x.k, x.v, mask});
            for (std::size_t o : {0, 1}) expect_same(fmt::format("window {}", window), found[o], expected[o]);
        }
}

TEST(Attention, DocumentsInOneSequenceAreAsDocumentsOneByOne) {
    const Sequence x;
    for (const bool causal : {true, false}) {
        const Attributes attributes = {{"causal", causal}, {"scale", 0.5}};
        const auto packed =
            attend(with(attributes, {{"takes", std::string("documents")}}), {x.q, x.k, x.v, x.documents, x.documents});
        const std::vector<std::vector<std::int64_t>> borders = {{0, 3, 7, 9, 11}, {0, 6, 11}};
        for (std::int64_t b = 0; b < x.b; ++b) {
            const auto& starts = borders[static_cast<std::size_t>(b)];
            for (std::size_t n = 0; n + 1 < starts.size(); ++n) {
                auto document = [&](const HostTensor& whole) {
                    return piece(piece(whole, 0, b, b + 1), 1, starts[n], starts[n + 1]);
                };
                const auto alone = attend(attributes, {document(x.q), document(x.k), document(x.v)});
                expect_same("out", document(packed[0]), alone[0]);
                expect_same("lse", piece(piece(packed[1], 0, b, b + 1), 2, starts[n], starts[n + 1]), alone[1]);
            }
        }
    }
}

TEST(Attention, ASinkIsOneMoreKeyOfThatScoreWithoutAValue) {
    const Sequence x;
    HostTensor k = dense_tensor({DType::float64, {x.b, x.t + 1, x.g, x.d}}), v = k,
               mask = dense_tensor({DType::float64, {1, x.h, x.t, x.t + 1}});
    const auto row = static_cast<std::size_t>(x.g * x.d), keys = static_cast<std::size_t>(x.t);
    for (std::size_t b = 0; b < static_cast<std::size_t>(x.b); ++b) // key 0 is the sink's: zeros
        for (std::size_t i = 0; i < keys * row; ++i) {
            k.storage[(b * (keys + 1) + 1) * row + i] = x.k.storage[b * keys * row + i];
            v.storage[(b * (keys + 1) + 1) * row + i] = x.v.storage[b * keys * row + i];
        }
    for (std::size_t h = 0; h < static_cast<std::size_t>(x.h); ++h)
        for (std::size_t i = 0; i < keys; ++i) mask.storage[(h * keys + i) * (keys + 1)] = x.sinks.storage[h];
    const auto found = attend(with(plain, {{"takes", std::string("sinks")}}), {x.q, x.k, x.v, x.sinks});
    const auto expected = attend(plain, {x.q, k, v, mask}); // query i sees keys up to i + 1, which is its own
    for (std::size_t o : {0, 1}) expect_same("sinks", found[o], expected[o]);
}

// ---- Parts of a sequence

// Parts by keys, put together as ranks would do it.
std::vector<HostTensor> merged(const std::vector<std::vector<HostTensor>>& parts) {
    std::vector<HostTensor> whole = parts[0];
    const Shape& shape = whole[0].type.shape; // [b,t,h,e]
    for (std::int64_t b = 0; b < shape[0]; ++b)
        for (std::int64_t i = 0; i < shape[1]; ++i)
            for (std::int64_t h = 0; h < shape[2]; ++h) {
                const auto at = static_cast<std::size_t>((b * shape[2] + h) * shape[1] + i),
                           row = static_cast<std::size_t>(((b * shape[1] + i) * shape[2] + h) * shape[3]);
                double sum = 0;
                for (const auto& part : parts) sum += std::exp(part[1].storage[at]);
                whole[1].storage[at] = std::log(sum);
                for (std::int64_t c = 0; c < shape[3]; ++c) {
                    double value = 0;
                    for (const auto& part : parts)
                        value +=
                            std::exp(part[1].storage[at]) / sum * part[0].storage[row + static_cast<std::size_t>(c)];
                    whole[0].storage[row + static_cast<std::size_t>(c)] = sum > 0 ? value : 0;
                }
            }
    return whole;
}

const std::vector<Attributes> sequences = {
    {{"causal", true}},
    {{"causal", false}},
    {{"causal", true}, {"dropout", 0.3}},
    {{"causal", false}, {"dropout", 0.3}, {"window", std::int64_t{4}}},
    {{"causal", true}, {"window", std::int64_t{3}}, {"soft_cap", 1.5}},
    {{"causal", true}, {"takes", std::string("documents")}},
    {{"causal", true}, {"dropout", 0.3}, {"takes", std::string("sinks documents")}}};

std::vector<HostTensor> inputs_of(const Sequence& x, const Attributes& attributes) {
    std::vector<HostTensor> inputs = {x.q, x.k, x.v};
    const AttentionInputs given(attributes, 3, 0);
    if (given.sinks) inputs.push_back(x.sinks);
    if (given.documents) inputs.insert(inputs.end(), 2, x.documents);
    return inputs;
}

TEST(Attention, HalvesOfTheKeysMakeTheWholeByTheirLogSumExp) {
    const Sequence x;
    for (Attributes attributes : sequences) {
        attributes.set("scale", 0.5);
        SCOPED_TRACE(to_string(attributes));
        const std::vector<HostTensor> inputs = inputs_of(x, attributes);
        const auto whole = attend(attributes, inputs);
        const AttentionInputs given(attributes, 3, 0);
        std::vector<std::vector<HostTensor>> halves;
        for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, x.t}}) {
            std::vector<HostTensor> half = {x.q, piece(x.k, 1, begin, end), piece(x.v, 1, begin, end)};
            if (given.sinks) half.push_back(x.sinks);
            if (given.sinks && begin > 0) // counted once
                for (double& sink : half.back().storage) sink = -infinity;
            if (given.documents) half.insert(half.end(), {x.documents, piece(x.documents, 1, begin, end)});
            halves.push_back(attend(with(attributes, {{"first_query", std::int64_t{0}},
                                                      {"first_key", begin},
                                                      {"whole_queries", x.t},
                                                      {"whole_keys", x.t}}),
                                    half));
        }
        const auto found = merged(halves);
        for (std::size_t o : {0, 1}) expect_same("halves", found[o], whole[o]);
    }
}

TEST(Attention, PartsOfTheQueriesAreThoseOfTheWhole) {
    const Sequence x;
    for (Attributes attributes : sequences) {
        attributes.set("scale", 0.5);
        SCOPED_TRACE(to_string(attributes));
        const std::vector<HostTensor> inputs = inputs_of(x, attributes);
        const auto whole = attend(attributes, inputs);
        for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 4}, {4, x.t}}) {
            std::vector<HostTensor> part = inputs;
            part[0] = piece(x.q, 1, begin, end);
            const AttentionInputs given(attributes, 3, 0);
            if (given.documents) part[*given.documents] = piece(x.documents, 1, begin, end);
            const auto found =
                attend(with(attributes, {{"first_query", begin}, {"whole_queries", x.t}, {"whole_keys", x.t}}), part);
            expect_same("out", found[0], piece(whole[0], 1, begin, end));
            expect_same("lse", found[1], piece(whole[1], 2, begin, end));
        }
    }
}

// ---- Cost

TEST(Attention, ItsFlopsAreThoseOfThePairsThatSeeEachOther) {
    std::mt19937_64 random(7);
    auto below = [&](std::int64_t limit) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
    };
    for (int draw = 0; draw < 300; ++draw) {
        Attributes attributes = {{"causal", draw % 2 == 0}};
        const std::int64_t t = 1 + below(9), s = 1 + below(9);
        if (draw % 3 != 0) attributes.set("window", 1 + below(12));
        if (draw % 5 == 0) attributes.set("first_query", below(20) - 6);
        if (draw % 7 == 0) attributes.set("first_key", below(20) - 6);
        const AttentionPositions positions(attributes, t, s);
        const std::int64_t window = attributes.integer("window", 1000);
        std::int64_t pairs = 0;
        for (std::int64_t i = 0; i < t; ++i)
            for (std::int64_t j = 0; j < s; ++j) {
                const std::int64_t behind = positions.first_query + i - positions.first_key - j;
                const bool sees =
                    attributes.flag("causal") ? behind >= 0 && behind < window : std::abs(behind) < window;
                pairs += sees;
                const Range seen = positions.seen_by(i);
                EXPECT_EQ(sees, j >= seen.begin && j < seen.end);
            }
        EXPECT_EQ(positions.pairs(), static_cast<double>(pairs)) << to_string(attributes) << t << " " << s;
    }
    const Operator& op = all_operators().at("attention");
    const std::vector<TensorType> in = {
        {DType::float32, {2, 6, 4, 5}}, {DType::float32, {2, 6, 2, 5}}, {DType::float32, {2, 6, 2, 3}}};
    const std::vector<TensorType> out = op.infer(in, plain);
    EXPECT_EQ(op.cost(in, out, plain).flops.count, 2.0 * 2 * 4 * 21 * (5 + 3)); // 1 + 2 + ... + 6 pairs
}

// ---- Mistakes

void expect_refused(const Attributes& attributes, const std::string& sentence, std::vector<TensorType> more = {}) {
    std::vector<TensorType> in = {
        {DType::float32, {2, 6, 4, 5}}, {DType::float32, {2, 7, 2, 5}}, {DType::float32, {2, 7, 2, 5}}};
    in.insert(in.end(), more.begin(), more.end());
    EXPECT_ERROR(all_operators().at("attention").infer(in, with(plain, attributes)), sentence);
}

TEST(Attention, EachMistakeIsOneSentence) {
    const TensorType queries{DType::int32, {2, 6}}, keys{DType::int32, {2, 7}}, wide_keys{DType::int64, {2, 7}};
    auto takes = [](const char* names) { return Attributes{{"takes", std::string(names)}}; };
    expect_refused({{"window", std::int64_t{0}}}, "a window of 0 keys sees no key; it is at least 1");
    expect_refused({{"window", std::int64_t{-3}}}, "a window of -3 keys");
    expect_refused({{"soft_cap", 0.0}}, "the soft cap is 0; it is above 0");
    expect_refused({{"soft_cap", -2.5}}, "the soft cap is -2.5");
    expect_refused({{"soft_cap", infinity}}, "the soft cap is inf");
    expect_refused(takes("maks"), "takes \"maks\"; what it may take are mask, bias, sinks and documents, in this order",
                   {queries});
    expect_refused(takes("sinks bias"), "in this order", {queries, queries});
    expect_refused(takes("documents"), "1 optional input given, but \"takes\" names 2", {queries});
    expect_refused({}, "2 optional inputs given, but \"takes\" names 1", {queries, keys});
    expect_refused(takes("documents"), "the documents are int32 [b,t] of the queries and int32 [b,s] of the keys",
                   {keys, queries});
    expect_refused(takes("documents"), "the documents are int32", {queries, wide_keys});
    expect_refused(takes("sinks"), "one floating number per query head", {{DType::float32, {2}}});
    expect_refused(takes("bias"), "the bias does not broadcast to [b,h,t,s]", {{DType::float32, {2, 4, 6, 6}}});
    expect_refused({{"dropout", 0.5}, {"first_query", std::int64_t{4}}}, "dropout needs to know the whole sequence");
    expect_refused({{"first_key", std::int64_t{1} << 60}}, "beyond any sequence");
}

TEST(Attention, KernelsRefuseAttributesThatTheyDoNotKnow) {
    const Operand x{{DType::float32, {1, 4, 2, 8}}, dense_strides({1, 4, 2, 8})},
        lse{{DType::float32, {1, 2, 4}}, dense_strides({1, 2, 4})};
    const KernelRequest request{"attention", with(plain, {{"widow", std::int64_t{3}}}), {x, x, x}, {x, lse}, false, {}};
    EXPECT_ERROR(make_reference_device()->prepare(request), "with widow=3");
    EXPECT_ERROR(cpu::make_cpu_device(1)->prepare(request), "the cpu backend has no kernel for attention(");
}

// ---- The CPU's kernels

TEST(Attention, DrawsOfEverythingTogetherAgreeOnTheCpu) {
    const auto reference = make_reference_device();
    const auto device = cpu::make_cpu_device(2);
    std::mt19937_64 random(20);
    std::vector<Case> cases;
    for (int number = 0; number < 40; ++number) {
        auto [forward, backward] = attention_and_gradient(drawn_attention(random, number));
        cases.push_back(std::move(forward));
        cases.push_back(std::move(backward));
    }
    constexpr Look dense_only[] = {Look::dense};
    for (const std::string& difference :
         compare_devices(*device, *reference, DType::float32, {4e-6, 1e-5}, cases, dense_only))
        ADD_FAILURE() << difference;
    for (const std::string& difference :
         compare_devices(*device, *reference, DType::bfloat16, {1e-2, 2e-3}, cases, dense_only))
        ADD_FAILURE() << difference;
}

// Whatever the borders are: data are checked where they are read, kernels only compare them.
TEST(Attention, DocumentsInAnyOrderAreOnlyCompared) {
    const auto reference = make_reference_device();
    const auto device = cpu::make_cpu_device(1);
    std::mt19937_64 random(3);
    for (const bool causal : {true, false}) {
        auto [forward, backward] =
            attention_and_gradient({"any", 2, 140, 140, 2, 1, 8, 8, causal, 0, {}, {}, false, true});
        for (const Case& one : {forward, backward}) {
            std::vector<HostTensor> inputs = *make_inputs(one, DType::float32);
            for (std::size_t i = inputs.size() - 2; i < inputs.size(); ++i)
                for (double& start : inputs[i].storage) {
                    const auto drawn = static_cast<std::int32_t>(random());
                    start = drawn % 4 == 0 ? drawn : drawn % 3;
                }
            if (one.forward) { // lse is that of other borders, which the gradient does not know
                const auto exact = in_type(one, DType::float64, inputs);
                std::vector<HostTensor> from;
                for (std::size_t i : one.forward->inputs) from.push_back(exact[i]);
                const auto results = evaluate(*reference, all_operators().at("attention"), forward.attributes, from);
                inputs[4].set_values(decode(encode(results[0].values(), DType::float32), DType::float32));
                inputs[5].set_values(decode(encode(results[1].values(), DType::float32), DType::float32));
            }
            std::vector<HostTensor> found = make_outputs(one, DType::float32, inputs);
            const auto exact = in_type(one, DType::float64, inputs);
            std::vector<HostTensor> expected = make_outputs(one, DType::float64, exact);
            run_operator(*device, one, DType::float32, inputs, found);
            run_operator(*reference, one, DType::float64, exact, expected);
            for (std::size_t o = 0; o < found.size(); ++o)
                EXPECT_EQ(difference(one.name, found[o].values(), expected[o].values(), 4e-6), "");
        }
    }
}

TEST(Attention, ItsMemoryOnTheCpuGrowsWithTheSequence) {
    const auto device = cpu::make_cpu_device(2);
    for (const std::size_t which : {0, 1}) {
        auto workspace = [&](std::int64_t sequence) {
            auto cases = attention_and_gradient({"long",
                                                 1,
                                                 sequence,
                                                 sequence,
                                                 2,
                                                 1,
                                                 64,
                                                 64,
                                                 true,
                                                 0.1,
                                                 {},
                                                 {},
                                                 true,
                                                 true,
                                                 {{"window", std::int64_t{128}}}});
            const Case& one = which == 0 ? cases.first : cases.second;
            const Operator& op = all_operators().at(one.op());
            KernelRequest request{one.op(), one.attributes, {}, {}, false, {}};
            std::vector<TensorType> types;
            for (const Argument& argument : one.inputs)
                types.push_back({dtype_of(argument.element, DType::float32), argument.shape});
            for (const TensorType& type : types) request.inputs.push_back({type, dense_strides(type.shape)});
            for (const TensorType& type : op.infer(types, one.attributes))
                request.outputs.push_back({type, dense_strides(type.shape)});
            return device->prepare(request)->workspace().count;
        };
        EXPECT_LE(workspace(1 << 16), 16 * workspace(1 << 12));
    }
}

} // namespace
} // namespace tutti::testing
