// How fast hardware is, as far as predictions of a step depend on it. Measured, or assumed.
#pragma once

namespace tutti {

// Of a device: a kernel takes what the slower of computing and moving bytes takes, and the time to start it.
struct KernelSpeed {
    double flops = 1e11; // per second
    double bytes = 1e10; // per second, read and written
    double launch = 0;   // seconds

    bool operator==(const KernelSpeed&) const = default;
};

// Of what ranks exchange.
struct LinkSpeed {
    double latency = 0;           // of a message between two ranks, in seconds
    double bytes = 1e10;          // of it, per second
    double reduced_bytes = 1e10;  // that a rank receives from all others and adds up, per second
    double gathered_bytes = 1e10; // that it receives from all others, per second

    bool operator==(const LinkSpeed&) const = default;
};

} // namespace tutti
