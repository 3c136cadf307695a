#include "text/splitting.h"

#include <algorithm>

namespace tutti::text {
namespace {

// Joins each match with what is already there, at the end of it or (backwards) at its beginning. Of matches in a row
// only the first joins.
std::vector<Match> merged(const std::vector<Match>& matches, bool backwards) {
    std::vector<Match> pieces;
    bool previous = false;
    const auto add = [&](const Match& match) {
        if (match.matched && !previous && !pieces.empty())
            (backwards ? pieces.back().begin = match.begin : pieces.back().end = match.end);
        else
            pieces.push_back({match.begin, match.end, false});
        previous = match.matched;
    };
    if (backwards)
        std::for_each(matches.rbegin(), matches.rend(), add);
    else
        std::ranges::for_each(matches, add);
    if (backwards) std::ranges::reverse(pieces);
    return pieces;
}

std::vector<Match> contiguous(const std::vector<Match>& matches) {
    std::vector<Match> pieces;
    bool previous = false;
    for (const Match& match : matches) {
        if (match.matched == previous && !pieces.empty())
            pieces.back().end = match.end;
        else
            pieces.push_back({match.begin, match.end, false});
        previous = match.matched;
    }
    return pieces;
}

} // namespace

std::vector<Match> split(std::vector<Match> matches, SplitBehavior behavior, bool invert) {
    if (invert)
        for (Match& match : matches) match.matched = !match.matched;
    switch (behavior) {
    case SplitBehavior::removed: std::erase_if(matches, [](const Match& match) { return match.matched; }); break;
    case SplitBehavior::isolated: break;
    case SplitBehavior::merged_with_previous: return merged(matches, false);
    case SplitBehavior::merged_with_next: return merged(matches, true);
    case SplitBehavior::contiguous: return contiguous(matches);
    }
    return matches;
}

Piece Piece::part(std::size_t begin, std::size_t end) const {
    const std::size_t from_start = at_start > begin ? std::min(at_start, end) - begin : 0;
    return {text.substr(begin, end - begin), from_start};
}

} // namespace tutti::text
