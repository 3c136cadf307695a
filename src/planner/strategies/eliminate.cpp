#include "planner/strategies/eliminate.h"

#include "base/error.h"
#include "planner/strategies/elimination_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace tutti::planner::strategies {
namespace {

// What a set of chosen options costs. Which ones they are is told by a tree of choices and joins.
struct Entry {
    Amount redundancy = 0; // without the transient
    Amount transient = 0;
    Amount time = 0;
    std::int32_t left = -1, right = -1; // traces

    Amount total() const { return redundancy + transient; }
};
using List = std::vector<Entry>;

struct Trace {
    std::int32_t left = -1, right = -1; // of a leaf: node and option, as -2 - node and the option
};

// Which entries are worth keeping. Whatever an entry is joined with later adds the same to its sums, and lifts its
// transient to at least some level; so one that is no worse in redundancy both without the transient (a high level) and
// with it (a low one) stays no worse.
enum class Worth { redundancy, time, both };

// The lower left border of points: those that no other is below of in both.
class Staircase {
  public:
    bool covers(Amount x, Amount y) const {
        auto above = std::ranges::upper_bound(steps_, x, {}, &std::pair<Amount, Amount>::first);
        return above != steps_.begin() && std::prev(above)->second <= y;
    }
    void add(Amount x, Amount y) {
        auto first = std::ranges::lower_bound(steps_, x, {}, &std::pair<Amount, Amount>::first), last = first;
        while (last != steps_.end() && last->second >= y) ++last;
        if (first == last)
            steps_.insert(first, {x, y});
        else {
            *first = {x, y};
            steps_.erase(first + 1, last);
        }
    }
    void clear() { steps_.clear(); }

  private:
    std::vector<std::pair<Amount, Amount>> steps_; // x rising, y falling
};

void prune(List& list, Worth worth) {
    if (list.size() < 2) return;
    auto key = [worth](const Entry& e) {
        return worth == Worth::redundancy ? std::array{e.redundancy, e.total(), e.time}
                                          : std::array{e.time, e.redundancy, e.total()};
    };
    std::ranges::sort(list, {}, key);
    if (worth == Worth::time) { // others than the fastest are of no use
        const Amount least = list[0].time;
        std::erase_if(list, [&](const Entry& e) { return e.time > least; });
    }
    Staircase best;
    std::size_t kept = 0;
    for (const Entry& entry : list) {
        if (best.covers(entry.redundancy, entry.total())) continue;
        best.add(entry.redundancy, entry.total());
        list[kept++] = entry;
    }
    list.resize(kept);
}

// What is still of interest: a whole choice within these, given what the rest costs at least.
struct Box {
    Amount redundancy = forbidden, time = forbidden;
};

class Eliminator {
  public:
    Eliminator(const Problem& problem, const EliminationOrder& order, const Completion& rest, Worth worth,
               const Box& box, const EliminationLimits& limits, Elimination& result)
        : problem_(problem), order_(order), rest_(rest), worth_(worth), box_(box), limits_(limits), result_(result) {
        for (std::size_t n = 0; n < problem.nodes.size(); ++n) add_node(static_cast<int>(n));
        for (const ChoiceEdge& edge : problem.edges) add_edge(edge);
    }

    // All that are worth keeping, of all nodes together; false where a limit was in the way.
    bool run(List& all) {
        for (std::size_t s = 0; s < order_.steps.size(); ++s)
            if (!take(s)) return false;
        all = {Entry{}};
        const std::size_t first = tables_.size() - order_.steps.size();
        for (std::size_t s = 0; s < order_.steps.size(); ++s)
            if (order_.steps[s].scope.empty()) all = joined(all, tables_[first + s][0]);
        prune(all, worth_);
        return true;
    }

    std::vector<int> choice(const Entry& entry) const {
        std::vector<int> options(problem_.nodes.size(), -1);
        std::vector<std::int32_t> waiting = {entry.left, entry.right};
        while (!waiting.empty()) {
            const std::int32_t trace = waiting.back();
            waiting.pop_back();
            if (trace < 0) continue;
            const Trace& t = traces_[at(trace)];
            if (t.left <= -2)
                options[at(-2 - t.left)] = t.right;
            else
                waiting.insert(waiting.end(), {t.left, t.right});
        }
        return options;
    }

  private:
    using Table = std::vector<List>;

    void add_node(int node) {
        const ChoiceNode& of = problem_.nodes[at(node)];
        Table& table = tables_.emplace_back();
        for (std::size_t o = 0; o < of.options.size(); ++o) {
            const OptionCost& cost = of.options[o];
            traces_.push_back({-2 - node, static_cast<std::int32_t>(o)});
            table.push_back({Entry{of.times * cost.redundancy, cost.transient, of.times * cost.time,
                                   static_cast<std::int32_t>(traces_.size()) - 1, -1}});
        }
    }

    void add_edge(const ChoiceEdge& edge) {
        const bool swapped = edge.from > edge.to;
        Table& table = tables_.emplace_back();
        for (int a = 0; a < static_cast<int>(order_.options[at(std::min(edge.from, edge.to))]); ++a)
            for (int b = 0; b < static_cast<int>(order_.options[at(std::max(edge.from, edge.to))]); ++b) {
                const EdgeCost& cost = swapped ? problem_.cost(edge, b, a) : problem_.cost(edge, a, b);
                List& cell = table.emplace_back();
                if (cost.allowed())
                    cell.push_back(Entry{edge.times * cost.redundancy, cost.transient, edge.times * cost.time});
            }
    }

    bool take(std::size_t s) {
        const EliminationStep& step = order_.steps[s];
        // Plain costs first: lists then grow once.
        std::vector<int> factors = step.takes;
        std::ranges::stable_sort(factors, {}, [&](int factor) {
            std::size_t longest = 0;
            for (const List& cell : tables_[at(factor)]) longest = std::max(longest, cell.size());
            return longest;
        });
        Table table;
        std::vector<int> chosen(order_.options.size(), 0);
        do {
            const std::size_t cell = table.size();
            table.push_back(cell_of(step, factors, rest_.redundancy[s][cell], rest_.time[s][cell], chosen));
            if (static_cast<double>(result_.entries) > limits_.most_entries) {
                result_.reason = fmt::format("more than {:.3g} combinations of costs are worth keeping when {} has its "
                                             "turn",
                                             limits_.most_entries, problem_.nodes[at(step.node)].name);
                return false;
            }
        } while (order_.advance(step.scope, chosen));
        tables_.push_back(std::move(table));
        for (int factor : step.takes) tables_[at(factor)] = {};
        return true;
    }

    List cell_of(const EliminationStep& step, const std::vector<int>& factors, Amount rest_redundancy, Amount rest_time,
                 std::vector<int>& chosen) {
        List all;
        if (rest_redundancy == forbidden || rest_time == forbidden) return all;
        auto within = [&](const Entry& entry) {
            return (box_.redundancy == forbidden || entry.total() <= box_.redundancy - rest_redundancy) &&
                   (box_.time == forbidden || entry.time <= box_.time - rest_time);
        };
        for (std::size_t o = 0; o < order_.options[at(step.node)]; ++o) {
            chosen[at(step.node)] = static_cast<int>(o);
            List list = {Entry{}};
            for (int factor : factors) {
                list = joined(list, tables_[at(factor)][order_.cell(factor, chosen)]);
                std::erase_if(list, [&](const Entry& entry) { return !within(entry); });
                if (list.empty()) break;
            }
            all.insert(all.end(), list.begin(), list.end());
        }
        prune(all, worth_);
        for (Entry& entry : all) entry = settled(entry);
        result_.entries += all.size();
        return all;
    }

    // Every sum of one of each. Traces are only made for what is kept.
    List joined(const List& a, const List& b) {
        List sums;
        if (a.empty() || b.empty()) return sums;
        sums.reserve(a.size() * b.size());
        for (const Entry& x : a) {
            const std::int32_t left = trace_of(x);
            for (const Entry& y : b)
                sums.push_back({x.redundancy + y.redundancy, std::max(x.transient, y.transient), x.time + y.time, left,
                                trace_of(y)});
        }
        if (a.size() > 1 && b.size() > 1) prune(sums, worth_);
        return sums;
    }

    std::int32_t trace_of(const Entry& entry) {
        if (entry.right < 0) return entry.left;
        if (entry.left < 0) return entry.right;
        traces_.push_back({entry.left, entry.right});
        return static_cast<std::int32_t>(traces_.size()) - 1;
    }

    Entry settled(Entry entry) {
        entry.left = trace_of(entry);
        entry.right = -1;
        return entry;
    }

    const Problem& problem_;
    const EliminationOrder& order_;
    const Completion& rest_;
    Worth worth_;
    Box box_;
    const EliminationLimits& limits_;
    Elimination& result_;
    std::vector<Table> tables_; // per factor
    std::vector<Trace> traces_;
};

// A problem whose useless options are gone, in an order, with what rests cost: asked several times.
class Solving {
  public:
    Solving(const Problem& whole, const EliminationLimits& limits, Elimination& result)
        : whole_(whole), limits_(limits), result_(result), few_(reduced(whole)),
          order_(elimination_order(few_.problem)) {
        for (const EliminationStep& step : order_.steps) {
            result.width = std::max(result.width, static_cast<int>(step.scope.size()));
            result.cells = std::max(result.cells, step.cells);
            if (step.cells > limits.most_cells && result.reason.empty())
                result.reason = fmt::format(
                    "{} has {} neighbours when its turn comes, {:.3g} combinations of options; the limit is "
                    "{:.3g}",
                    few_.problem.nodes[at(step.node)].name, step.scope.size(), step.cells, limits.most_cells);
        }
        if (result.reason.empty()) rest_ = completion(few_.problem, order_);
    }

    // By redundancy; nothing where a limit was in the way.
    std::optional<std::vector<Solution>> best(Worth worth, const Box& box) {
        if (!result_.reason.empty()) return std::nullopt;
        Eliminator eliminator(few_.problem, order_, rest_, worth, box, limits_, result_);
        List all;
        if (!eliminator.run(all)) return std::nullopt;
        std::ranges::sort(all, {}, [](const Entry& e) { return std::pair(e.total(), e.time); }); // only sums count now
        std::vector<Solution> front;
        for (const Entry& entry : all) {
            if (!front.empty() && entry.time >= front.back().time) continue;
            const auto found = evaluate(few_.problem, eliminator.choice(entry));
            TUTTI_CHECK(found && found->redundancy == entry.total() && found->time == entry.time,
                        "a choice costs {} and {}, but {} and {} were counted", found ? found->redundancy : -1,
                        found ? found->time : -1, entry.total(), entry.time);
            front.push_back(few_.restored(whole_, *found));
        }
        return front;
    }

  private:
    const Problem& whole_;
    const EliminationLimits& limits_;
    Elimination& result_;
    Reduced few_;
    EliminationOrder order_;
    Completion rest_;
};

template <class Ask>
Elimination run(const Problem& problem, const EliminationLimits& limits, Ask ask) {
    const auto start = std::chrono::steady_clock::now();
    Elimination result;
    if (problem.cap) {
        result.reason = "a cap on memory at every time point is left to the integer program";
        return result;
    }
    Solving solving(problem, limits, result);
    if (auto found = ask(solving)) {
        result.solved = true;
        result.front = std::move(*found);
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
}

} // namespace

// The ends first: between them lies all that is of interest.
Elimination pareto_front(const Problem& problem, const EliminationLimits& limits) {
    return run(problem, limits, [](Solving& solving) -> std::optional<std::vector<Solution>> {
        const auto fastest = solving.best(Worth::time, {}), least = solving.best(Worth::redundancy, {});
        if (!fastest || !least || fastest->empty()) return fastest;
        const Amount most = fastest->back().redundancy;
        const auto lean = solving.best(Worth::both, {least->front().redundancy, forbidden});
        if (!lean) return std::nullopt;
        return solving.best(Worth::both, {most, lean->front().time});
    });
}

Elimination eliminate(const Problem& problem, Goal::Least least, const EliminationLimits& limits) {
    return run(problem, limits, [least](Solving& solving) -> std::optional<std::vector<Solution>> {
        auto found = solving.best(least == Goal::Least::time ? Worth::time : Worth::redundancy, {});
        if (!found || found->empty()) return found;
        return std::vector{least == Goal::Least::time ? found->back() : found->front()};
    });
}

} // namespace tutti::planner::strategies
