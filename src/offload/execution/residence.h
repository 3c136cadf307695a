// Residence: carries out a residency plan. Before every moment of a step it starts the copies whose time has come and
// makes the computing queue wait for what the moment needs; after it, it sends home what leaves. All copies go through
// queues of their own, one for each way; those to and from a disk are the homes'.
#pragma once

#include "backend/device.h"
#include "backend/thread_queue.h"
#include "offload/execution/chunk_state.h"
#include "offload/execution/homes.h"
#include "offload/execution/model_data.h"
#include "offload/moments.h"

#include <functional>
#include <memory>
#include <vector>

namespace tutti::offload {

class Residence {
  public:
    // `memory`: where the plan's offsets count from.
    Residence(StepMoments step, ResidencyPlan plan, const backend::Device& device, const Homes& homes, ModelData& data,
              std::byte* memory);
    ~Residence();

    void begin_step(); // takes the model data, and has there what a step begins with
    void before(backend::Queue& queue);
    void after(backend::Queue& queue);
    // Of a moment whose uses are at home: does the work there, on a thread, when all it uses is there. Between `before`
    // and `after`, which do not wait for it. The event tells that it is done.
    std::shared_ptr<const backend::Event> work_at_home(std::function<void()> work);
    std::byte* memory_at_home(const ChunkResident& resident) const;
    void end_step();

    // Between steps: everything that is not always here goes home.
    void leave();
    void wait_for_copies();

    const ResidencyPlan& plan() const { return plan_; }
    // How long this thread, in all, has waited for chunks to come.
    Seconds waited() const { return waited_; }

  private:
    struct Visit { // a stay, as it is carried out
        std::shared_ptr<const backend::Event> came, gone;
        bool on_its_way = false; // issued, and not begun
        bool here = false;
    };
    struct Whereabouts { // of a resident
        ChunkState state = ChunkState::home;
        bool changes = false;                         // on the device, at some moment
        std::shared_ptr<const backend::Event> left;   // its latest stay is over, and what it changed has come home
        std::shared_ptr<const backend::Event> worked; // the latest work on it at home is done
    };
    void bring();
    void issue(std::int32_t stay);
    void begin(std::int32_t stay, backend::Queue& queue);
    void end(std::int32_t stay, backend::Queue& queue);
    void fetch(std::int32_t stay);
    void send_home(std::int32_t stay, const std::shared_ptr<const backend::Event>& done);
    void turn(std::int32_t resident, ChunkState state); // Bug where that may not follow
    Whereabouts& of(std::int32_t resident) { return whereabouts_[static_cast<std::size_t>(resident)]; }
    const Stay& stay(std::int32_t number) const { return plan_.stays[static_cast<std::size_t>(number)]; }
    Visit& visit(std::int32_t number) { return visits_[static_cast<std::size_t>(number)]; }
    const ChunkResident& resident(std::int32_t number) const {
        return step_.residents[static_cast<std::size_t>(stay(number).resident)];
    }
    std::span<std::byte> memory(std::int32_t number) const;
    const Home& home(std::int32_t number) const { return *homes_->find(resident(number)); }

    StepMoments step_;
    ResidencyPlan plan_;
    const backend::Device* device_;
    const Homes* homes_;
    ModelData* data_;
    std::byte* memory_;
    std::vector<std::vector<std::int32_t>> issued_, begun_, ended_; // per moment: stays
    std::vector<std::vector<std::int32_t>> used_at_home_;           // per moment: residents
    std::vector<Visit> visits_;
    std::vector<Whereabouts> whereabouts_; // per resident
    bool brought_ = false;
    Seconds waited_{};
    std::int32_t moment_ = 0; // the next, or under way
    struct LateLane {         // copies to the device after work at home
        std::unique_ptr<backend::Queue> copies;
        backend::ThreadQueue thread; // ends first
    };
    std::unique_ptr<backend::Queue> in_, out_;
    std::unique_ptr<LateLane> late_in_;
    std::unique_ptr<backend::ThreadQueue> work_; // ends before all others
};

} // namespace tutti::offload
