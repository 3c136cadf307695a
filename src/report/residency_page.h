// A picture of residency as one self-contained page: chunks over the time points of a step, coloured by the memory they
// are in, with the copies, and how full the device is.
#pragma once

#include "base/units.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::report {

struct ResidencyPicture {
    struct ResidencyInterval {              // on the device
        double issue = 0, from = 0, to = 0; // its place is free, its first and last use: time points of the step; below
                                            // 0 of the step before, from their number on of the next
        bool fetched = false, returned = false, always = false;
    };
    struct Row {
        std::string name; // "weights 3"
        Bytes size{};
        std::string tier; // device, host or disk
        std::vector<ResidencyInterval> intervals{};
        std::vector<double> on_host{}; // time points at which the host works on it
    };
    std::string title;
    std::vector<std::pair<std::string, std::string>> facts{}; // in words
    std::vector<double> starts{};                             // of each time point, in seconds; one more: the end
    std::vector<std::string> tasks{};                         // per time point, what is done
    Bytes budget{};                                           // for chunks, on the device
    std::vector<Row> rows{};
};

std::string residency_page(const ResidencyPicture& picture);

extern const std::string_view residency_template; // residency.html

} // namespace tutti::report
