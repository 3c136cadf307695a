#include "compile/graphs/rank_graphs.h"

#include "base/error.h"
#include "compile/graphs/overlap.h"
#include "compile/graphs/recompute.h"
#include "compile/graphs/stage_shardings.h"
#include "compile/graphs/stages.h"
#include "compile/graphs/step_graph.h"
#include "compile/graphs/sub_pipeline.h"
#include "sharding/shard_axes.h"

#include <algorithm>
#include <set>

namespace tutti::compile {
namespace {

struct StagePlace {
    int stage = 0, replica = 0;
};

// Replica by replica, in the order of the model.
std::vector<StagePlace> stages_of(const schedule::ScheduleParameters& pipeline, int pipe, int model_replicas) {
    std::vector<StagePlace> places;
    for (int replica = 0; replica < model_replicas; ++replica)
        for (int stage = 0; stage < pipeline.stages(); ++stage)
            if (schedule::rank_of(pipeline, replica, stage) == pipe) places.push_back({stage, replica});
    return places;
}

std::vector<Block> checked_blocks(const Graph& forward, const Plan& plan) {
    std::vector<Block> blocks = find_blocks(forward);
    if (plan.stages() > static_cast<int>(blocks.size()))
        fail("the plan has {} stages, but the model only {} blocks to cut them from", plan.stages(), blocks.size());
    return blocks;
}

class RankBuilder {
  public:
    RankBuilder(const Graph& forward, const Plan& plan, int rank)
        : forward_(forward), plan_(plan), blocks_(checked_blocks(forward, plan)), place_(plan.mesh.place_of(rank)),
          shardings_(forward, blocks_, plan, place_.tensor), result_{{}, {rank, shardings_.ties()}} {}

    RankGraphs training() {
        const schedule::Schedule schedule = schedule_of(plan_);
        for (const StagePlace& place : stages_of(schedule.parameters, place_.pipe, schedule.parameters.model_replicas))
            result_.stages.push_back(training_stage(place, schedule.parameters));
        return std::move(result_);
    }

    RankGraphs forward() {
        const schedule::Schedule schedule = schedule_of(plan_);
        for (const StagePlace& place :
             stages_of(schedule.parameters, place_.pipe, schedule.parameters.model_replicas)) {
            RankStage stage = sharded_stage(place, stage_graph(forward_, blocks_, plan_.cuts, place.stage), false);
            stage.graph = make_forward_graph(stage.graph);
            result_.stages.push_back(std::move(stage));
        }
        return std::move(result_);
    }

  private:
    RankStage training_stage(const StagePlace& place, const schedule::ScheduleParameters& pipeline) {
        const FusionOptions fusion = fusion_of(plan_);
        const Graph whole = differentiated_stage(place.stage, fusion);
        RankStage stage = sharded_stage(place, whole, true);
        stage.graph = finished(std::move(stage.graph), fusion);
        if (!plan_.recompute.empty()) {
            const auto s = static_cast<std::size_t>(place.stage);
            const schedule::Recompute when =
                s < pipeline.recompute.size() && pipeline.recompute[s] == schedule::Recompute::early
                    ? schedule::Recompute::early
                    : schedule::Recompute::on_gradient;
            if (!plan_.recompute[s].empty()) stage.graph = recompute(stage.graph, plan_.recompute[s], when);
        }
        if (plan_.mesh.tensor > 1) {
            stage.graph = overlap_order(stage.graph);
            if (plan_.sub_pipeline) put_together(stage, whole);
        }
        return stage;
    }

    // Two halves, of a graph for one.
    void put_together(RankStage& stage, const Graph& whole) const {
        const std::int64_t samples = plan_.workload.micro_batch / 2;
        std::set<std::string> sampled;
        auto look_at = [&](const std::string& name, const Shape& shape) {
            if (!shape.empty() && shape[0] == samples) sampled.insert(name);
        };
        for (ValueId input : whole.inputs()) look_at(whole.value(input).name, whole.shape(input));
        for (const Output& output : whole.outputs()) look_at(output.name, whole.shape(output.value));
        stage.graph = sub_pipelined(stage.graph, samples, sampled);
        if (!stage.logits) return;
        stage.logits->whole[0] *= 2;
        stage.logits->dims[0] = joined(stage.logits->dims[0], shifted(stage.logits->dims[0], samples));
    }

    Graph differentiated_stage(int stage, const FusionOptions& fusion) const {
        return differentiated(stage_graph(forward_, blocks_, plan_.cuts, stage),
                              fusion.merge_linears && plan_.mesh.tensor == 1);
    }

    // Splits a stage over the tensor axis.
    RankStage sharded_stage(const StagePlace& place, Graph graph, bool gradients) {
        if (plan_.mesh.tensor == 1) {
            RankStage stage{place.stage, place.replica, std::move(graph)};
            if (const Output* logits = stage.graph.output("logits"))
                stage.logits = sharding::TensorSlice::all_of(stage.graph.shape(logits->value));
            return stage;
        }
        const Graph ordered = sharding::add_matmuls_first(graph);
        sharding::ShardedAxes sharded =
            sharding::shard_axes(ordered, place_.tensor, shardings_.options_of(place.stage, gradients));
        RankStage stage{place.stage,
                        place.replica,
                        std::move(sharded.graph),
                        std::move(sharded.stored),
                        std::move(sharded.partial),
                        std::move(sharded.replicated)};
        const std::vector<sharding::AxisPlace> places = sharding::places_of(shardings_.strategies(), place_.tensor);
        for (std::size_t o = 0; o < ordered.outputs().size(); ++o) {
            if (ordered.outputs()[o].name != "logits") continue;
            const std::vector<sharding::Sharding> states = states_of(sharded.outputs, o);
            bool first = true;
            for (std::size_t a = 0; a < states.size(); ++a) first &= states[a].is_split() || places[a].rank == 0;
            if (first) stage.logits = sharding::owned_slice(ordered.shape(ordered.outputs()[o].value), states, places);
        }
        return stage;
    }

    // Along every axis, of one output.
    static std::vector<sharding::Sharding> states_of(const std::vector<std::vector<sharding::Sharding>>& axes,
                                                     std::size_t output) {
        std::vector<sharding::Sharding> states;
        for (const std::vector<sharding::Sharding>& axis : axes) states.push_back(axis[output]);
        return states;
    }

    const Graph& forward_;
    const Plan& plan_;
    std::vector<Block> blocks_;
    sharding::MeshPlace place_;
    StageShardings shardings_;
    RankGraphs result_;
};

} // namespace

RankGraphs training_graphs(const Graph& forward, const Plan& plan, int rank) {
    return RankBuilder(forward, plan, rank).training();
}

RankGraphs forward_graphs(const Graph& forward, const Plan& plan, int rank) {
    return RankBuilder(forward, plan, rank).forward();
}

} // namespace tutti::compile
