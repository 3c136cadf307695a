// Control messages of engines: where a rank stands when an operation is late, how the run ends, and leave-taking.
#pragma once

#include "comm/group.h"
#include "comm/operation.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace tutti::comm {

// How many operations of a group a rank has started.
struct GroupCounts {
    std::vector<int> members;
    int channel = 0;
    std::int64_t collectives = 0;
    std::vector<std::int64_t> sends, receives; // by member
};

// An operation as one of its ranks sees it.
struct OperationLabel {
    std::string group;
    std::vector<int> members;
    int channel = 0;
    OperationKind kind = OperationKind::all_reduce;
    std::int64_t sequence = 0, bytes = 0;
    int rank = 0, peer = -1; // within the group
};

// Where a rank stands; also the question where the others stand.
struct Standing {
    std::vector<GroupCounts> counts;
    std::optional<OperationLabel> late, awaited; // what took too long; what the rank's own thread is waiting for
    std::string complaint;                       // of the late operation: "did not finish within 30 s"
    std::vector<int> silent;                     // ranks that this one has asked for a sign of life in vain
};

// The end of the run, in failure: cause and exit status.
struct Verdict {
    Failure failure;
};

struct Heard {};   // the verdict has arrived
struct Leaving {}; // this rank is done
struct Ask {};     // for a sign of life
struct Here {};    // the answer to that

using Control = std::variant<Standing, Verdict, Heard, Leaving, Ask, Here>;

std::vector<std::byte> encode(const Control& control);
Control decode(std::span<const std::byte> content);

} // namespace tutti::comm
