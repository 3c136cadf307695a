#include "comm/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

namespace tutti {
namespace {

constexpr int small_rounds = 20, large_rounds = 3;
constexpr std::size_t large_message = 1 << 20;

// To a rank and back, or the other side of it.
void go_and_come(Group& group, std::span<std::byte> data, int peer, bool first) {
    if (first) group.wait(group.send(data, peer));
    group.wait(group.receive(data, peer));
    if (!first) group.wait(group.send(data, peer));
}

// The quickest of some rounds, one way.
double one_way(Group& group, std::span<std::byte> data, int rounds) {
    const int peer = group.rank() ^ 1;
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < rounds; ++i) {
        const Seconds begin = steady_now();
        go_and_come(group, data, peer, group.rank() < peer);
        best = std::min(best, (steady_now().count - begin.count) / 2);
    }
    return best;
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
    return std::as_writable_bytes(std::span(&value, 1));
}

} // namespace

Seconds steady_now() {
    return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

LinkSpeed measure_link(Group& group) {
    if (group.size() == 1) return {};
    std::array<double, 2> seconds = {}; // of a small message, of a large one
    if ((group.rank() ^ 1) < group.size()) {
        std::vector<std::byte> data(large_message);
        seconds[0] = one_way(group, std::span(data).first(sizeof(double)), small_rounds);
        seconds[1] = one_way(group, data, large_rounds);
    }
    group.wait(group.all_reduce(std::as_writable_bytes(std::span(seconds)), DType::float64, Combine::maximum));
    const double moving = std::max(seconds[1] - seconds[0], 1e-9);
    return {.latency = seconds[0], .bytes = static_cast<double>(large_message) / moving};
}

Seconds clock_offset(Group& group, const std::function<Seconds()>& clock) {
    double offset = 0;
    if (group.rank() > 0) {
        for (int i = 0; i < small_rounds; ++i) {
            double time = 0;
            group.wait(group.receive(bytes_of(time), 0));
            time = clock().count;
            group.wait(group.send(bytes_of(time), 0));
        }
        group.wait(group.receive(bytes_of(offset), 0));
        return {offset};
    }
    for (int rank = 1; rank < group.size(); ++rank) {
        double quickest = std::numeric_limits<double>::infinity(), best = 0;
        for (int i = 0; i < small_rounds; ++i) {
            double time = 0;
            const double begin = clock().count;
            group.wait(group.send(bytes_of(time), rank));
            group.wait(group.receive(bytes_of(time), rank));
            const double end = clock().count;
            if (end - begin >= quickest) continue;
            quickest = end - begin;
            best = time - (begin + end) / 2;
        }
        if (std::abs(best) <= quickest / 2) best = 0;
        group.wait(group.send(bytes_of(best), rank));
    }
    return {offset};
}

} // namespace tutti
