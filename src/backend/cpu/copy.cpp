// Kernels that only move elements: contiguous, concat, slice_gradient.
#include "backend/cpu/kernels.h"
#include "backend/cpu/walk.h"

#include <cstring>
#include <vector>

namespace tutti::backend::cpu {
namespace {

// Copies one operand into a part of another, whatever their strides.
class Copy {
  public:
    Copy(const Operand& from, const Operand& to) : walk_(to, std::span(&from, 1)), size_(size_of(from.type.dtype)) {}

    void run(const std::byte* from, std::byte* to) const {
        parallel_for(walk_.pieces(), Walk::piece, [&](std::int64_t index) {
            alignas(64) Walk::Buffer buffer, unused;
            std::byte* target = walk_.open(to, index, unused);
            const bool direct = target != unused;
            const std::byte* source = walk_.read(0, from, index, direct ? target : buffer);
            if (!direct)
                walk_.finish(to, index, source);
            else if (source != target)
                std::memcpy(target, source, static_cast<std::size_t>(walk_.count(index) * size_));
        });
    }

  private:
    Walk walk_;
    std::int64_t size_;
};

// The part [start, start + size) of an operand along dim, and where it begins.
struct Part {
    Operand operand;
    std::int64_t byte_offset;
};
Part part_of(const Operand& whole, int dim, std::int64_t start, std::int64_t size) {
    Operand part = whole;
    part.type.shape[dim] = size;
    return {part, start * whole.strides[dim] * size_of(whole.type.dtype)};
}

class PlacingKernel : public Kernel {
  public:
    // Input i goes into the output from starts[i] along dim; the rest of the output is set to zero.
    PlacingKernel(const KernelRequest& request, int dim, const std::vector<std::int64_t>& starts) {
        const Operand& out = request.outputs[0];
        std::int64_t covered = 0;
        for (std::size_t i = 0; i < request.inputs.size(); ++i) {
            const std::int64_t size = request.inputs[i].type.shape[dim];
            const Part part = part_of(out, dim, starts[i], size);
            copies_.push_back({Copy(request.inputs[i], part.operand), part.byte_offset});
            covered += size;
        }
        if (covered == out.type.shape[dim]) return;
        // Two gaps around one input.
        const std::int64_t end = starts[0] + covered;
        const Operand zero{{out.type.dtype, {}}, {}};
        auto add_gap = [&](std::int64_t start, std::int64_t size) {
            if (size == 0) return;
            const Part part = part_of(out, dim, start, size);
            gaps_.push_back({Copy(zero, part.operand), part.byte_offset});
        };
        add_gap(0, starts[0]);
        add_gap(end, out.type.shape[dim] - end);
    }

    void run(const Launch& launch) const override {
        static constexpr std::byte zero[8] = {};
        for (std::size_t i = 0; i < copies_.size(); ++i)
            copies_[i].copy.run(launch.inputs[i], launch.outputs[0] + copies_[i].byte_offset);
        for (const Placed& gap : gaps_) gap.copy.run(zero, launch.outputs[0] + gap.byte_offset);
    }

  private:
    struct Placed {
        Copy copy;
        std::int64_t byte_offset;
    };
    std::vector<Placed> copies_, gaps_;
};

class ContiguousKernel : public Kernel {
  public:
    explicit ContiguousKernel(const KernelRequest& request) : copy_(request.inputs[0], request.outputs[0]) {}
    void run(const Launch& launch) const override { copy_.run(launch.inputs[0], launch.outputs[0]); }

  private:
    Copy copy_;
};

} // namespace

void add_copy_kernels(KernelTable& table) {
    table.add("contiguous",
              PrepareKernel([](const KernelRequest& request) { return std::make_unique<ContiguousKernel>(request); }));
    table.add("concat", PrepareKernel([](const KernelRequest& request) {
                  const int dim = dim_of(request, request.outputs[0].type.shape.rank());
                  std::vector<std::int64_t> starts;
                  std::int64_t start = 0;
                  for (const Operand& input : request.inputs) {
                      starts.push_back(start);
                      start += input.type.shape[dim];
                  }
                  return std::make_unique<PlacingKernel>(request, dim, starts);
              }));
    table.add("slice_gradient", PrepareKernel([](const KernelRequest& request) {
                  const int dim = dim_of(request, request.outputs[0].type.shape.rank());
                  return std::make_unique<PlacingKernel>(request, dim,
                                                         std::vector{request.attributes.integer("start")});
              }));
}

} // namespace tutti::backend::cpu
