// DeviceGroup: ranks whose devices communicate by themselves, memory to memory (NCCL). An operation is given to a
// stream of the device and runs in the stream's order; the host waits for nothing. Events of the stream tell when it is
// done.
//
// All ranks of a group give the same operations in the same order. Operations of one group do not overtake each other,
// so groups that must not hold each other up are given to streams of their own.
#pragma once

#include "comm/group.h"

namespace tutti::comm {

using Stream = void*; // as the device's libraries know it

// An operation of a group, for sentences.
struct DeviceOperation {
    const char* name = "";
    std::int64_t sequence = 0; // among those of the group, from 1
    Bytes bytes;
};

class DeviceGroup {
  public:
    virtual ~DeviceGroup() = default;
    virtual const std::string& name() const = 0;
    virtual int rank() const = 0; // of the caller, within the group
    virtual int size() const = 0;

    // As in Group, but in the device's memory; `in` may be `out`, and what is gathered may lie where it belongs
    // already.
    virtual void all_reduce(const std::byte* in, std::byte* out, Bytes size, DType dtype, Combine combine,
                            Stream stream) = 0;
    virtual void all_gather(const std::byte* mine, std::byte* all, std::span<const std::int64_t> counts,
                            Stream stream) = 0;
    virtual void reduce_scatter(const std::byte* all, std::byte* mine, std::span<const std::int64_t> counts,
                                DType dtype, Combine combine, Stream stream) = 0;
    virtual void all_to_all(const std::byte* out, std::span<const std::int64_t> out_counts, std::byte* in,
                            std::span<const std::int64_t> in_counts, Stream stream) = 0;
    virtual void broadcast(std::byte* data, Bytes size, int root, Stream stream) = 0;
    virtual void send(const std::byte* data, Bytes size, int to, Stream stream) = 0;
    virtual void receive(std::byte* data, Bytes size, int from, Stream stream) = 0;

    virtual DeviceOperation latest() const = 0; // that was given
    // WorldError where the connection is known to be broken.
    virtual void check() = 0;
    // The run has failed: what is under way ends, undone, and nothing can be given any more.
    virtual void abandon() noexcept = 0;
};

// What connects devices.
class DeviceNetwork {
  public:
    virtual ~DeviceNetwork() = default;
    virtual std::string library() const = 0; // "NCCL 2.27.3"; all ranks need the same
    // A group of some ranks of another, in this order; all of them call it at the same time, and find each other
    // through messages of that group.
    virtual std::unique_ptr<DeviceGroup> group(std::string name, Group& host, const std::vector<int>& members) = 0;
};

// NCCL, of which the library is opened that TUTTI_NCCL names, or libnccl.so.2. Error where the plug-in or the library
// is not there, or the library is too old.
std::unique_ptr<DeviceNetwork> open_nccl();

} // namespace tutti::comm
