#include "comm/inquiry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace tutti::comm {
namespace {

using Standings = std::vector<std::optional<Standing>>;
using Ranks = std::set<int>;

std::string name(const Ranks& ranks) {
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

bool is_message(const OperationLabel& operation) { return operation.peer >= 0; }

std::string name(const OperationLabel& operation) {
    std::string text = fmt::format("{} {} of group {}", name_of(operation.kind), operation.sequence, operation.group);
    if (is_message(operation))
        text += fmt::format(" {} rank {}", operation.kind == OperationKind::send ? "to" : "from",
                            operation.members[operation.peer]);
    return text + fmt::format(" ({})", to_string(Bytes{operation.bytes}));
}

// Whether a rank with this standing has started its side of the operation.
bool has_arrived(const Standing& standing, const OperationLabel& operation) {
    const auto counts = std::ranges::find_if(standing.counts, [&](const GroupCounts& one) {
        return one.channel == operation.channel && one.members == operation.members;
    });
    if (counts == standing.counts.end()) return false; // it has not even made the group
    if (!is_message(operation)) return counts->collectives >= operation.sequence;
    const auto& started = operation.kind == OperationKind::send ? counts->receives : counts->sends;
    return started[operation.rank] >= operation.sequence;
}

Ranks missing(const Standings& standings, const OperationLabel& operation) {
    Ranks result;
    for (int place = 0; place < static_cast<int>(operation.members.size()); ++place) {
        if (is_message(operation) ? place != operation.peer : place == operation.rank) continue;
        const int rank = operation.members[place];
        if (!standings[rank] || !has_arrived(*standings[rank], operation)) result.insert(rank);
    }
    return result;
}

// Follows who waits for whom from the late operation to an operation that is held up by ranks that wait for nobody.
struct Culprits {
    const OperationLabel* operation;
    Ranks ranks;
};
Culprits find_culprits(const Standings& standings, const OperationLabel& late) {
    std::set<int> seen{late.members[late.rank]};
    std::vector<const OperationLabel*> waiting{&late};
    for (std::size_t next = 0; next < waiting.size(); ++next) {
        Ranks guilty;
        for (const int rank : missing(standings, *waiting[next])) {
            const bool waits = standings[rank] && standings[rank]->awaited;
            if (!waits)
                guilty.insert(rank);
            else if (seen.insert(rank).second)
                waiting.push_back(&*standings[rank]->awaited);
        }
        if (!guilty.empty()) return {waiting[next], guilty};
    }
    return {&late, missing(standings, late)}; // they wait for each other
}

Ranks silent_for_long(const Standings& standings, const Standing* complaining) {
    Ranks result;
    if (complaining && complaining->complaint == held_up)
        for (const auto& standing : standings)
            if (standing) result.insert(standing->silent.begin(), standing->silent.end());
    return result;
}

Ranks in_both(const Ranks& some, const Ranks& others) {
    Ranks result;
    std::ranges::set_intersection(some, others, std::inserter(result, result.end()));
    return result;
}

} // namespace

std::string find_fault(const Standings& standings, const std::vector<bool>& left) {
    Ranks silent;
    const Standing* complaining = nullptr;
    for (int rank = 0; rank < static_cast<int>(standings.size()); ++rank) {
        if (!standings[rank] && !left[rank]) silent.insert(rank);
        if (!complaining && standings[rank] && !standings[rank]->complaint.empty()) complaining = &*standings[rank];
    }
    // Who did not answer for long is to blame, not who is slow to answer now. If it was stopped and goes on, it is
    // still.
    const Ranks suspects = silent_for_long(standings, complaining);
    std::string text = complaining ? complaining->complaint : "the ranks lost each other";
    if (complaining && complaining->late) text = fmt::format("{} {}", name(*complaining->late), text);
    if (Ranks lost = in_both(suspects, silent); !lost.empty()) silent = std::move(lost);
    if (silent.empty() && !suspects.empty())
        return fmt::format("{}: {} did not answer for long (stopped, or on a machine without time for {})", text,
                           name(suspects), suspects.size() == 1 ? "it" : "them");
    if (!silent.empty())
        return fmt::format("{}: {} {}", text, name(silent),
                           silent.size() == 1 ? "does not answer (it was killed or stopped)"
                                              : "do not answer (they were killed or stopped)");
    if (!complaining || !complaining->late) return text;

    const Culprits culprits = find_culprits(standings, *complaining->late);
    if (culprits.ranks.empty()) return text + ", though all ranks arrived";
    if (culprits.operation != &*complaining->late)
        text += fmt::format(": it is held up by {}", name(*culprits.operation));
    Ranks ended, absent;
    for (const int rank : culprits.ranks) (left[rank] ? ended : absent).insert(rank);
    if (!absent.empty()) text += fmt::format(": {} did not arrive", name(absent));
    if (!ended.empty()) text += fmt::format(": {} had already ended", name(ended));
    return text;
}

void Inquiry::begin(Standing mine, Clock::time_point now) {
    standings_[rank_] = std::move(mine);
    begun_ = now;
}

bool Inquiry::complete() const {
    for (std::size_t rank = 0; rank < standings_.size(); ++rank)
        if (!standings_[rank] && !left_[rank]) return false;
    return true;
}

Clock::time_point Inquiry::next_look(Clock::time_point now) const {
    if (!under_way()) return Clock::time_point::max();
    return now < begun_ + time_to_answer ? begun_ + time_to_answer : begun_ + time_to_answer + time_to_speak;
}

std::optional<std::string> Inquiry::sentence(Clock::time_point now) const {
    if (!under_way()) return std::nullopt;
    const auto first = std::ranges::find_if(standings_, [](const auto& one) { return one.has_value(); });
    const bool is_my_turn = first - standings_.begin() == rank_;
    const bool has_waited = now >= begun_ + time_to_answer, is_alone = now >= begun_ + time_to_answer + time_to_speak;
    if (is_alone || (is_my_turn && (has_waited || complete()))) return find_fault(standings_, left_);
    return std::nullopt;
}

} // namespace tutti::comm
