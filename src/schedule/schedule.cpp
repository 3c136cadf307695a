#include "schedule/schedule.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tutti::schedule {

std::string_view name_of(Work work) {
    static constexpr std::array<std::string_view, 5> names = {"F", "R", "B", "W", "BW"};
    return names[static_cast<std::size_t>(work)];
}

std::string to_string(const ScheduledTask& task) {
    const std::string stage = task.stage == 0 ? "" : fmt::format(".{}", task.stage);
    return fmt::format("{}{}{}{}{}", name_of(task.work), task.micro_batch, stage, std::string(task.replica, '\''),
                       task.recomputes ? "*" : "");
}

ScheduledTask parse_task(std::string_view text) {
    ScheduledTask task;
    std::string_view rest = text;
    const auto fail_here = [&] { fail("\"{}\" is no task; \"F2\" or \"BW2.1\" would be", text.substr(0, 40)); };
    auto take = [&](std::string_view prefix) {
        if (!rest.starts_with(prefix)) return false;
        rest.remove_prefix(prefix.size());
        return true;
    };
    auto take_number = [&](auto& number) {
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
        if (error != std::errc{}) fail_here();
        rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    };
    // BW before B, of which it is no abbreviation.
    for (const Work work :
         {Work::full_backward, Work::forward, Work::recompute, Work::backward, Work::weight_gradient}) {
        if (!take(name_of(work))) continue;
        task.work = work;
        break;
    }
    if (rest.size() == text.size()) fail_here();
    take_number(task.micro_batch);
    if (take(".")) take_number(task.stage);
    while (take("'"))
        if (++task.replica == 0) fail_here();
    task.recomputes = take("*");
    if (!rest.empty()) fail_here();
    return task;
}

bool splits_backward(const Schedule& schedule) {
    return std::ranges::any_of(schedule.tasks,
                               [](const ScheduledTask& task) { return task.work == Work::weight_gradient; });
}

std::string to_text(const Schedule& schedule) {
    std::string text;
    for (int r = 0; r < schedule.ranks(); ++r) {
        text += fmt::format("rank {}:", r);
        for (const ScheduledTask& task : schedule.rank(r)) text += " " + to_string(task);
        text += "\n";
    }
    return text;
}

std::vector<Message> handovers(const Schedule& schedule) {
    const ScheduleParameters& p = schedule.parameters;
    // Who makes the activation or the gradient that (replica, stage, micro-batch) waits for.
    const auto stages = static_cast<std::size_t>(p.stages());
    auto key = [&](int stage, int micro_batch) {
        return static_cast<std::size_t>(micro_batch) * stages + static_cast<std::size_t>(stage);
    };
    const std::size_t pairs = stages * static_cast<std::size_t>(p.micro_batches);
    std::vector<std::int32_t> forward(pairs, -1), backward(pairs, -1);
    for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
        const ScheduledTask& task = schedule.tasks[i];
        if (task.work == Work::forward) forward[key(task.stage, task.micro_batch)] = static_cast<std::int32_t>(i);
        if (is_backward(task.work)) backward[key(task.stage, task.micro_batch)] = static_cast<std::int32_t>(i);
    }
    std::vector<Message> list;
    for (int r = 0; r < schedule.ranks(); ++r) {
        for (std::int32_t i = schedule.first[r]; i < schedule.first[r + 1]; ++i) {
            const ScheduledTask& task = schedule.tasks[i];
            const bool gradient = is_backward(task.work);
            const int next = gradient ? task.stage - 1 : task.stage + 1;
            if ((task.work != Work::forward && !gradient) || next < 0 || next >= p.stages()) continue;
            const int to = rank_of(p, task.replica, next);
            const std::int32_t receiver = (gradient ? backward : forward)[key(next, task.micro_batch)];
            if (receiver >= 0)
                list.push_back({i, receiver, r, to, task.replica, std::min<std::int32_t>(task.stage, next)});
        }
    }
    return list;
}

std::vector<Message> messages(const Schedule& schedule) {
    std::vector<Message> list = handovers(schedule);
    std::erase_if(list, [](const Message& message) { return message.from == message.to; });
    return list;
}

} // namespace tutti::schedule
