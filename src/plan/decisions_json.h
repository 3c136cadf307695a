// The parts of a plan file that are decided when a run starts: fusion, residency, timed kernels.
#pragma once

#include "plan/plan.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tutti {

nlohmann::ordered_json fusion_to_json(const FusionOptions& fusion);
nlohmann::ordered_json residency_to_json(const Plan::Residencies& ranks);

// Error naming the file and the place. Whether they fit a model is for those who compile it.
FusionOptions fusion_from_json(const nlohmann::json& json, const std::string& file);
Plan::Residencies residency_from_json(const nlohmann::json& json, const std::string& file);
Plan::TimedKernels timed_kernels_from_json(const nlohmann::json& json, const std::string& file);

// One rank's, on its way to the others.
std::string to_text(const std::optional<offload::PlannedResidency>& residency);
std::optional<offload::PlannedResidency> parse_residency(const std::string& text);

} // namespace tutti
