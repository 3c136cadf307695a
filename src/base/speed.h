// Speeds of hardware that predictions of a step depend on, measured or assumed.
#pragma once

#include <algorithm>

namespace tutti {

// Of a device: a kernel takes what the slower of computing and moving bytes takes, and the time to start it.
struct KernelSpeed {
    double flops = 1e11; // per second
    double bytes = 1e10; // per second, read and written
    double launch = 0;   // seconds

    bool operator==(const KernelSpeed&) const = default;
};

// What the driver of a GPU says of its speed.
struct GpuFigures {
    int compute_capability = 0; // 89: 8.9
    int multiprocessors = 0;
    double clock = 0;        // of those, the highest, per second
    double memory_clock = 0; // per second; two transfers each
    int memory_bits = 0;     // of a transfer
};

// Of communication between ranks.
struct LinkSpeed {
    double latency = 0;           // of a message between two ranks, in seconds
    double bytes = 1e10;          // of it, per second
    double reduced_bytes = 1e10;  // that a rank receives from all others and adds up, per second
    double gathered_bytes = 1e10; // that it receives from all others, per second

    bool operator==(const LinkSpeed&) const = default;
};

// Between a device and a memory below it.
struct CopySpeed {
    double latency = 0;           // of a copy, in seconds
    double in = 1e10, out = 1e10; // bytes per second to the device and back, each alone
    double together = 2;          // what both at once get done of that: 1, as one after the other, to 2

    bool operator==(const CopySpeed&) const = default;
};

struct CopySeconds { // to the device and back
    double in = 0, out = 0;
};
// By what copies of so many bytes took, each way alone and both at once.
inline CopySpeed copy_speed(double bytes, const CopySeconds& alone, const CopySeconds& at_once, double latency) {
    return {.latency = latency,
            .in = bytes / alone.in,
            .out = bytes / alone.out,
            .together = std::clamp(alone.in / at_once.in + alone.out / at_once.out, 1.0, 2.0)};
}

} // namespace tutti
