// Residence: carries out a residency plan. Before every moment of a step it starts the copies whose time has come and
// makes the computing queue wait for what the moment needs; after it, it sends home what leaves. All copies go through
// queues of their own: between host memory and the device one for each way, and threads where homes are on disk.
#pragma once

#include "backend/device.h"
#include "backend/thread_queue.h"
#include "memory/moments.h"
#include "runtime/homes.h"
#include "runtime/model_data.h"

#include <memory>
#include <vector>

namespace tutti {

class Residence {
  public:
    // `memory`: where the plan's offsets count from.
    Residence(StepMoments step, ResidencyPlan plan, const Device& device, const Homes& homes, ModelData& data,
              std::byte* memory);
    ~Residence();

    void begin_step(); // takes the model data, and has there what a step begins with
    void before(Queue& queue);
    void after(Queue& queue);
    void end_step();

    // Between steps: everything that is not always here goes home.
    void leave();
    void wait_for_copies();

    const ResidencyPlan& plan() const { return plan_; }

  private:
    struct Visit { // a stay, as it is carried out
        std::shared_ptr<const Event> came, gone;
        bool on_its_way = false; // issued, and not begun
        bool here = false;
    };
    void bring();
    void issue(std::int32_t stay);
    void begin(std::int32_t stay, Queue& queue);
    void end(std::int32_t stay, Queue& queue);
    void fetch(std::int32_t stay);
    void send_home(std::int32_t stay, const std::shared_ptr<const Event>& done);
    const Stay& stay(std::int32_t number) const { return plan_.stays[static_cast<std::size_t>(number)]; }
    Visit& visit(std::int32_t number) { return visits_[static_cast<std::size_t>(number)]; }
    const ChunkResident& resident(std::int32_t number) const {
        return step_.residents[static_cast<std::size_t>(stay(number).resident)];
    }
    std::span<std::byte> memory(std::int32_t number) const;
    const Home& home(std::int32_t number) const { return *homes_->find(resident(number)); }

    StepMoments step_;
    ResidencyPlan plan_;
    const Device* device_;
    const Homes* homes_;
    ModelData* data_;
    std::byte* memory_;
    std::vector<std::vector<std::int32_t>> issued_, begun_, ended_; // per moment: stays
    std::vector<Visit> visits_;
    bool brought_ = false;
    std::int32_t moment_ = 0; // the next, or under way
    struct DiskLane {         // reads or writes the file, through staging memory where the device has memory of its own
        std::unique_ptr<Arena> staging;
        std::unique_ptr<Queue> copies;
        ThreadQueue thread; // ends first
    };
    std::unique_ptr<Queue> in_, out_;
    std::unique_ptr<DiskLane> disk_in_, disk_out_;
};

} // namespace tutti
