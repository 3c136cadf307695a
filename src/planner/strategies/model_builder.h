// Makes the problem of a StrategyModel: vertices in model_builder.cpp, edges in model_edges.cpp.
#pragma once

#include "planner/strategies/model.h"

namespace tutti::planner::strategies {

class ModelBuilder {
  public:
    ModelBuilder(StrategyModel& model, const costs::CostModel& costs);
    void run();

  private:
    using Option = StrategyModel::Option;

    // ---- Vertices
    void add_group(int group);
    void add_options(int group, const MenuItem& item, StrategyModel::Vertex& vertex);
    bool follow_all(const Group& group, Option& option) const;
    OptionCost cost_of(const Group& group, Option& option) const;
    OptionCost weights_of(const Group& group, Option& option) const;
    Amount transient_of(const Group& group, const Option& option) const;
    Amount computing_of(const Group& group, const Option& option) const;
    void add_flow_vertex(int flow);
    void check_axes() const;

    // ---- Edges
    void add_direct(int flow);
    void add_handed_on(int flow);
    void add_ties();
    void add_edge(int from, int to, Amount times, std::vector<EdgeCost> costs, std::vector<Amount> saved);
    struct Cell {
        EdgeCost cost;
        Amount saved = 0;
    };
    // From a group's result to where it is taken, as `taken`; the gradient comes back as `given`.
    Cell delivery(const Flow& flow, const Option& from, const States& taken, const States& gradient, bool saved,
                  bool keep) const;
    void add_cap(Bytes cap);

    const TensorType& type_of(const Flow& flow) const { return graph_.type(flow.value); }
    bool has_own_vertex(const Flow& flow) const;
    bool is_tied(std::int32_t stored) const;
    std::int64_t held_elements(const TensorType& type, const States& states, const std::vector<bool>& held) const;
    Amount share(Amount whole) const { return whole / resharding_.ranks(); }
    Amount weighted(Amount bytes) const;

    StrategyModel& model_;
    const Graph& graph_;
    const ModelOptions& options_;
    ReshardingCost resharding_;
    std::vector<int> group_vertex_, flow_vertex_;
};

} // namespace tutti::planner::strategies
