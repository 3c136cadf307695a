// The cases of attention: every attribute and every optional input by itself and with others, at sizes at which blocks
// of kernels begin and end in the middle of what is seen.
#include "operators/operator_cases.h"

#include <cmath>

namespace tutti::testing {
namespace {

Argument mask(Shape shape) { return {shape, Element::tested, Fill::mask}; }
Argument documents(Shape shape, std::int64_t first) { return {shape, Element::int32, Fill::documents, first}; }

Attributes window(std::int64_t keys) { return {{"window", keys}}; }
Attributes soft_cap(double cap) { return {{"soft_cap", cap}}; }
// A part of a sequence of 12 queries and 13 keys, with what else is asked.
Attributes part(Attributes attributes) {
    attributes.set("first_query", std::int64_t{5});
    attributes.set("first_key", std::int64_t{2});
    attributes.set("whole_queries", std::int64_t{12});
    attributes.set("whole_keys", std::int64_t{13});
    return attributes;
}
Attributes both(Attributes a, const Attributes& b) {
    for (const auto& [name, value] : b.entries()) a.set(name, value);
    return a;
}

constexpr bool causal = true;

// What is added to all scores of a row, or to the only one, changes nothing, and its gradient is nothing but rounding;
// unless there is a sink.

// clang-format off
const std::vector<AttentionSizes> variants = {
    //                      b  t  s  h  g  d  e
    {"plain",               2, 7, 7, 3, 3, 5, 5, !causal},
    {"causal",              2, 7, 7, 3, 3, 8, 8},
    {"one",                 1, 1, 1, 1, 1, 1, 1},
    {"grouped",             3, 5, 5, 6, 2, 7, 3},
    {"multi_query",         2, 5, 5, 5, 1, 17, 17, !causal},
    {"cached",              2, 3, 7, 2, 2, 5, 5}, // more keys than queries
    {"unseeing",            2, 7, 3, 2, 2, 5, 5}, // the first queries see no key
    {"long",                1, 67, 67, 2, 1, 9, 9},
    {"mask",                2, 5, 7, 6, 3, 5, 3, !causal, 0, Shape{2, 6, 5, 7}},
    {"mask_keys",           3, 5, 5, 2, 2, 5, 5, causal, 0, Shape{3, 1, 1, 5}},
    {"mask_heads",          2, 5, 5, 4, 2, 5, 5, !causal, 0, Shape{1, 4, 5, 5}},
    {"dropout",             3, 5, 7, 4, 2, 5, 5, !causal, 0.3},
    {"dropout_causal",      2, 7, 7, 3, 3, 5, 5, causal, 0.1},
    {"window",              2, 9, 9, 3, 3, 5, 5, causal, 0, {}, {}, false, false, window(3)},
    {"window_both_ways",    2, 9, 9, 3, 3, 5, 5, !causal, 0, {}, {}, false, false, window(3)},
    {"window_of_one",       2, 9, 9, 4, 2, 5, 3, causal, 0, {}, {}, true, false, window(1)},
    {"window_of_all",       2, 7, 7, 2, 2, 5, 5, causal, 0, {}, {}, false, false, window(1000)},
    {"window_cached",       2, 3, 9, 4, 2, 5, 5, causal, 0, {}, {}, false, false, window(4)},
    {"window_unseeing",     2, 9, 3, 2, 2, 5, 5, causal, 0, {}, {}, false, false, window(2)},
    {"window_dropout",      2, 9, 9, 2, 1, 5, 5, causal, 0.3, {}, {}, false, false, window(4)},
    {"window_long",         1, 195, 195, 2, 1, 9, 9, causal, 0, {}, {}, false, false, window(40)},
    {"window_long_both",    1, 195, 195, 2, 1, 9, 9, !causal, 0, {}, {}, false, false, window(70)},
    {"soft_cap",            2, 7, 7, 3, 3, 5, 5, causal, 0, {}, {}, false, false, soft_cap(0.75)},
    {"soft_cap_grouped",    2, 7, 9, 6, 2, 5, 3, !causal, 0.1, Shape{1, 6, 7, 9}, {}, false, false, soft_cap(1.5)},
    {"bias",                2, 5, 7, 6, 3, 5, 3, !causal, 0, {}, Shape{2, 6, 5, 7}},
    {"bias_heads",          3, 5, 5, 4, 2, 5, 5, causal, 0, {}, Shape{1, 4, 5, 5}},
    {"bias_keys",           2, 5, 7, 4, 2, 5, 5, !causal, 0.2, {}, Shape{1, 1, 1, 7}},
    {"bias_queries",        2, 4, 3, 2, 2, 5, 5, !causal, 0, {}, Shape{2, 1, 4, 1}, true},
    {"bias_scalar",         2, 5, 5, 2, 2, 5, 5, causal, 0, {}, Shape{1, 2, 1, 1}, true},
    {"bias_masked",         2, 5, 7, 4, 2, 5, 5, !causal, 0, Shape{2, 1, 1, 7}, Shape{1, 4, 5, 7}},
    {"bias_long",           2, 130, 131, 2, 2, 5, 5, causal, 0, {}, Shape{1, 2, 130, 131}},
    {"sinks",               2, 7, 7, 4, 2, 5, 5, causal, 0, {}, {}, true},
    {"sinks_dropout",       2, 7, 7, 3, 3, 5, 3, !causal, 0.3, {}, {}, true},
    {"sinks_unseeing",      2, 7, 3, 2, 2, 5, 5, causal, 0, {}, {}, true},
    {"documents",           3, 17, 17, 2, 2, 5, 5, causal, 0, {}, {}, false, true},
    {"documents_both_ways", 3, 17, 17, 4, 2, 5, 5, !causal, 0, {}, {}, false, true},
    {"documents_cached",    2, 5, 17, 2, 2, 5, 5, causal, 0, {}, {}, false, true},
    {"documents_long",      2, 195, 195, 2, 1, 9, 9, causal, 0, {}, {}, false, true},
    {"part",                2, 5, 7, 4, 2, 5, 5, causal, 0.3, {}, {}, false, false, part({})},
    {"part_both_ways",      2, 5, 7, 4, 2, 5, 5, !causal, 0.3, {}, {}, false, false, part(window(2))},
    {"part_documents",      2, 5, 7, 4, 2, 5, 5, causal, 0, {}, {}, true, true, part({})},
    {"everything",          2, 9, 9, 6, 2, 5, 3, causal, 0.2, Shape{2, 1, 1, 9}, Shape{1, 6, 9, 9}, true, true,
     both(window(5), soft_cap(2))},
    {"everything_of_part",  2, 5, 7, 4, 2, 7, 7, !causal, 0.2, Shape{1, 4, 1, 7}, Shape{2, 1, 5, 7}, true, true,
     part(both(window(4), soft_cap(1.5)))},
    // Sizes of real heads, which libraries have kernels for.
    {"heads_of_64",              2, 128, 128, 2, 2, 64, 64},
    {"heads_of_64_grouped",      2, 96, 96, 4, 2, 64, 64, !causal},
    {"heads_of_128",             1, 96, 96, 2, 2, 128, 128, !causal},
    {"heads_of_128_multi_query", 1, 128, 128, 2, 1, 128, 128},
    {"heads_of_64_everything",   1, 130, 130, 2, 1, 64, 64, causal, 0.1, {}, Shape{1, 2, 130, 130}, true, true,
     both(window(70), soft_cap(2))},
    {"heads_of_128_packed",      2, 130, 130, 2, 1, 128, 128, causal, 0, {}, {}, false, true},
    {"heads_of_192_to_128",      1, 96, 96, 2, 2, 192, 128},
};
// clang-format on

// Finite differences take a run or two per element.
bool is_small(const AttentionSizes& z) { return z.d < 64 && z.t < 100; }

} // namespace

std::pair<Case, Case> attention_and_gradient(const AttentionSizes& z) {
    Attributes attributes = both(
        {{"causal", z.causal}, {"scale", 1 / std::sqrt(static_cast<double>(z.d))}, {"dropout", z.dropout}}, z.more);
    const Argument q = normal({z.b, z.t, z.h, z.d}), k = normal({z.b, z.s, z.g, z.d});
    const Argument v = normal({z.b, z.s, z.g, z.e}), out = normal({z.b, z.t, z.h, z.e});
    std::vector<Argument> optional;
    std::string takes, wants;
    auto take = [&](const char* name, const Argument& input, bool learned) {
        optional.push_back(input);
        takes += (takes.empty() ? "" : " ") + std::string(name);
        if (learned) wants += (wants.empty() ? "" : " ") + std::string(name);
    };
    if (z.mask) take("mask", mask(*z.mask), false);
    if (z.bias) take("bias", normal(*z.bias), true);
    if (z.sinks) take("sinks", normal({z.h}), true);
    if (z.documents) {
        const std::int64_t whole_keys = attributes.integer("whole_keys", z.s);
        const std::int64_t first = whole_keys - attributes.integer("whole_queries", z.t);
        take("documents", documents({z.b, z.t}, attributes.integer("first_query", std::max<std::int64_t>(first, 0))),
             false);
        optional.push_back(documents({z.b, z.s}, attributes.integer("first_key", 0)));
    }
    if (!takes.empty() && takes != "mask") attributes.set("takes", takes); // which is what one more input is

    Case forward{"attention/" + z.name, {q, k, v}, attributes};
    if (!is_small(z)) forward.differentiable = {};
    if (!wants.empty()) attributes.set("wants", wants);
    Case backward{"attention_gradient/" + z.name, {out, q, k, v, out, {{z.b, z.h, z.t}, Element::wide}}, attributes};
    backward.forward = Forward{"attention", {1, 2, 3}, {{0, 4}, {1, 5}}};
    for (const Argument& input : optional) {
        forward.inputs.push_back(input);
        backward.forward->inputs.push_back(backward.inputs.size());
        backward.inputs.push_back(input);
    }
    return {std::move(forward), std::move(backward)};
}

AttentionSizes drawn_attention(std::mt19937_64& random, int number, std::int64_t longest, std::int64_t largest_head) {
    auto below = [&](std::int64_t limit) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
    };
    auto chance = [&](int percent) { return below(100) < percent; };
    AttentionSizes z{fmt::format("draw_{}", number), 1 + below(3),           1 + below(longest), 0, 0, 1 + below(2),
                     1 + below(largest_head),        1 + below(largest_head)};
    z.s = chance(60) ? z.t : 1 + below(longest);
    z.h = z.g * (1 + below(3));
    z.causal = chance(60);
    if (chance(40)) z.dropout = 0.05 + 0.1 * static_cast<double>(below(6));
    auto broadcast = [&](std::int64_t size) { return chance(50) ? 1 : size; };
    auto added = [&](std::int64_t keys) { return Shape{broadcast(z.b), broadcast(z.h), broadcast(z.t), keys}; };
    if (chance(30)) z.mask = added(broadcast(z.s));
    if (chance(40)) z.bias = added(z.s); // gradients by what all of a long row have in common cancel out
    // Without a sink, gradients by what all keys of a row have in common are nothing but rounding.
    z.sinks = chance(40) || z.s < 3;
    z.documents = chance(40);
    if (chance(50)) z.more.set("window", 2 + below(chance(50) ? 10 : 100));
    if (chance(30)) z.more.set("soft_cap", 0.5 + static_cast<double>(below(4)));
    if (chance(30)) { // a part
        const std::int64_t more_keys = below(70), whole_keys = std::max(z.s + more_keys, z.t);
        z.more.set("whole_keys", whole_keys);
        z.more.set("whole_queries", whole_keys);
        z.more.set("first_key", below(whole_keys - z.s + 1));
        z.more.set("first_query", below(whole_keys - z.t + 1));
    }
    return z;
}

std::vector<Case> attention_cases() {
    std::vector<Case> all;
    for (const AttentionSizes& sizes : variants) {
        auto [forward, backward] = attention_and_gradient(sizes);
        all.push_back(std::move(forward));
        all.push_back(std::move(backward));
    }
    return all;
}

} // namespace tutti::testing
