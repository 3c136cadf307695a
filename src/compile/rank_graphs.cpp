#include "compile/rank_graphs.h"

#include "base/error.h"
#include "compile/stages.h"
#include "compile/step_graph.h"

#include <algorithm>
#include <set>

namespace tutti {
namespace {

struct StagePlace {
    int stage = 0, copy = 0;
};

// Copy by copy, in the order of the model.
std::vector<StagePlace> stages_of(const ScheduleParameters& pipeline, int pipe, int copies) {
    std::vector<StagePlace> places;
    for (int copy = 0; copy < copies; ++copy)
        for (int stage = 0; stage < pipeline.stages(); ++stage)
            if (rank_of(pipeline, copy, stage) == pipe) places.push_back({stage, copy});
    return places;
}

// Tensors that blocks of several stages read.
Ties find_ties(const Graph& forward, std::span<const Block> blocks, const Plan& plan) {
    std::map<std::string, std::set<int>> users;
    int stage = 0;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        if (stage < static_cast<int>(plan.cuts.size()) &&
            plan.cuts[static_cast<std::size_t>(stage)] == static_cast<int>(b))
            ++stage;
        for (std::int32_t stored : blocks[b].stored)
            users[forward.stored()[static_cast<std::size_t>(stored)].name].insert(stage);
    }
    Ties ties;
    for (const auto& [name, stages] : users)
        if (stages.size() > 1) ties[name] = {stages.begin(), stages.end()};
    return ties;
}

class RankBuilder {
  public:
    RankBuilder(const Graph& forward, const Plan& plan, int rank)
        : forward_(forward), plan_(plan), blocks_(find_blocks(forward)), place_(plan.mesh.place_of(rank)) {
        if (plan.stages() > static_cast<int>(blocks_.size()))
            fail("the plan has {} stages, but the model only {} blocks to cut them from", plan.stages(),
                 blocks_.size());
        result_.place = {rank, find_ties(forward, blocks_, plan)};
    }

    RankGraphs training(const FusionOptions& fusion) {
        for (const StagePlace& place : stages_of(schedule_of(plan_).parameters, place_.pipe, copies()))
            result_.stages.push_back(training_stage(place, fusion));
        return std::move(result_);
    }

    RankGraphs forward() {
        for (const StagePlace& place : stages_of(schedule_of(plan_).parameters, place_.pipe, 1))
            result_.stages.push_back(
                {place.stage, place.copy, make_forward_graph(stage_graph(forward_, blocks_, plan_.cuts, place.stage))});
        return std::move(result_);
    }

  private:
    int copies() const { return schedule_of(plan_).parameters.copies; }

    RankStage training_stage(const StagePlace& place, const FusionOptions& fusion) {
        Graph step = differentiated(stage_graph(forward_, blocks_, plan_.cuts, place.stage),
                                    fusion.merge_linears && plan_.mesh.tensor == 1);
        RankStage stage{place.stage, place.copy, finished(std::move(step), fusion)};
        if (const Output* logits = stage.graph.output("logits"))
            stage.logits = TensorSlice::all_of(stage.graph.shape(logits->value));
        return stage;
    }

    const Graph& forward_;
    const Plan& plan_;
    std::vector<Block> blocks_;
    MeshPlace place_;
    RankGraphs result_;
};

} // namespace

RankGraphs training_graphs(const Graph& forward, const Plan& plan, int rank, const FusionOptions& fusion) {
    return RankBuilder(forward, plan, rank).training(fusion);
}

RankGraphs forward_graphs(const Graph& forward, const Plan& plan, int rank) {
    return RankBuilder(forward, plan, rank).forward();
}

} // namespace tutti
