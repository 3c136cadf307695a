// Output of a schedule: a picture in the terminal, JSON, and files with a page or a trace.
#pragma once

#include "cli/used_files.h"
#include "report/timeline.h"
#include "schedule/costs.h"
#include "schedule/evaluate.h"
#include "schedule/schedule.h"

#include <nlohmann/json.hpp>

#include <span>
#include <string>

namespace tutti::cli {

struct PictureFlags {
    CLI::Option *html, *trace, *json, *colour;
};
PictureFlags add_picture_flags(CLI::App& app);
void add_picture_files(const PictureFlags& flags, UsedFiles& files);

CLI::Option* add_colour_flag(CLI::App& app);
bool wants_colours(const CLI::Option* colour); // Error where it is none of its values

struct EvaluatedSchedule {
    schedule::Schedule schedule;
    schedule::Costs costs;
    schedule::Evaluation evaluation;
    std::string title{}; // by default the family
    std::string units{}; // "ms and MiB"; empty where the costs have none
};

// time, bubble, window_idle, peak_activations and tasks, and the parameters.
nlohmann::ordered_json json_of(const EvaluatedSchedule& evaluated);

// One schedule, or two on one time axis. `note` is a line below the picture.
void show(std::span<const EvaluatedSchedule> schedules, const PictureFlags& flags, const std::string& note = {});

} // namespace tutti::cli
