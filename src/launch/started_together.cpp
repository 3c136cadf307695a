#include "launch/started_together.h"

#include "base/file.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace tutti::launch {

constexpr auto time_to_appear = std::chrono::seconds(15);

std::optional<int> count_siblings() {
    int count = 0;
    std::error_code failed;
    const fs::path tasks = "/proc/" + std::to_string(::getppid()) + "/task"; // threads have children of their own
    for (fs::directory_iterator task(tasks, failed), end; !failed && task != end; task.increment(failed)) {
        std::ifstream children(task->path() / "children");
        for (std::string child; children >> child;) ++count;
    }
    return count > 0 ? std::optional(count) : std::nullopt;
}

std::optional<StartedTogether::Clock::time_point> StartedTogether::lost_since(int siblings, Clock::time_point now) {
    if (siblings >= processes_) {
        were_all_seen_ = true;
        lost_.reset();
    } else if (!lost_ && (were_all_seen_ || (by_parent_ && now - begun_ > time_to_appear))) {
        lost_ = now;
    }
    return lost_;
}

} // namespace tutti::launch
