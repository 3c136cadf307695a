#include "comm/measure.h"

#include "comm/agree.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

namespace tutti::comm {
namespace {

constexpr int small_rounds = 20, large_rounds = 3, paused_rounds = 9;
constexpr std::size_t largest_message = 1 << 20, largest_collective = 16 << 20, least_collective = 1 << 16;

template <class T>
std::span<std::byte> bytes_of(T& value) {
    return std::as_writable_bytes(std::span(&value, 1));
}

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

void pause(double seconds) {
    const double end = steady_now().count + seconds;
    while (steady_now().count < end) continue;
}

// Half of the way there and back, as messages come in a pipeline: after a while in which nothing happened, so that who
// waits may be asleep. The median; pauses differ, so that they do not fall in step with such sleep.
double latency_after_pause(Group& group, std::span<std::byte> data) {
    const int peer = group.rank() ^ 1;
    std::vector<double> samples;
    for (int i = 0; i < paused_rounds; ++i) {
        const double paused = 0.002 + 0.00037 * i;
        if (group.rank() > peer) {
            group.wait(group.receive(data, peer));
            pause(paused);
            group.wait(group.send(data, peer));
            continue;
        }
        pause(paused);
        const Seconds begin = steady_now();
        go_and_come(group, data, peer, true);
        samples.push_back((steady_now().count - begin.count - paused) / 2);
    }
    double middle = 0;
    if (group.rank() < peer) {
        std::ranges::sort(samples);
        middle = std::max(samples[samples.size() / 2], 0.0);
        group.wait(group.send(bytes_of(middle), peer));
    } else {
        group.wait(group.receive(bytes_of(middle), peer));
    }
    return middle;
}

// The quickest of some rounds of all ranks together.
template <class Start>
double collective(Group& group, const Start& start) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < large_rounds; ++i) {
        std::array<std::byte, 8> together{};
        group.wait(group.all_reduce(together, DType::float64, Combine::maximum));
        const Seconds begin = steady_now();
        group.wait(start());
        best = std::min(best, steady_now().count - begin.count);
    }
    return best;
}

} // namespace

LinkSpeed measure_link(Group& group, Bytes room) {
    if (group.size() == 1) return {};
    // Half of the room is for what is summed, the rest for a rank's share of it and for the group's own buffers.
    const std::int64_t least = std::ranges::min(gather_values(group, room.count));
    const std::size_t large_collective = std::clamp(static_cast<std::size_t>(std::max<std::int64_t>(least, 0) / 2),
                                                    least_collective, largest_collective);
    const std::size_t large_message = std::min(largest_message, large_collective);
    // Of a small message, of a large one, of one after a pause; of a sum, of gathering; how many ranks timed messages
    std::array<double, 6> seconds = {};
    std::vector<std::byte> data(large_collective);
    if ((group.rank() ^ 1) < group.size()) {
        const auto small = std::span(data).first(sizeof(double));
        seconds[0] = one_way(group, small, small_rounds);
        seconds[1] = one_way(group, std::span(data).first(large_message), large_rounds);
        seconds[2] = latency_after_pause(group, small);
        seconds[5] = 1;
    }
    const auto size = static_cast<std::size_t>(group.size());
    const std::size_t share = large_collective / size / sizeof(double) * sizeof(double);
    const std::vector<std::int64_t> shares(size, static_cast<std::int64_t>(share));
    const auto all = std::span(data).first(share * size);
    std::vector<std::byte> mine(share);
    seconds[3] =
        collective(group, [&] { return group.reduce_scatter(all, mine, shares, DType::float32, Combine::sum); });
    seconds[4] = collective(group, [&] { return group.all_gather(mine, all, shares); });
    group.wait(group.all_reduce(std::as_writable_bytes(std::span(seconds)), DType::float64, Combine::sum));
    for (double& one : std::span(seconds).first(3)) one /= seconds[5];
    for (double& one : std::span(seconds).subspan(3, 2)) one /= group.size();
    const double moving = std::max(seconds[1] - seconds[0], 1e-9);
    auto rate = [&](double taken) {
        return static_cast<double>(share * (size - 1)) / std::max(taken - seconds[0], taken / 2);
    };
    return {.latency = std::max(seconds[0], seconds[2]),
            .bytes = static_cast<double>(large_message) / moving,
            .reduced_bytes = rate(seconds[3]),
            .gathered_bytes = rate(seconds[4])};
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

} // namespace tutti::comm
