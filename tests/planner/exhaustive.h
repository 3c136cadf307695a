// Every plan of a small cluster, evaluated: what the search is held to.
#pragma once

#include "setting.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace tutti {

// Every cut of so many blocks into so many stages.
inline void for_each_cut(int blocks, int stages, std::vector<int>& cuts, const auto& visit) {
    if (static_cast<int>(cuts.size()) == stages - 1) return visit(cuts);
    for (int cut = cuts.empty() ? 1 : cuts.back() + 1; cut < blocks; ++cut) {
        cuts.push_back(cut);
        for_each_cut(blocks, stages, cuts, visit);
        cuts.pop_back();
    }
}

// The fastest of the schedules, ZeRO levels and cuts of one scaling and layout, with recomputation by the planner's own
// rule. An order that follows costs is made for the costs of each split.
class Everything {
  public:
    explicit Everything(Setting& setting) : setting_(setting), model_(setting.model) {}

    const planner::RankedPlan& best() const { return best_; }
    bool fits() const { return best_.cost.time > 0; }

    void try_all(planner::PlanDecisions decisions, const planner::PlacedRanks& placed) {
        const auto micro_batches = static_cast<int>(model_.micro_batches(decisions.data, decisions.micro_batch));
        for (const bool following : {false, true})
            for (const schedule::ScheduleParameters& p :
                 planner::schedule_menu(decisions.pipe, micro_batches, setting_.chain.blocks(), following)) {
                planner::ReadySchedule* ready = model_.schedules().find(p);
                if (!ready || ready->schedule.parameters.stages() > setting_.chain.blocks()) continue;
                decisions.schedule = ready->schedule.parameters;
                decisions.schedule.recompute.clear();
                for (const int zero : {0, 1, 2, 3}) {
                    decisions.zero = zero;
                    try_cuts(decisions, placed, p, *ready);
                }
            }
    }

  private:
    void try_cuts(const planner::PlanDecisions& decisions, const planner::PlacedRanks& placed,
                  const schedule::ScheduleParameters& parameters, planner::ReadySchedule& ready) {
        planner::Splitter splitter(model_, decisions, placed, ready);
        std::vector<int> cuts;
        for_each_cut(setting_.chain.blocks(), decisions.schedule.stages(), cuts, [&](const std::vector<int>& one) {
            const bool fits = splitter.complete(one);
            if (!planner::follows_costs(parameters.family)) {
                if (fits) consider(splitter.decisions(), placed, ready);
                return;
            }
            planner::PlanDecisions whole = splitter.decisions();
            whole.schedule = parameters;
            std::unique_ptr<planner::ReadySchedule> owned;
            planner::ReadySchedule* own = model_.schedule_of(whole, placed, owned);
            if (!own) return;
            whole.schedule = own->schedule.parameters;
            whole.schedule.recompute.clear();
            planner::Splitter again(model_, whole, placed, *own);
            if (again.complete(one)) consider(again.decisions(), placed, *own);
        });
    }
    void consider(const planner::PlanDecisions& decisions, const planner::PlacedRanks& placed,
                  planner::ReadySchedule& ready) {
        const double time = model_.step_seconds(decisions, placed, ready);
        if (!fits() || time < best_.cost.time) best_ = {"", decisions, {.time = time}};
    }

    Setting& setting_;
    planner::PlanModel& model_;
    planner::RankedPlan best_{};
};

// The fastest of everything: every mesh, micro-batch and layout too.
inline planner::RankedPlan enumerate_all(Setting& setting) {
    Everything everything(setting);
    const int devices = setting.cluster.device_count(), blocks = setting.chain.blocks();
    for (int tensor = 1; tensor <= setting.cluster.levels.front().size; tensor *= 2)
        for (int pipe = 1; pipe * tensor <= devices && pipe <= blocks; ++pipe)
            for (int data = 1; data * pipe * tensor <= devices; ++data)
                for (std::int64_t b = 1; b <= setting.workload.global_batch; ++b) {
                    if (setting.workload.global_batch % (data * b) != 0) continue;
                    planner::PlanDecisions decisions{
                        .tensor_parallel = {.ranks = tensor}, .pipe = pipe, .data = data, .micro_batch = b};
                    for (const planner::DeviceLayout& layout :
                         planner::all_layouts(setting.cluster, decisions.mesh())) {
                        decisions.layout = layout;
                        everything.try_all(decisions, planner::place_ranks(setting.cluster, decisions.mesh(), layout));
                    }
                }
    return everything.best();
}

// A cluster of up to four devices, a model of up to three layers and a batch, drawn from a seed: nodes that are equal
// or not, links from quick to slow, memory that is in the way or not.
struct RandomSetting {
    costs::Cluster cluster;
    int layers = 1;
    std::int64_t batch = 1;

    explicit RandomSetting(std::uint64_t seed) : random_(seed) {
        for (int i = 0; i < 8; ++i) random_(); // small seeds begin alike
        const int devices = 1 + below(2), nodes = 1 + below(4 / devices);
        const double memory = below(2) == 0 ? 1 : between(0.003, 0.03);
        cluster = small_cluster(nodes, devices, memory);
        cluster.kinds[0].link.bytes = between(2e8, 2e10);
        for (costs::LinkLevel& level : cluster.levels) level.speed.bytes = between(5e7, 5e9);
        cluster.levels.front().speed = cluster.kinds[0].link;
        if (nodes > 1 && below(2) == 0) {
            costs::NodeKind other = cluster.kinds[0];
            const double speed = between(0.25, 4);
            other.device.name = "other";
            other.device.flops16 *= speed;
            other.device.bandwidth *= speed;
            if (below(2) == 0) other.device.memory = {static_cast<std::int64_t>(memory * between(0.5, 2) * 1e9)};
            cluster.kinds.push_back(other);
            cluster.nodes.back() = 1;
        }
        costs::check(cluster);
        layers = 1 + below(3);
        constexpr std::int64_t batches[] = {1, 2, 3, 4, 6, 8, 12};
        batch = batches[below(7)];
    }

  private:
    int below(int most) { return static_cast<int>(random_() % static_cast<std::uint64_t>(most)); }
    double between(double low, double high) {
        const double share = static_cast<double>(random_() >> 11) / 9007199254740992.0;
        return low * std::pow(high / low, share);
    }
    std::mt19937_64 random_;
};

} // namespace tutti
