// Exchange: an instruction that goes through a group, collective or message. It starts, goes on beside the kernels, and
// is finished by whoever needs its result. Where the device has memory of its own, data passes through host memory.
#pragma once

#include "backend/device.h"
#include "comm/group.h"
#include "program/packing.h"
#include "program/program.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

class Exchange {
  public:
    Exchange(const Instruction& instruction, Group& group, const Device& device);

    // Addresses as the task binds them: the first input, the first output, and packing space where there is some. What
    // kernels of the queue wrote before is taken.
    void start(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs, Queue& queue);
    void finish(); // waits, and leaves the result on the device
    bool under_way() const { return under_way_; }
    const Instruction& instruction() const { return *instruction_; }

  private:
    Ticket begin(const std::byte* in, std::byte* out, std::byte* packing);

    const Instruction* instruction_;
    Group* group_;
    const Device* device_;
    Bytes in_, out_;                              // sizes of the operands
    std::optional<Packing> scattered_, gathered_; // of the input, of the output; none where it lies as it is exchanged
    std::vector<std::int64_t> out_counts_, in_counts_;
    std::unique_ptr<Arena>
        host_; // copies of the operands and packing space, where the device's memory is not the host's
    std::byte *result_ = nullptr, *packed_ = nullptr, *destination_ = nullptr;
    Ticket ticket_ = 0;
    bool under_way_ = false;
};

} // namespace tutti
