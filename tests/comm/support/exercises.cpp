#include "comm/support/exercises.h"

#include "base/error.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

namespace tutti {

using namespace comm;
namespace {

using Bytestring = std::vector<std::byte>;
constexpr DType all_dtypes[] = {DType::float64, DType::float32, DType::bfloat16, DType::float16,
                                DType::int64,   DType::int32,   DType::boolean};

std::uint64_t mixed(std::uint64_t x) { // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

template <class T>
T element(std::uint64_t bits) {
    // Values of very different size, so that another order of addition gives other bits.
    const double value = std::ldexp(static_cast<double>(bits >> 40) / (1 << 24) - 0.5, static_cast<int>(bits & 15) - 8);
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::int64_t>(value * 1e4));
    else if constexpr (sizeof(T) == 2)
        return T(static_cast<float>(value));
    else
        return static_cast<T>(value);
}

template <class Function>
auto with_type(DType dtype, const Function& function) {
    switch (dtype) {
    case DType::float64: return function(double{});
    case DType::float32: return function(float{});
    case DType::bfloat16: return function(BFloat16{});
    case DType::float16: return function(Float16{});
    case DType::int64: return function(std::int64_t{});
    case DType::int32: return function(std::int32_t{});
    case DType::boolean: break;
    }
    return function(std::uint8_t{});
}

// What a member brings along: any rank can work out any other's.
Bytestring data_of(std::uint64_t seed, int member, std::int64_t elements, DType dtype) {
    Bytestring data(elements * size_of(dtype));
    with_type(dtype, [&]<class T>(T) {
        auto* out = reinterpret_cast<T*>(data.data());
        for (std::int64_t i = 0; i < elements; ++i) {
            const std::uint64_t bits = mixed(seed * 1000003 + static_cast<std::uint64_t>(member) * 8191 + i);
            out[i] = dtype == DType::boolean ? T(static_cast<std::uint8_t>(bits % 5 == 0)) : element<T>(bits);
        }
    });
    return data;
}

// The rule, element by element: rank order, 16-bit floats in float32 and rounded once.
Bytestring combined(const std::vector<Bytestring>& parts, DType dtype, Combine combine) {
    Bytestring result(parts[0].size());
    with_type(dtype, [&]<class T>(T) {
        using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
        for (std::size_t i = 0; i < result.size() / sizeof(T); ++i) {
            const auto at = [&](std::size_t part) { return Wide(reinterpret_cast<const T*>(parts[part].data())[i]); };
            Wide value = at(0);
            const bool adds = combine == Combine::sum && dtype != DType::boolean;
            for (std::size_t part = 1; part < parts.size(); ++part)
                value = adds ? static_cast<Wide>(value + at(part)) : std::max(value, at(part));
            reinterpret_cast<T*>(result.data())[i] = T(value);
        }
    });
    return result;
}

enum class Kind { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast };
constexpr Kind all_kinds[] = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all,
                              Kind::broadcast};

// An operation under way: its buffers, and what must be in them in the end.
struct Running {
    Group* group = nullptr;
    Ticket ticket = 0;
    Bytestring out, in;
    std::vector<std::int64_t> out_counts, in_counts; // in bytes
    Bytestring expected;
    Bytestring* result = &in;
    std::string what;

    void check() {
        group->wait(ticket);
        if (!group->done(ticket)) throw std::runtime_error(what + ": waited for, but not done");
        if (*result != expected) throw std::runtime_error(what + ": another result than the plain loop's");
    }
};

Bytestring part(const Bytestring& all, const std::vector<std::int64_t>& counts, int index) {
    const auto begin = std::accumulate(counts.begin(), counts.begin() + index, std::int64_t{0});
    return {all.begin() + begin, all.begin() + begin + counts[index]};
}

void append(Bytestring& to, const Bytestring& from) { to.insert(to.end(), from.begin(), from.end()); }

std::unique_ptr<Running> start(Group& group, Kind kind, DType dtype, Combine combine, std::int64_t most,
                               std::uint64_t seed) {
    auto running = std::make_unique<Running>();
    Running& r = *running;
    const int ranks = group.size(), me = group.rank();
    const std::int64_t wide = size_of(dtype);
    r.group = &group;
    r.what = fmt::format("operation {} of {} on group {} of {}, at most {} elements, seed {}", static_cast<int>(kind),
                         name_of(dtype), group.name(), ranks, most, seed);
    // Elements from rank i for rank j; a fifth of them zero.
    const auto elements = [&](int i, int j) {
        const auto bits = mixed(seed ^ mixed(64 * static_cast<std::uint64_t>(i) + static_cast<std::uint64_t>(j)));
        return bits % 5 == 0 || most == 0 ? std::int64_t{0} : static_cast<std::int64_t>(bits / 5 % most) + 1;
    };
    switch (kind) {
    case Kind::all_reduce: {
        std::vector<Bytestring> parts;
        for (int i = 0; i < ranks; ++i) parts.push_back(data_of(seed, i, most, dtype));
        r.in = parts[me];
        r.expected = combined(parts, dtype, combine);
        r.ticket = group.all_reduce(r.in, dtype, combine);
        break;
    }
    case Kind::reduce_scatter: {
        for (int i = 0; i < ranks; ++i) r.in_counts.push_back(elements(i, 0) * wide);
        const auto total = std::accumulate(r.in_counts.begin(), r.in_counts.end(), std::int64_t{0});
        std::vector<Bytestring> parts;
        for (int i = 0; i < ranks; ++i) parts.push_back(data_of(seed, i, total / wide, dtype));
        r.out = parts[me];
        r.in.resize(r.in_counts[me]);
        r.expected = part(combined(parts, dtype, combine), r.in_counts, me);
        r.ticket = group.reduce_scatter(r.out, r.in, r.in_counts, dtype, combine);
        break;
    }
    case Kind::all_gather:
        for (int i = 0; i < ranks; ++i) {
            r.in_counts.push_back(elements(i, 0) * wide);
            append(r.expected, data_of(seed, i, elements(i, 0), dtype));
        }
        r.out = data_of(seed, me, elements(me, 0), dtype);
        r.in.resize(r.expected.size());
        r.ticket = group.all_gather(r.out, r.in, r.in_counts);
        break;
    case Kind::all_to_all:
        for (int i = 0; i < ranks; ++i) {
            const auto pair = [&](int a, int b) { return seed + static_cast<std::uint64_t>(a * ranks + b); };
            r.out_counts.push_back(elements(me, i) * wide);
            r.in_counts.push_back(elements(i, me) * wide);
            append(r.out, data_of(pair(me, i), 0, elements(me, i), dtype));
            append(r.expected, data_of(pair(i, me), 0, elements(i, me), dtype));
        }
        r.in.resize(r.expected.size());
        r.ticket = group.all_to_all(r.out, r.out_counts, r.in, r.in_counts);
        break;
    case Kind::broadcast: {
        const int root = static_cast<int>(seed % ranks);
        r.in = data_of(seed, me, most, dtype);
        r.expected = data_of(seed, root, most, dtype);
        r.ticket = group.broadcast(r.in, root);
    }
    }
    return running;
}

// Groups of every shape that this rank is in: all, all in reverse, halves by parity, neighbours.
std::vector<std::unique_ptr<Group>> some_groups(World& world) {
    std::vector<std::unique_ptr<Group>> groups;
    std::vector<int> backwards, alike, pair;
    for (int rank = world.size() - 1; rank >= 0; --rank) backwards.push_back(rank);
    for (int rank = 0; rank < world.size(); ++rank) {
        if (rank % 2 == world.rank() % 2) alike.push_back(rank);
        if (rank / 2 == world.rank() / 2) pair.push_back(rank);
    }
    groups.push_back(world.group("backwards", backwards, 1));
    groups.push_back(world.group("alike", alike, 2));
    groups.push_back(world.group("pair", pair, 3));
    return groups;
}

} // namespace

void exercise_operations(World& world) {
    std::uint64_t seed = 1;
    for (const Kind kind : all_kinds)
        for (const DType dtype : all_dtypes)
            for (const Combine combine : {Combine::sum, Combine::maximum})
                for (const std::int64_t most : {0, 1, 3, 5000})
                    start(world.all(), kind, dtype, combine, most, seed++)->check();
    // More pieces than may be under way, and a last one of odd length.
    for (const Kind kind : all_kinds) start(world.all(), kind, DType::float32, Combine::sum, 700001, seed++)->check();
    // Results may lie where the inputs lay.
    std::vector<float> data(7 * world.size(), 1.0f);
    const std::vector<std::int64_t> counts(world.size(), 7 * 4);
    const auto mine = std::span(data).subspan(7 * world.rank(), 7);
    world.all().wait(world.all().reduce_scatter(std::as_bytes(std::span(data)), std::as_writable_bytes(mine), counts,
                                                DType::float32, Combine::sum));
    world.all().wait(world.all().all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(data)), counts));
    if (std::ranges::count(data, static_cast<float>(world.size())) != std::ssize(data))
        throw std::runtime_error("reduce_scatter and all_gather in place give another result than all_reduce");
}

void exercise_many_at_once(World& world, std::uint64_t seed, int operations) {
    const auto groups = some_groups(world);
    std::mt19937_64 common(seed), own(seed + 17 * static_cast<std::uint64_t>(world.rank()) + 1);
    std::vector<std::unique_ptr<Running>> under_way;
    for (int i = 0; i < operations; ++i) {
        const std::uint64_t which = common() % (groups.size() + 1), kind = common() % std::size(all_kinds);
        const DType dtype = all_dtypes[common() % std::size(all_dtypes)];
        const std::int64_t most = common() % 10 == 0 ? 90000 : static_cast<std::int64_t>(common() % 3000);
        Group& group = which < groups.size() ? *groups[which] : world.all();
        under_way.push_back(start(group, all_kinds[kind], dtype, Combine::sum, most, seed + i));
        if (own() % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 3000));
        if (own() % 4 == 0) { // any of them, also one that others have not started yet
            const std::size_t chosen = own() % under_way.size();
            if (under_way[chosen]->group->done(under_way[chosen]->ticket)) {
                under_way[chosen]->check();
                under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(chosen));
            }
        }
    }
    std::ranges::shuffle(under_way, own);
    for (const auto& running : under_way) running->check();
}

void exercise_messages(World& world) {
    if (world.size() == 1) return;
    Group& group = world.all();
    const int right = (world.rank() + 1) % world.size(), left = (world.rank() + world.size() - 1) % world.size();
    const std::vector<std::int64_t> sizes = {0, 1, 5000, 300000, 17, 2000003, 64, 1};
    for (const bool sends_first : {true, false}) {
        std::vector<Bytestring> out, in;
        std::vector<Ticket> tickets;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            out.push_back(data_of(i, world.rank(), sizes[i], DType::boolean));
            in.emplace_back(sizes[i]);
        }
        // Odd ranks do it the other way round, so that either side may come first.
        const auto send = [&] {
            for (const auto& data : out) tickets.push_back(group.send(data, right));
        };
        const auto receive = [&] {
            for (auto& data : in) tickets.push_back(group.receive(data, left));
        };
        if (sends_first == (world.rank() % 2 == 0)) {
            send();
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            receive();
        } else {
            receive();
            send();
        }
        std::ranges::reverse(tickets);
        for (const Ticket ticket : tickets) group.wait(ticket);
        for (std::size_t i = 0; i < sizes.size(); ++i)
            if (in[i] != data_of(i, left, sizes[i], DType::boolean))
                throw std::runtime_error(fmt::format("message {} from rank {} is not what was sent", i, left));
    }
}

} // namespace tutti
