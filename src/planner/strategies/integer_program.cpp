#include "planner/strategies/integer_program.h"

#include "base/error.h"

#include <Cbc_C_Interface.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

namespace tutti::planner::strategies {
namespace {

using Least = Goal::Least;

// A linear form over variables, kept until its scale is known.
struct Form {
    std::vector<int> columns;
    std::vector<double> values;

    void add(int column, double value) {
        if (value == 0 || column < 0) return;
        columns.push_back(column);
        values.push_back(value);
    }
    double largest() const {
        double most = 0;
        for (double value : values) most = std::max(most, std::abs(value));
        return most;
    }
    // Bytes and seconds of large models are numbers that a simplex does not like. Small ones stay whole.
    double scale() const { return largest() > 1e6 ? 1e6 / largest() : 1; }
};

class Builder {
  public:
    Builder(const Problem& problem, const Goal& goal)
        : problem_(problem), goal_(goal), model_(Cbc_newModel(), &Cbc_deleteModel) {
        Cbc_setLogLevel(model_.get(), 0);
        add_choices();
        for (std::size_t e = 0; e < problem.edges.size(); ++e) add_edge(static_cast<int>(e));
        add_transient();
        if (problem.cap) add_time_points();
        if (goal.most_redundancy) add_row(redundancy(), 'L', static_cast<double>(*goal.most_redundancy));
        if (goal.most_time) add_row(time(), 'L', static_cast<double>(*goal.most_time));
        set_objective();
    }

    ProgramResult solve(const ProgramLimits& limits) {
        Cbc_Model* model = model_.get();
        Cbc_setMaximumSeconds(model, limits.seconds);
        Cbc_setAllowableFractionGap(model, limits.gap);
        Cbc_setAllowableGap(model, 1e-6);
        Cbc_setParameter(model, "slogLevel", "0");
        Cbc_solve(model);
        ProgramResult result;
        result.variables = Cbc_getNumCols(model);
        result.constraints = Cbc_getNumRows(model);
        result.nodes = Cbc_getNodeCount(model);
        if (Cbc_isProvenInfeasible(model) || Cbc_isInitialSolveProvenPrimalInfeasible(model))
            result.status = ProgramResult::Status::infeasible;
        else if (Cbc_numberSavedSolutions(model) > 0 || Cbc_isProvenOptimal(model)) {
            result.status =
                Cbc_isProvenOptimal(model) ? ProgramResult::Status::optimal : ProgramResult::Status::stopped;
            result.solution = evaluate(problem_, chosen(Cbc_getColSolution(model)));
            TUTTI_CHECK(result.solution.has_value(), "the integer program chose options that exclude each other");
            result.bound = Cbc_getBestPossibleObjValue(model) / scale_;
            const double value = Cbc_getObjValue(model) / scale_;
            result.gap = std::max(0.0, value - result.bound) / std::max(1.0, std::abs(value));
            if (result.gap < 1e-9) result.gap = 0;
        }
        return result;
    }

  private:
    int add_column(double upper, bool integer) {
        Cbc_addCol(model_.get(), fmt::format("c{}", columns_).c_str(), 0, upper, 0, integer ? 1 : 0, 0, nullptr,
                   nullptr);
        return columns_++;
    }

    void add_row(Form form, char sense, double right) {
        const double scale = form.scale();
        for (double& value : form.values) value *= scale;
        Cbc_addRow(model_.get(), fmt::format("r{}", rows_++).c_str(), static_cast<int>(form.columns.size()),
                   form.columns.data(), form.values.data(), sense, right * scale);
    }

    void add_choices() {
        for (const ChoiceNode& node : problem_.nodes) {
            Form one;
            std::vector<int>& columns = choices_.emplace_back();
            for (std::size_t o = 0; o < node.options.size(); ++o) {
                columns.push_back(add_column(1, true));
                one.add(columns.back(), 1);
            }
            add_row(one, 'E', 1);
        }
    }

    void add_edge(int index) {
        const ChoiceEdge& edge = problem_.edges[at(index)];
        const std::vector<int>&from = choices_[at(edge.from)], &to = choices_[at(edge.to)];
        std::vector<int>& pairs = pairs_.emplace_back();
        for (const EdgeCost& cost : edge.costs) pairs.push_back(cost.allowed() ? add_column(1, false) : -1);
        for (std::size_t o = 0; o < from.size(); ++o) {
            Form row;
            for (std::size_t p = 0; p < to.size(); ++p) row.add(pairs[o * to.size() + p], 1);
            row.add(from[o], -1);
            add_row(row, 'E', 0);
        }
        for (std::size_t p = 0; p < to.size(); ++p) {
            Form row;
            for (std::size_t o = 0; o < from.size(); ++o) row.add(pairs[o * to.size() + p], 1);
            row.add(to[p], -1);
            add_row(row, 'E', 0);
        }
    }

    // In units of the largest there is, so that its rows are of the size of all others.
    void add_transient() {
        double largest = 0;
        for (const ChoiceNode& node : problem_.nodes)
            for (const OptionCost& option : node.options)
                largest = std::max(largest, static_cast<double>(option.transient));
        for (const ChoiceEdge& edge : problem_.edges)
            for (const EdgeCost& cost : edge.costs) largest = std::max(largest, static_cast<double>(cost.transient));
        if (largest == 0) return;
        transient_unit_ = largest;
        transient_ = add_column(1, false);
        for (std::size_t n = 0; n < problem_.nodes.size(); ++n) {
            Form row;
            for (std::size_t o = 0; o < problem_.nodes[n].options.size(); ++o)
                row.add(choices_[n][o], static_cast<double>(problem_.nodes[n].options[o].transient) / largest);
            bound_transient(row);
        }
        for (std::size_t e = 0; e < problem_.edges.size(); ++e) {
            Form row;
            for (std::size_t i = 0; i < pairs_[e].size(); ++i)
                row.add(pairs_[e][i], static_cast<double>(problem_.edges[e].costs[i].transient) / largest);
            bound_transient(row);
        }
    }

    void bound_transient(Form row) {
        if (row.columns.empty()) return;
        row.add(transient_, -1);
        add_row(row, 'L', 0);
    }

    void add_time_points() {
        double largest = 1;
        for (const TimePoint& time_point : problem_.cap->time_points)
            largest = std::max({largest, static_cast<double>(time_point.always), form_of(time_point).largest()});
        if (goal_.least == Least::peak) peak_ = add_column(std::numeric_limits<double>::infinity(), false);
        peak_unit_ = largest;
        for (const TimePoint& time_point : problem_.cap->time_points) {
            Form row = form_of(time_point);
            double right = static_cast<double>(problem_.cap->most - time_point.always);
            if (peak_ >= 0) {
                row.add(peak_, -largest);
                right = -static_cast<double>(time_point.always);
            }
            add_row(row, 'L', right);
        }
    }

    Form form_of(const TimePoint& time_point) const {
        Form form;
        for (const TimePoint::Part& part : time_point.nodes)
            for (std::size_t o = 0; o < part.bytes.size(); ++o)
                form.add(choices_[at(part.index)][o], static_cast<double>(part.bytes[o]));
        for (const TimePoint::Part& part : time_point.edges)
            for (std::size_t i = 0; i < part.bytes.size(); ++i)
                form.add(pairs_[at(part.index)][i], static_cast<double>(part.bytes[i]));
        return form;
    }

    Form redundancy() const {
        Form form;
        for (std::size_t n = 0; n < problem_.nodes.size(); ++n)
            for (std::size_t o = 0; o < problem_.nodes[n].options.size(); ++o)
                form.add(choices_[n][o],
                         static_cast<double>(problem_.nodes[n].times * problem_.nodes[n].options[o].redundancy));
        for (std::size_t e = 0; e < problem_.edges.size(); ++e)
            for (std::size_t i = 0; i < pairs_[e].size(); ++i)
                if (pairs_[e][i] >= 0)
                    form.add(pairs_[e][i],
                             static_cast<double>(problem_.edges[e].times * problem_.edges[e].costs[i].redundancy));
        form.add(transient_, transient_unit_);
        return form;
    }

    Form time() const {
        Form form;
        for (std::size_t n = 0; n < problem_.nodes.size(); ++n)
            for (std::size_t o = 0; o < problem_.nodes[n].options.size(); ++o)
                form.add(choices_[n][o],
                         static_cast<double>(problem_.nodes[n].times * problem_.nodes[n].options[o].time));
        for (std::size_t e = 0; e < problem_.edges.size(); ++e)
            for (std::size_t i = 0; i < pairs_[e].size(); ++i)
                if (pairs_[e][i] >= 0)
                    form.add(pairs_[e][i],
                             static_cast<double>(problem_.edges[e].times * problem_.edges[e].costs[i].time));
        return form;
    }

    void set_objective() {
        Form form;
        if (goal_.least == Least::peak)
            form.add(peak_, peak_unit_);
        else
            form = goal_.least == Least::time ? time() : redundancy();
        scale_ = form.scale();
        for (std::size_t i = 0; i < form.columns.size(); ++i)
            Cbc_setObjCoeff(model_.get(), form.columns[i], form.values[i] * scale_);
    }

    std::vector<int> chosen(const double* values) const {
        std::vector<int> options;
        for (const std::vector<int>& columns : choices_) {
            auto value = [&](int column) { return values[column]; };
            options.push_back(static_cast<int>(std::ranges::max_element(columns, {}, value) - columns.begin()));
        }
        return options;
    }

    const Problem& problem_;
    const Goal& goal_;
    std::unique_ptr<Cbc_Model, void (*)(Cbc_Model*)> model_;
    int columns_ = 0, rows_ = 0;
    std::vector<std::vector<int>> choices_; // per node and option: its column
    std::vector<std::vector<int>> pairs_;   // per edge and cell: its column, -1 where forbidden
    int transient_ = -1, peak_ = -1;
    double transient_unit_ = 1, peak_unit_ = 1, scale_ = 1;
};

// Which edge or node leaves nothing to choose, where pairs alone say so.
std::string conflict_of(const Problem& problem) {
    std::vector<std::vector<bool>> open;
    for (const ChoiceNode& node : problem.nodes) open.emplace_back(node.options.size(), true);
    auto supported = [&](const ChoiceEdge& edge, int node, std::size_t option) {
        const int other = edge.from == node ? edge.to : edge.from;
        for (std::size_t o = 0; o < open[at(other)].size(); ++o) {
            const int a = static_cast<int>(option), b = static_cast<int>(o);
            if (open[at(other)][o] &&
                (edge.from == node ? problem.cost(edge, a, b) : problem.cost(edge, b, a)).allowed())
                return true;
        }
        return false;
    };
    for (bool changed = true; changed;) {
        changed = false;
        for (const ChoiceEdge& edge : problem.edges)
            for (const int node : {edge.from, edge.to}) {
                for (std::size_t o = 0; o < open[at(node)].size(); ++o)
                    if (open[at(node)][o] && !supported(edge, node, o)) open[at(node)][o] = false, changed = true;
                if (std::ranges::count(open[at(node)], true) == 0)
                    return fmt::format("no strategy of {} goes together with one of {}",
                                       problem.nodes[at(edge.from)].name, problem.nodes[at(edge.to)].name);
            }
    }
    return "no combination of strategies is allowed";
}

} // namespace

ProgramResult solve_program(const Problem& whole, const Goal& goal, const ProgramLimits& limits) {
    const auto start = std::chrono::steady_clock::now();
    TUTTI_CHECK(goal.least != Least::peak || whole.cap, "a peak without time points");
    const Reduced few = reduced(whole);
    ProgramResult result = Builder(few.problem, goal).solve(limits);
    if (result.solution) result.solution = few.restored(whole, *result.solution);
    if (result.status == ProgramResult::Status::infeasible) {
        result.reason = conflict_of(few.problem);
        if (goal.most_redundancy || goal.most_time) result.reason = "no choice is within the bounds asked for";
        if (whole.cap && goal.least != Least::peak) {
            const ProgramResult least = solve_program(whole, {Least::peak, {}, {}}, limits);
            if (least.solution && least.solution->peak > whole.cap->most)
                result.reason =
                    fmt::format("the least that any choice needs is {} bytes, {} more than the cap of {}",
                                least.solution->peak, least.solution->peak - whole.cap->most, whole.cap->most);
        }
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
}

} // namespace tutti::planner::strategies
