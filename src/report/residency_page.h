// Residency as a picture: chunks over the moments of a step, coloured by the memory they are in, with the copies, and
// beneath them how full the device is. One page that needs nothing else.
#pragma once

#include "base/units.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::report {

struct ResidencyPicture {
    struct Stay {                           // on the device
        double issue = 0, from = 0, to = 0; // its place is free, its first and last use: moments of the step, below 0
                                            // of the one before, from their number on of the next
        bool fetched = false, returned = false, always = false;
    };
    struct Row {
        std::string name; // "weights 3"
        Bytes size{};
        std::string home; // device, host or disk
        std::vector<Stay> stays{};
        std::vector<double> at_home{}; // moments at which the host works on it
    };
    std::string title;
    std::vector<std::pair<std::string, std::string>> facts{}; // in words
    std::vector<double> starts{};                             // of each moment, in seconds; one more: the end
    std::vector<std::string> tasks{};                         // per moment, what is done
    Bytes budget{};                                           // for chunks, on the device
    std::vector<Row> rows{};
};

std::string residency_page(const ResidencyPicture& picture);

extern const std::string_view residency_template; // residency.html

} // namespace tutti::report
