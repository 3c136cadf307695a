// Residence: carries out a residency plan. Before every time point of a step it starts the fetches that are due and
// makes the computing queue wait for the chunks that the time point uses. After it, it evicts the chunks whose interval
// ends. Copies run on queues of their own, one for each direction; those of a disk belong to the backing store.
#pragma once

#include "backend/device.h"
#include "backend/thread_queue.h"
#include "offload/execution/backing_store.h"
#include "offload/execution/chunk_state.h"
#include "offload/execution/model_data.h"
#include "offload/time_points.h"

#include <functional>
#include <memory>
#include <vector>

namespace tutti::offload {

class Residence {
  public:
    // `memory`: where the plan's offsets count from.
    Residence(StepTimePoints step, ResidencyPlan plan, const backend::Device& device, const BackingStore& backing,
              ModelData& data, std::byte* memory);
    ~Residence();

    void begin_step(); // takes over the model data and fetches the chunks that a step begins with
    void before(backend::Queue& queue);
    void after(backend::Queue& queue);
    // For a time point that uses chunks on the host: does the work on a thread, once all of these chunks are in host
    // memory. Called between `before` and `after`, which do not wait for it. The event tells when it is done.
    std::shared_ptr<const backend::Event> work_on_host(std::function<void()> work);
    std::byte* memory_on_host(const ChunkResident& resident) const;
    void end_step();

    // Between steps: evicts every chunk that is not always on the device.
    void evict_all();
    void wait_for_copies();

    const ResidencyPlan& plan() const { return plan_; }
    // How long this thread has waited for fetches, in all.
    Seconds waited() const { return waited_; }

  private:
    struct IntervalState { // how far a residency interval has been carried out
        std::shared_ptr<const backend::Event> came, gone;
        bool on_its_way = false; // issued, and not begun
        bool here = false;
    };
    struct ResidentState { // of a resident
        ChunkState state = ChunkState::offloaded;
        bool changes = false; // on the device, at some time point
        std::shared_ptr<const backend::Event>
            left; // its latest interval is over, and its changes are in the backing tier
        std::shared_ptr<const backend::Event> worked; // the latest work on it by the host is done
    };
    void load_initial();
    void issue(std::int32_t interval);
    void begin(std::int32_t interval, backend::Queue& queue);
    void end(std::int32_t interval, backend::Queue& queue);
    void fetch(std::int32_t interval);
    void write_back(std::int32_t interval, const std::shared_ptr<const backend::Event>& done);
    void change_state(std::int32_t resident, ChunkState state); // Bug where that may not follow
    ResidentState& of(std::int32_t resident) { return resident_states_[static_cast<std::size_t>(resident)]; }
    const ResidencyInterval& interval(std::int32_t number) const {
        return plan_.intervals[static_cast<std::size_t>(number)];
    }
    IntervalState& interval_state(std::int32_t number) { return interval_states_[static_cast<std::size_t>(number)]; }
    const ChunkResident& resident(std::int32_t number) const {
        return step_.residents[static_cast<std::size_t>(interval(number).resident)];
    }
    std::span<std::byte> memory(std::int32_t number) const;
    const BackingPlace& place(std::int32_t number) const { return *backing_->find(resident(number)); }

    StepTimePoints step_;
    ResidencyPlan plan_;
    const backend::Device* device_;
    const BackingStore* backing_;
    ModelData* data_;
    std::byte* memory_;
    std::vector<std::vector<std::int32_t>> issued_, begun_, ended_; // per time point: intervals
    std::vector<std::vector<std::int32_t>> used_on_host_;           // per time point: residents
    std::vector<IntervalState> interval_states_;
    std::vector<ResidentState> resident_states_; // per resident
    bool loaded_ = false;
    Seconds waited_{};
    std::int32_t time_point_ = 0; // the next, or under way
    struct LateLane {             // fetches that follow work on the host
        std::unique_ptr<backend::Queue> copies;
        backend::ThreadQueue thread; // ends first
    };
    std::unique_ptr<backend::Queue> in_, out_;
    std::unique_ptr<LateLane> late_in_;
    std::unique_ptr<backend::ThreadQueue> work_; // ends before all others
};

} // namespace tutti::offload
