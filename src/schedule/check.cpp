#include "schedule/check.h"

#include "base/counted.h"
#include "base/error.h"
#include "schedule/evaluate.h"
#include "schedule/families.h"

#include <algorithm>
#include <array>
#include <map>

namespace tutti::schedule {
namespace {

// Where the tasks of every (stage, micro-batch) are, by kind of work; -1 where there is none.
class Index {
  public:
    explicit Index(const Schedule& schedule)
        : stages_(schedule.parameters.stages()),
          at_(static_cast<std::size_t>(stages_) * static_cast<std::size_t>(schedule.parameters.micro_batches),
              {-1, -1, -1, -1, -1}) {}
    std::int32_t& at(int stage, int micro_batch, Work work) {
        return at_[static_cast<std::size_t>(micro_batch) * static_cast<std::size_t>(stages_) +
                   static_cast<std::size_t>(stage)][static_cast<std::size_t>(work)];
    }

  private:
    int stages_;
    std::vector<std::array<std::int32_t, 5>> at_;
};

Index index_tasks(const Schedule& schedule) {
    const ScheduleParameters& p = schedule.parameters;
    Index index(schedule);
    for (int r = 0; r < schedule.ranks(); ++r) {
        for (std::int32_t i = schedule.first[r]; i < schedule.first[r + 1]; ++i) {
            const ScheduledTask& task = schedule.tasks[i];
            if (task.stage >= p.stages() || task.micro_batch < 0 || task.micro_batch >= p.micro_batches)
                fail("rank {} has {}; stages go up to {}, micro-batches to {}", r, to_string(task), p.stages() - 1,
                     p.micro_batches - 1);
            if (task.replica != task.micro_batch % p.model_replicas)
                fail("rank {} has {} on model replica {}; micro-batch {} of {} replicas belongs to replica {}", r,
                     to_string(task), task.replica, task.micro_batch, p.model_replicas,
                     task.micro_batch % p.model_replicas);
            if (rank_of(p, task.replica, task.stage) != r)
                fail("rank {} has {}, which belongs to rank {}", r, to_string(task),
                     rank_of(p, task.replica, task.stage));
            std::int32_t& at = index.at(task.stage, task.micro_batch, task.work);
            if (at >= 0) fail("rank {} has {} twice", r, to_string(task));
            at = i;
        }
    }
    return index;
}

} // namespace

void check_complete(const Schedule& schedule) {
    const ScheduleParameters& p = schedule.parameters;
    if (schedule.ranks() != p.ranks) fail("an order of {} ranks; the parameters say {}", schedule.ranks(), p.ranks);
    const std::size_t pairs = static_cast<std::size_t>(p.stages()) * static_cast<std::size_t>(p.micro_batches);
    if (schedule.tasks.size() < 2 * pairs) // before anything is reserved for so many
        fail("an order of {}; {} and {} take at least {}", counted(schedule.tasks.size(), "task"),
             counted(p.stages(), "stage"), counted(p.micro_batches, "micro-batch"), 2 * pairs);
    Index index = index_tasks(schedule);
    for (int m = 0; m < p.micro_batches; ++m) {
        for (int s = 0; s < p.stages(); ++s) {
            const int rank = rank_of(p, m % p.model_replicas, s);
            auto has = [&](Work work) { return index.at(s, m, work) >= 0; };
            if (!has(Work::forward)) fail("rank {} has no forward of stage {}, micro-batch {}", rank, s, m);
            const bool whole = has(Work::full_backward);
            if (whole == has(Work::backward))
                fail("rank {} has {} backward of stage {}, micro-batch {}", rank, whole ? "a whole and a split" : "no",
                     s, m);
            if (whole == has(Work::weight_gradient))
                fail("rank {} has {} weight gradient of stage {}, micro-batch {}", rank, whole ? "one too many" : "no",
                     s, m);
            const bool drops = schedule.tasks[index.at(s, m, Work::forward)].recomputes;
            const bool in_backward =
                schedule.tasks[index.at(s, m, whole ? Work::full_backward : Work::backward)].recomputes;
            if (drops != (in_backward || has(Work::recompute)) || (in_backward && has(Work::recompute)))
                fail("rank {} recomputes stage {}, micro-batch {} {}", rank, s, m,
                     drops ? "never or twice" : "though it is kept");
        }
    }
}

void check_dependencies(const Schedule& schedule) {
    const ScheduleParameters& p = schedule.parameters;
    Index index = index_tasks(schedule);
    auto after = [&](std::int32_t later, std::int32_t earlier, int rank) {
        if (earlier >= 0 && later >= 0 && later < earlier)
            fail("rank {} has {} before {}", rank, to_string(schedule.tasks[later]),
                 to_string(schedule.tasks[earlier]));
    };
    for (int m = 0; m < p.micro_batches; ++m) {
        for (int s = 0; s < p.stages(); ++s) {
            const int rank = rank_of(p, m % p.model_replicas, s);
            auto at = [&](int stage, Work work) { return index.at(stage, m, work); };
            auto backward = [&](int stage) {
                return std::max(at(stage, Work::backward), at(stage, Work::full_backward));
            };
            after(at(s, Work::recompute), at(s, Work::forward), rank);
            after(backward(s), at(s, Work::forward), rank);
            after(backward(s), at(s, Work::recompute), rank);
            after(at(s, Work::weight_gradient), at(s, Work::backward), rank);
            if (s + 1 < p.stages() && rank_of(p, m % p.model_replicas, s + 1) == rank) {
                after(at(s + 1, Work::forward), at(s, Work::forward), rank);
                after(backward(s), backward(s + 1), rank);
            }
        }
    }
}

bool runs_through(const Schedule& schedule, int posted) {
    struct Channel {
        std::int64_t sent = 0, read = 0; // messages on it
        std::vector<char> was_read;      // by number: those read ahead of an earlier one still hold their place
    };
    const std::vector<Message> list = messages(schedule);
    std::map<std::pair<int, int>, Channel> channels;
    std::vector<std::int32_t> outgoing(schedule.tasks.size(), -1), incoming(schedule.tasks.size(), -1);
    std::vector<std::int64_t> number(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) { // senders' tasks are in order, so messages of a channel are
        outgoing[list[i].sender] = static_cast<std::int32_t>(i);
        incoming[list[i].receiver] = static_cast<std::int32_t>(i);
        Channel& channel = channels[{list[i].from, list[i].to}];
        number[i] = static_cast<std::int64_t>(channel.was_read.size());
        channel.was_read.push_back(0);
    }
    std::vector<std::int32_t> next(schedule.first.begin(), schedule.first.end() - 1);
    std::vector<char> sending(next.size(), 0); // the rank's task has run, its message has not gone
    std::size_t done = 0;
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < schedule.ranks(); ++r) {
            while (next[r] != schedule.first[r + 1]) {
                const std::int32_t task = next[r];
                const std::int32_t in = incoming[task], out = outgoing[task];
                if (!sending[r]) {
                    if (in >= 0) {
                        Channel& channel = channels[{list[in].from, list[in].to}];
                        if (channel.sent <= number[in]) break; // not here yet
                        channel.was_read[number[in]] = 1;
                        while (channel.read < channel.sent && channel.was_read[channel.read]) ++channel.read;
                    }
                    sending[r] = 1;
                    any = true;
                }
                if (out >= 0) {
                    Channel& channel = channels[{list[out].from, list[out].to}];
                    if (channel.sent - channel.read >= posted) break; // no receive is posted
                    ++channel.sent;
                }
                sending[r] = 0;
                ++next[r];
                ++done;
                any = true;
            }
        }
    }
    return done == schedule.tasks.size();
}

int receives_posted(const Schedule& schedule) {
    std::map<std::pair<int, int>, int> counts;
    int most = 1;
    for (const Message& message : messages(schedule)) most = std::max(most, ++counts[{message.from, message.to}]);
    if (!runs_through(schedule, most)) {
        Evaluator names_the_tasks(schedule);
        fail("the order is a deadlock however many receives are posted");
    }
    int least = 1;
    while (least < most) { // more never hurts
        const int middle = (least + most) / 2;
        runs_through(schedule, middle) ? most = middle : least = middle + 1;
    }
    return most;
}

std::vector<double> peak_activations(const Schedule& schedule, const Costs& costs) {
    std::vector<double> peaks;
    for (int r = 0; r < schedule.ranks(); ++r) {
        double held = 0, peak = 0;
        for (const ScheduledTask& task : schedule.rank(r)) {
            held += acquired_by(costs.stages[task.stage], task.work, task.recomputes);
            peak = std::max(peak, held);
            held -= released_by(costs.stages[task.stage], task.work);
        }
        peaks.push_back(peak);
    }
    return peaks;
}

void check_memory(const Schedule& schedule, const Costs& costs, double cap) {
    const std::vector<double> peaks = peak_activations(schedule, costs);
    const auto worst = std::max_element(peaks.begin(), peaks.end());
    if (*worst > cap * (1 + 1e-9))
        fail("{} holds activations of {:g} on rank {}, more than the cap of {:g}; {}", schedule.parameters.family,
             *worst, worst - peaks.begin(), cap,
             find_family(schedule.parameters.family).fits_any_cap
                 ? fmt::format("no order found holds less, so it takes a cap of {:g} or recomputation", *worst)
                 : fmt::format("greedy finds an order for any cap that one micro-batch in flight fits in, and this "
                               "one takes a cap of {:g}",
                               *worst));
}

void check(const Schedule& schedule, const Costs& costs) {
    check_complete(schedule);
    check_dependencies(schedule);
    Evaluator runs(schedule); // throws where it does not
    if (schedule.parameters.memory_cap > 0) check_memory(schedule, costs, schedule.parameters.memory_cap);
}

} // namespace tutti::schedule
