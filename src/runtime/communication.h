// Communication: an instruction that goes through a group of ranks, a collective or a message. It starts, runs beside
// the kernels, and is finished by the first that needs its result.
#pragma once

#include "backend/device.h"
#include "comm/group.h"
#include "program/packing.h"
#include "program/program.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti::runtime {

class Communication {
  public:
    explicit Communication(const Instruction& instruction) : instruction_(&instruction) {}
    virtual ~Communication() = default;
    const Instruction& instruction() const { return *instruction_; }

    // Addresses as the task binds them: the first input, the first output, and packing space where there is some. What
    // kernels of the queue wrote before is taken.
    virtual void start(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                       backend::Queue& queue) = 0;
    // What is given to the queue from now on finds the result.
    virtual void finish() = 0;
    virtual bool under_way() const = 0;

  private:
    const Instruction* instruction_;
};

// The operands of a communication, and how they lie in memory.
struct CommunicationLayout {
    CommunicationLayout(const Instruction& instruction, int group_size);

    Bytes in, out; // sizes of the operands
    DType dtype;
    Combine combine;
    std::optional<Packing> scattered, gathered; // of the input, of the output; none if it need not be packed
    std::vector<std::int64_t> out_counts, in_counts;
};

// Through a group of the host. Where the device has memory of its own, data passes through host memory.
class HostCommunication final : public Communication {
  public:
    HostCommunication(const Instruction& instruction, comm::Group& group, const backend::Device& device);

    void start(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
               backend::Queue& queue) override;
    void finish() override; // waits, and leaves the result on the device
    bool under_way() const override { return under_way_; }

  private:
    comm::Ticket begin(const std::byte* in, std::byte* out, std::byte* packing);

    comm::Group* group_;
    const backend::Device* device_;
    CommunicationLayout layout_;
    std::unique_ptr<backend::Arena>
        host_; // copies of the operands and packing space, where the device's memory is not the host's
    std::byte *result_ = nullptr, *packed_ = nullptr, *destination_ = nullptr;
    comm::Ticket ticket_ = 0;
    bool under_way_ = false;
};

} // namespace tutti::runtime
