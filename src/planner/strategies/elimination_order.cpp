#include "planner/strategies/elimination_order.h"

#include <algorithm>
#include <set>

namespace tutti::planner::strategies {
namespace {

class Ordering {
  public:
    explicit Ordering(const Problem& problem) {
        for (const ChoiceNode& node : problem.nodes) result_.options.push_back(node.options.size());
        for (std::size_t n = 0; n < problem.nodes.size(); ++n) result_.scopes.push_back({static_cast<int>(n)});
        for (const ChoiceEdge& edge : problem.edges)
            result_.scopes.push_back({std::min(edge.from, edge.to), std::max(edge.from, edge.to)});
        for (std::size_t f = 0; f < result_.scopes.size(); ++f) open_.insert(static_cast<int>(f));
    }

    EliminationOrder run() {
        std::vector<bool> gone(result_.options.size(), false);
        for (std::size_t turn = 0; turn < gone.size(); ++turn) {
            EliminationStep step = next(gone);
            gone[at(step.node)] = true;
            for (int factor : step.takes) open_.erase(factor);
            open_.insert(static_cast<int>(result_.scopes.size()));
            result_.scopes.push_back(step.scope);
            result_.steps.push_back(std::move(step));
        }
        return std::move(result_);
    }

  private:
    EliminationStep step_of(int node) const {
        EliminationStep step{node, {}, {}, 1};
        std::set<int> around;
        for (int factor : open_)
            if (const std::vector<int>& scope = result_.scopes[at(factor)]; std::ranges::binary_search(scope, node)) {
                step.takes.push_back(factor);
                around.insert(scope.begin(), scope.end());
            }
        for (int other : around) step.cells *= static_cast<double>(result_.options[at(other)]);
        around.erase(node);
        step.scope.assign(around.begin(), around.end());
        return step;
    }

    EliminationStep next(const std::vector<bool>& gone) const {
        std::vector<EliminationStep> steps(gone.size());
        for (std::size_t n = 0; n < gone.size(); ++n)
            if (!gone[n]) steps[n] = step_of(static_cast<int>(n));
        std::size_t best = gone.size();
        std::pair<int, double> least;
        for (std::size_t n = 0; n < gone.size(); ++n) {
            if (gone[n]) continue;
            int fill = 0;
            for (int a : steps[n].scope)
                for (int b : steps[n].scope)
                    fill += a < b && !std::ranges::binary_search(steps[at(a)].scope, b) ? 1 : 0;
            const std::pair<int, double> cost{fill, steps[n].cells};
            if (best == gone.size() || cost < least) best = n, least = cost;
        }
        return steps[best];
    }

    EliminationOrder result_;
    std::set<int> open_; // factors that no step has taken
};

Amount sum(Amount a, Amount b) { return a == forbidden || b == forbidden ? forbidden : a + b; }

// One kind of cost, as numbers: up, the least of every step's own part, and down, the least of all else.
class Numbers {
  public:
    Numbers(const Problem& problem, const EliminationOrder& order, bool time) : order_(order) {
        for (const ChoiceNode& node : problem.nodes) {
            std::vector<Amount>& table = tables_.emplace_back();
            for (const OptionCost& option : node.options)
                table.push_back(node.times * (time ? option.time : option.redundancy));
        }
        for (const ChoiceEdge& edge : problem.edges) {
            std::vector<Amount>& table = tables_.emplace_back();
            const int rows = std::min(edge.from, edge.to), columns = std::max(edge.from, edge.to);
            for (std::size_t a = 0; a < order.options[at(rows)]; ++a)
                for (std::size_t b = 0; b < order.options[at(columns)]; ++b) {
                    const int i = static_cast<int>(edge.from == rows ? a : b),
                              j = static_cast<int>(edge.from == rows ? b : a);
                    const EdgeCost& cost = problem.cost(edge, i, j);
                    table.push_back(cost.allowed() ? edge.times * (time ? cost.time : cost.redundancy) : forbidden);
                }
        }
    }

    std::vector<std::vector<Amount>> rests() {
        const std::size_t first = tables_.size();
        for (const EliminationStep& step : order_.steps) up(step);
        std::vector<std::vector<Amount>> rests(order_.steps.size());
        Amount all = 0; // parts that nothing connects have tables of one cell
        for (std::size_t s = 0; s < order_.steps.size(); ++s) {
            rests[s].assign(tables_[first + s].size(), forbidden);
            if (order_.steps[s].scope.empty()) all = sum(all, tables_[first + s][0]);
        }
        for (std::size_t s = order_.steps.size(); s-- > 0;) {
            if (order_.steps[s].scope.empty()) rests[s][0] = all == forbidden ? forbidden : all - tables_[first + s][0];
            down(order_.steps[s], rests[s], first, rests);
        }
        return rests;
    }

  private:
    Amount total(const EliminationStep& step, const std::vector<int>& chosen) const {
        Amount amount = 0;
        for (int factor : step.takes) amount = sum(amount, tables_[at(factor)][order_.cell(factor, chosen)]);
        return amount;
    }

    void up(const EliminationStep& step) {
        std::vector<Amount> table;
        std::vector<int> chosen(order_.options.size(), 0);
        do {
            Amount least = forbidden;
            for (std::size_t o = 0; o < order_.options[at(step.node)]; ++o) {
                chosen[at(step.node)] = static_cast<int>(o);
                least = std::min(least, total(step, chosen));
            }
            table.push_back(least);
        } while (order_.advance(step.scope, chosen));
        tables_.push_back(std::move(table));
    }

    void down(const EliminationStep& step, const std::vector<Amount>& rest, std::size_t first,
              std::vector<std::vector<Amount>>& rests) const {
        std::vector<int> chosen(order_.options.size(), 0);
        std::size_t cell = 0;
        do {
            const Amount outside = rest[cell++];
            if (outside == forbidden) continue;
            for (std::size_t o = 0; o < order_.options[at(step.node)]; ++o) {
                chosen[at(step.node)] = static_cast<int>(o);
                const Amount whole = sum(outside, total(step, chosen));
                if (whole == forbidden) continue;
                for (int factor : step.takes) {
                    if (at(factor) < first) continue;
                    const std::size_t in = order_.cell(factor, chosen);
                    Amount& least = rests[at(factor) - first][in];
                    least = std::min(least, whole - tables_[at(factor)][in]);
                }
            }
        } while (order_.advance(step.scope, chosen));
    }

    const EliminationOrder& order_;
    std::vector<std::vector<Amount>> tables_; // per factor
};

} // namespace

std::size_t EliminationOrder::cell(int factor, const std::vector<int>& chosen) const {
    std::size_t cell = 0;
    for (int node : scopes[at(factor)]) cell = cell * options[at(node)] + at(chosen[at(node)]);
    return cell;
}

std::size_t EliminationOrder::cells(int factor) const {
    std::size_t cells = 1;
    for (int node : scopes[at(factor)]) cells *= options[at(node)];
    return cells;
}

bool EliminationOrder::advance(const std::vector<int>& scope, std::vector<int>& chosen) const {
    for (std::size_t i = scope.size(); i-- > 0;) {
        if (++chosen[at(scope[i])] < static_cast<int>(options[at(scope[i])])) return true;
        chosen[at(scope[i])] = 0;
    }
    return false;
}

EliminationOrder elimination_order(const Problem& problem) { return Ordering(problem).run(); }

Completion completion(const Problem& problem, const EliminationOrder& order) {
    return {Numbers(problem, order, false).rests(), Numbers(problem, order, true).rests()};
}

} // namespace tutti::planner::strategies
