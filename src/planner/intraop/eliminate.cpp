#include "planner/intraop/eliminate.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>

namespace tutti::intraop {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

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

// A table over the options of some nodes, the last of them fastest.
struct Factor {
    std::vector<int> scope; // ascending
    std::vector<List> cells;
};

class Eliminator {
  public:
    Eliminator(const Problem& problem, Worth worth, const EliminationLimits& limits, Elimination& result)
        : problem_(problem), worth_(worth), limits_(limits), result_(result), options_(problem.nodes.size()) {
        for (std::size_t n = 0; n < options_.size(); ++n) options_[n] = problem.nodes[n].options.size();
        for (std::size_t n = 0; n < options_.size(); ++n) add_node(static_cast<int>(n));
        for (const ChoiceEdge& edge : problem.edges) add_edge(edge);
    }

    // All that are worth keeping, of all nodes together; false where a limit was in the way.
    bool run(List& all) {
        std::vector<bool> gone(options_.size(), false);
        for (std::size_t turn = 0; turn < options_.size(); ++turn) {
            const int node = next(gone);
            if (!remove(node)) return false;
            gone[at(node)] = true;
        }
        all = {Entry{}};
        for (const Factor& factor : factors_) all = joined(all, factor.cells[0]);
        prune(all, worth_);
        return true;
    }

    std::vector<int> choice(const Entry& entry) const {
        std::vector<int> options(options_.size(), -1);
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
    void add_node(int node) {
        const ChoiceNode& of = problem_.nodes[at(node)];
        Factor& factor = factors_.emplace_back(Factor{{node}, {}});
        for (std::size_t o = 0; o < of.options.size(); ++o) {
            const OptionCost& cost = of.options[o];
            traces_.push_back({-2 - node, static_cast<std::int32_t>(o)});
            factor.cells.push_back({Entry{of.times * cost.redundancy, cost.transient, of.times * cost.time,
                                          static_cast<std::int32_t>(traces_.size()) - 1, -1}});
        }
    }

    void add_edge(const ChoiceEdge& edge) {
        const bool swapped = edge.from > edge.to;
        Factor& factor = factors_.emplace_back(
            Factor{swapped ? std::vector{edge.to, edge.from} : std::vector{edge.from, edge.to}, {}});
        for (int a = 0; a < static_cast<int>(options_[at(factor.scope[0])]); ++a)
            for (int b = 0; b < static_cast<int>(options_[at(factor.scope[1])]); ++b) {
                const EdgeCost& cost = swapped ? problem_.cost(edge, b, a) : problem_.cost(edge, a, b);
                List& cell = factor.cells.emplace_back();
                if (cost.allowed())
                    cell.push_back(Entry{edge.times * cost.redundancy, cost.transient, edge.times * cost.time});
            }
    }

    std::set<int> neighbours(int node) const {
        std::set<int> result;
        for (const Factor& factor : factors_)
            if (std::ranges::binary_search(factor.scope, node)) result.insert(factor.scope.begin(), factor.scope.end());
        result.erase(node);
        return result;
    }

    double cells_of(int node, const std::set<int>& around) const {
        double cells = static_cast<double>(options_[at(node)]);
        for (int other : around) cells *= static_cast<double>(options_[at(other)]);
        return cells;
    }

    // The node that ties the fewest of its neighbours together that were not; among equals the smallest table.
    int next(const std::vector<bool>& gone) const {
        std::vector<std::set<int>> around(options_.size());
        for (std::size_t n = 0; n < options_.size(); ++n)
            if (!gone[n]) around[n] = neighbours(static_cast<int>(n));
        int best = -1;
        std::pair<int, double> least;
        for (std::size_t n = 0; n < options_.size(); ++n) {
            if (gone[n]) continue;
            int fill = 0;
            for (int a : around[n])
                for (int b : around[n]) fill += a < b && !around[at(a)].contains(b) ? 1 : 0;
            const std::pair<int, double> cost{fill, cells_of(static_cast<int>(n), around[n])};
            if (best < 0 || cost < least) best = static_cast<int>(n), least = cost;
        }
        return best;
    }

    bool remove(int node) {
        const std::set<int> around = neighbours(node);
        const double cells = cells_of(node, around);
        result_.width = std::max(result_.width, static_cast<int>(around.size()));
        result_.cells = std::max(result_.cells, cells);
        if (cells > limits_.most_cells) {
            result_.reason =
                fmt::format("{} has {} neighbours when its turn comes, {:.3g} combinations of options; the "
                            "limit is {:.3g}",
                            problem_.nodes[at(node)].name, around.size(), cells, limits_.most_cells);
            return false;
        }
        std::vector<Factor> taken;
        std::erase_if(factors_, [&](Factor& factor) {
            if (!std::ranges::binary_search(factor.scope, node)) return false;
            taken.push_back(std::move(factor));
            return true;
        });
        // Plain costs first: lists then grow once.
        std::ranges::stable_sort(taken, {}, [](const Factor& factor) {
            std::size_t longest = 0;
            for (const List& cell : factor.cells) longest = std::max(longest, cell.size());
            return longest;
        });
        Factor table{{around.begin(), around.end()}, {}};
        std::vector<int> options(options_.size(), 0);
        do {
            table.cells.push_back(cell_of(node, taken, options));
            if (static_cast<double>(result_.entries) > limits_.most_entries) {
                result_.reason = fmt::format("more than {:.3g} combinations of costs are worth keeping when {} has its "
                                             "turn",
                                             limits_.most_entries, problem_.nodes[at(node)].name);
                return false;
            }
        } while (advance(table.scope, options));
        factors_.push_back(std::move(table));
        return true;
    }

    List cell_of(int node, const std::vector<Factor>& taken, std::vector<int>& options) {
        List all;
        for (std::size_t o = 0; o < options_[at(node)]; ++o) {
            options[at(node)] = static_cast<int>(o);
            List list = {Entry{}};
            for (const Factor& factor : taken) {
                list = joined(list, factor.cells[cell_index(factor, options)]);
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
        const bool own = a.size() > 1 && b.size() > 1; // then one is worth pruning at once
        sums.reserve(a.size() * b.size());
        for (const Entry& x : a) {
            const std::int32_t left = trace_of(x);
            for (const Entry& y : b)
                sums.push_back({x.redundancy + y.redundancy, std::max(x.transient, y.transient), x.time + y.time, left,
                                trace_of(y)});
        }
        if (own) prune(sums, worth_);
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

    std::size_t cell_index(const Factor& factor, const std::vector<int>& options) const {
        std::size_t cell = 0;
        for (int node : factor.scope) cell = cell * options_[at(node)] + at(options[at(node)]);
        return cell;
    }

    bool advance(const std::vector<int>& scope, std::vector<int>& options) const {
        for (std::size_t i = scope.size(); i-- > 0;) {
            if (++options[at(scope[i])] < static_cast<int>(options_[at(scope[i])])) return true;
            options[at(scope[i])] = 0;
        }
        return false;
    }

    const Problem& problem_;
    Worth worth_;
    const EliminationLimits& limits_;
    Elimination& result_;
    std::vector<std::size_t> options_; // per node: how many
    std::vector<Factor> factors_;
    std::vector<Trace> traces_;
};

Elimination run(const Problem& whole, Worth worth, const EliminationLimits& limits) {
    const auto start = std::chrono::steady_clock::now();
    Elimination result;
    if (whole.cap) {
        result.reason = "a cap on memory at every moment is left to the integer program";
        return result;
    }
    const Reduced few = reduced(whole);
    Eliminator eliminator(few.problem, worth, limits, result);
    List all;
    result.solved = eliminator.run(all);
    if (result.solved) {
        // At the end only the sums count.
        std::ranges::sort(all, {}, [](const Entry& e) { return std::pair(e.total(), e.time); });
        for (const Entry& entry : all) {
            if (!result.front.empty() && entry.time >= result.front.back().time) continue;
            const auto found = evaluate(few.problem, eliminator.choice(entry));
            TUTTI_CHECK(found && found->redundancy == entry.total() && found->time == entry.time,
                        "a choice costs {} and {}, but {} and {} were counted", found ? found->redundancy : -1,
                        found ? found->time : -1, entry.total(), entry.time);
            result.front.push_back(few.restored(whole, *found));
        }
        if (worth == Worth::redundancy && !result.front.empty()) result.front.resize(1);
        if (worth == Worth::time && !result.front.empty())
            result.front.erase(result.front.begin(), result.front.end() - 1);
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
}

} // namespace

Elimination pareto_front(const Problem& problem, const EliminationLimits& limits) {
    return run(problem, Worth::both, limits);
}

Elimination eliminate(const Problem& problem, Goal::Least least, const EliminationLimits& limits) {
    return run(problem, least == Goal::Least::time ? Worth::time : Worth::redundancy, limits);
}

} // namespace tutti::intraop
