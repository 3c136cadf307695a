// Events of Chrome's trace format, as both writers of it use them: a process per rank, a thread per track.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace tutti::report {

using ChromeEvents = nlohmann::ordered_json; // an array

void add_process(ChromeEvents& events, int process, const std::string& name);
// Tracks are shown in the order of their numbers.
void add_track(ChromeEvents& events, int process, int track, const std::string& name);

struct ChromeSlice {
    int process = 0, track = 0;
    std::string name;
    std::string_view category;
    double start = 0, end = 0; // microseconds
    nlohmann::ordered_json arguments{};
};
void add_slice(ChromeEvents& events, const ChromeSlice& slice);

// The whole file. `other` is for programs that read it again.
std::string chrome_file(ChromeEvents events, nlohmann::ordered_json other = {});

} // namespace tutti::report
