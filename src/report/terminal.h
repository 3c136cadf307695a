// A timeline as text: a line per rank, a character per piece of time.
//
//   rank 0  F0---F1---.....B0--------F2---....
//
// With colours a box is its background and holds the micro-batch's number; without, it begins with a letter.
#pragma once

#include "report/timeline.h"

#include <cstddef>
#include <span>
#include <string>

namespace tutti::report {

struct TerminalStyle {
    std::size_t columns = 100;
    bool colours = false; // 256 of them
};

// All on one time axis, one below the other, with one legend.
std::string terminal_picture(std::span<const Timeline> timelines, const TerminalStyle& style);

} // namespace tutti::report
