// The planner's results as they are shown: the values of a page, tables, JSON.
#pragma once

#include "planner/joint.h"
#include "report/plan_page.h"

#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

namespace tutti::cli {

// How long the command searched.
struct PlanSeconds {
    double search = 0, curve = 0; // the curve over devices; 0: there is none
};

report::PlanReport report_of(const std::string& model_name, planner::PlanModel& model,
                             const planner::JointResult& result);
std::string text_of(const report::PlanReport& report, planner::PlanModel& model, const planner::JointResult& result,
                    const PlanSeconds& seconds);
// Where a step goes, and what a rank's device holds, by the names that tables and JSON give them. What is in host
// memory is not counted.
std::vector<std::pair<const char*, double>> named_terms(const planner::StepTerms& terms);
std::vector<std::pair<const char*, Bytes>> named_parts(const planner::RankBytes& all);
std::string host_memory_text(const planner::PlanCost& cost); // of a plan that offloads
std::string bar(double value, double most);                  // of a curve in a table
nlohmann::ordered_json json_of(const report::PlanReport& report, planner::PlanModel& model,
                               const planner::JointResult& result, const PlanSeconds& seconds);

} // namespace tutti::cli
