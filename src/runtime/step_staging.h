// StepStaging: the host memory of steps under way. A step's scalars and tokens are copied from here to the device, and
// its results are copied back here; each step has a place of its own until it is finished.
#pragma once

#include "backend/device.h"
#include "runtime/device_waits.h"
#include "runtime/program_memory.h"
#include "runtime/step_timer.h"

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace tutti::runtime {

// Fills the inputs of one micro-batch, in the order of Program::inputs: pointers to host memory.
using LoadBatch = std::function<void(std::int32_t micro_batch, std::span<std::byte* const> inputs)>;

struct FinishedStep {
    StepScalars scalars; // with the results
    Seconds at;          // by steady_now, on the device
};

class StepStaging {
  public:
    static constexpr std::int64_t most_under_way = 2;

    StepStaging(const Program& program, const ProgramMemory& memory)
        : program_(program), memory_(memory), inputs_(program.inputs.size()) {}

    void allocate(const backend::Device& device); // once
    std::int64_t under_way() const { return begun_ - finished_; }

    // Loads all batches and has the queue copy them, and the scalars, to the device.
    void begin(const StepScalars& scalars, const LoadBatch& load, backend::Queue& queue, StepTimer& timer);
    void end(backend::Queue& queue);         // the step's work has been given to the queue
    FinishedStep finish(DeviceWaits& waits); // waits for the oldest

  private:
    struct Place { // [scalars in][scalars out][batches]
        std::byte* memory = nullptr;
        std::shared_ptr<const backend::Event> done;
        Seconds finished_at;
    };
    Place& place_of(std::int64_t step) { return places_[static_cast<std::size_t>(step % most_under_way)]; }
    static std::byte* results_in(const Place& place) { return place.memory + ProgramMemory::scalars_bytes; }

    const Program& program_;
    const ProgramMemory& memory_;
    std::vector<std::byte*> inputs_; // of the micro-batch that is loaded
    std::unique_ptr<backend::Arena> host_;
    std::array<Place, most_under_way> places_;
    std::int64_t begun_ = 0, finished_ = 0;
};

} // namespace tutti::runtime
