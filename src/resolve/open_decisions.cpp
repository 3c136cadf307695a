#include "resolve/open_decisions.h"

#include "base/counted.h"
#include "base/error.h"
#include "comm/agree.h"
#include "plan/decisions_json.h"
#include "resolve/rank_offload.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tutti::resolve {
namespace {

bool all_say(comm::World& world, bool mine) {
    return std::ranges::min(comm::gather_values(world.all(), static_cast<char>(mine))) != 0;
}

class Resolving {
  public:
    Resolving(Plan plan, const OpenDecisions& open) : plan_(std::move(plan)), open_(open), machine_(open.machine) {}

    ResolvedRank resolve() {
        follow_kernels();
        decide_fusion();
        if (plan_.device_memory.count > 0) decide_residency();
        record_kernels();
        return {std::move(plan_), std::move(prepared_), std::move(decided_)};
    }

  private:
    comm::World& world() const { return machine_.groups.world(); }

    void prepare(const offload::InstructionSeconds& seconds = {}) {
        prepared_.executor.reset(); // before the next one takes its memory
        prepared_.evaluator.reset();
        prepared_ = resolve::prepare(machine_, plan_, seconds);
    }

    // A device with memory of its own gives of it what it can to the logits of some rows at a time: the more rows, the
    // better their matmuls fill it.
    void decide_fusion() {
        const bool is_open = !plan_.fusion;
        const auto memory = machine_.device.memory();
        plan_.fusion = fusion_of(plan_);
        if (!is_open || !memory) return prepare();
        for (int share : {16, 64, 256}) {
            plan_.fusion->head_logits = {memory->total.count / share};
            prepare();
            if (all_say(world(), memory_of(prepared_, plan_, machine_).fits())) break;
        }
        if (plan_.fusion->head)
            decided_.push_back(fmt::format("the fused head computes up to {} of logits at a time",
                                           to_string(plan_.fusion->head_logits)));
    }

    Bytes all_model_data() const { return offload::model_data_bytes(prepared_.program()); }

    void decide_residency() {
        if (plan_.residency && !keeps_its_limit()) {
            open_.listener.warning(fmt::format(
                "the plan was made where kernels need less memory: its residency does not keep within {} here, and is "
                "planned again",
                to_string(plan_.device_memory)));
            plan_.residency.reset();
            prepare();
        }
        if (!plan_.residency) {
            plan_residency();
        } else if (machine_.evaluates && lacks_evaluation()) {
            add_evaluation();
        } else if (open_.times_steps && prepared_.offload) {
            prepare(speed_of(all_model_data()).seconds);
        }
    }

    // Where the plan was made kernels may have taken less memory.
    bool keeps_its_limit() const { return all_say(world(), prepared_.device_memory() <= plan_.device_memory); }
    bool lacks_evaluation() const {
        return std::ranges::any_of(*plan_.residency, [](const auto& one) { return one && !one->evaluation; });
    }

    offload::OffloadSpeed speed_of(Bytes room) {
        profiling::OffloadTiming& timing = open_.timing(plan_.precision.compute, room);
        offload::OffloadSpeed speed = timing.of(prepared_.program(), plan_.precision, room);
        if (!open_.disk.empty())
            if (const std::string why = timing.time_disk(open_.disk, room, speed); !why.empty())
                open_.listener.warning("the disk could not be timed: " + why);
        return speed;
    }

    RankOffload rank_offload(bool fits) const {
        return {.compiled = *prepared_.compiled,
                .evaluation = prepared_.evaluation.get(),
                .plan = plan_,
                .device = machine_.device,
                .scratch = prepared_.scratch(),
                .has_disk = !open_.disk.empty(),
                .fits = fits};
    }

    void plan_residency() {
        const Bytes all = all_model_data();
        const bool fits =
            piece_bytes(prepared_.program()).count == 0 && all + prepared_.scratch() <= plan_.device_memory;
        plan_.residency.emplace(static_cast<std::size_t>(world().size()));
        if (all_say(world(), fits)) {
            decided_.emplace_back("all model data stays on the device");
            return;
        }
        const offload::OffloadSpeed speed = speed_of(all);
        record(plan_with_others(rank_offload(fits), world(), speed), speed);
    }

    void add_evaluation() {
        const offload::OffloadSpeed speed = speed_of(all_model_data());
        const offload::OffloadPlan* training = prepared_.offload ? &*prepared_.offload : nullptr;
        record(plan_with_others(rank_offload(training == nullptr), world(), speed, training), speed);
    }

    void record(const std::optional<offload::OffloadPlan>& mine, const offload::OffloadSpeed& speed) {
        std::optional<offload::PlannedResidency> residency;
        if (mine) residency = offload::recorded(*mine);
        const std::vector<std::string> all = comm::gather_texts(world().all(), to_text(residency));
        for (std::size_t rank = 0; rank < all.size(); ++rank) (*plan_.residency)[rank] = parse_residency(all[rank]);
        prepare(speed.seconds);
        predict();
        tell_residency();
    }

    // Ranks wait for the slowest of them.
    void predict() {
        if (plan_.predicted) return;
        Prediction predicted{.memory = std::vector<Bytes>(static_cast<std::size_t>(plan_.mesh.pipe))};
        for (const auto& rank : *plan_.residency)
            if (rank) predicted.step.count = std::max(predicted.step.count, rank->training.seconds);
        const run::MemoryTable table = memory_of(prepared_, plan_, machine_);
        const std::vector<Bytes> arenas = comm::gather_values(world().all(), table.total() - table.libraries);
        for (std::size_t rank = 0; rank < arenas.size(); ++rank) {
            Bytes& most = predicted.memory[static_cast<std::size_t>(plan_.mesh.place_of(static_cast<int>(rank)).pipe)];
            most = std::max(most, arenas[rank]);
        }
        plan_.predicted = predicted;
    }

    void tell_residency() {
        std::size_t by_host = 0, fetching = 0;
        for (const auto& rank : *plan_.residency) {
            if (!rank) continue;
            by_host += rank->host_updates.size();
            for (const offload::ResidentIntervals& one : rank->training.residents) fetching += !one.always;
        }
        decided_.push_back(fmt::format("{} of model data {} not always on the device, and the host updates {}",
                                       counted(fetching, "piece"), fetching == 1 ? "is" : "are",
                                       counted(by_host, "chunk")));
    }

    void follow_kernels() {
        const auto timed = plan_.timed_kernels.find(machine_.device.model());
        if (timed != plan_.timed_kernels.end()) machine_.device.follow_timed_choices(timed->second);
    }

    // Of all ranks: their devices may be of several kinds.
    void record_kernels() {
        nlohmann::json mine = {machine_.device.model(), machine_.device.timed_choices()};
        std::size_t before = 0, now = 0;
        for (const auto& [device, choices] : plan_.timed_kernels) before += choices.size();
        for (const std::string& text : comm::gather_texts(world().all(), mine.dump())) {
            const nlohmann::json rank = nlohmann::json::parse(text);
            for (const auto& [work, algorithm] : rank.at(1).items())
                plan_.timed_kernels[rank.at(0)].try_emplace(work, algorithm);
        }
        for (const auto& [device, choices] : plan_.timed_kernels) now += choices.size();
        if (now > before)
            decided_.push_back(fmt::format("the fastest algorithm of {}", counted(now - before, "kernel")));
        for (const std::string& how : machine_.device.chosen_kernels()) decided_.push_back(how);
    }

    Plan plan_;
    const OpenDecisions& open_;
    const RankMachine& machine_;
    PreparedRank prepared_;
    std::vector<std::string> decided_;
};

} // namespace

ResolvedRank resolve_plan(Plan plan, const OpenDecisions& open) { return Resolving(std::move(plan), open).resolve(); }

} // namespace tutti::resolve
