// What the planner found, in the forms in which it is shown: the values of a page, tables, JSON.
#pragma once

#include "planner/joint.h"
#include "report/plan_page.h"

#include <nlohmann/json.hpp>

#include <string>

namespace tutti::cli {

PlanReport report_of(const std::string& model_name, PlanModel& model, const JointResult& result);
std::string text_of(const PlanReport& report, PlanModel& model, const JointResult& result, double seconds);
std::string bar(double value, double most); // of a curve in a table
nlohmann::ordered_json json_of(const PlanReport& report, PlanModel& model, const JointResult& result, double seconds);

} // namespace tutti::cli
