#include "compile/task_order.h"

#include "base/checked.h"
#include "base/error.h"

#include <map>
#include <set>

namespace tutti::compile {
namespace {

class Writer {
  public:
    Writer(Program& program, std::span<const StageCode> code, const Program& skeleton, int pipe)
        : program_(program), code_(code), skeleton_(skeleton), pipe_(pipe) {
        for (const Task& task : skeleton.step)
            if (task.kind == TaskKind::recompute || task.kind == TaskKind::weight_gradient)
                apart_.insert({task.kind, local(task), task.micro_batch});
    }

    void run() {
        std::vector<std::int32_t> numbers; // task of the skeleton -> of the program, -1: none
        for (std::size_t i = 0; i < skeleton_.step.size(); ++i) {
            Task task = skeleton_.step[i];
            if (task.kind == TaskKind::reduce || task.kind == TaskKind::update)
                continue; // they follow from what is owned
            task.local = local(task);
            std::vector<std::int32_t> waits;
            for (std::int32_t wait : task.waits)
                if (numbers[static_cast<std::size_t>(wait)] >= 0)
                    waits.push_back(numbers[static_cast<std::size_t>(wait)]);
            task.waits = std::move(waits);
            if (task.kind != TaskKind::send) write_deferred();
            numbers.push_back(write(task));
        }
        write_deferred();
        mark_first_and_last();
    }

  private:
    // The skeleton numbers stages as they come.
    std::int32_t local(const Task& task) const {
        const LocalStage& stage = skeleton_.stages[static_cast<std::size_t>(task.local)];
        for (std::size_t i = 0; i < program_.stages.size(); ++i)
            if (program_.stages[i].stage == stage.stage && program_.stages[i].replica == stage.replica)
                return narrow<std::int32_t>(i);
        TUTTI_CHECK(false, "stage {} is not this rank's", stage.stage);
        return -1;
    }

    const StageCode& code_of(const Task& task) const { return code_[static_cast<std::size_t>(task.local)]; }
    bool has(const Task& task, Part part) const {
        return !code_of(task).segments[static_cast<std::size_t>(part)].instructions.empty();
    }
    bool is_apart(const Task& task, TaskKind kind) const {
        return apart_.contains({kind, task.local, task.micro_batch});
    }

    std::int32_t write(Task task) {
        switch (task.kind) {
        case TaskKind::forward: return add(task, Part::forward);
        case TaskKind::recompute: return has(task, Part::recompute) ? add(task, Part::recompute) : -1;
        case TaskKind::weight_gradient: return has(task, Part::weight_gradient) ? add(task, Part::weight_gradient) : -1;
        case TaskKind::backward: {
            if (has(task, Part::recompute) && !is_apart(task, TaskKind::recompute)) {
                Task again = task;
                again.kind = TaskKind::recompute;
                again.waits.clear();
                add(again, Part::recompute);
            }
            const std::int32_t number = add(task, Part::backward);
            if (has(task, Part::weight_gradient) && !is_apart(task, TaskKind::weight_gradient)) {
                deferred_ = task;
                deferred_->kind = TaskKind::weight_gradient;
                deferred_->waits = {number};
            }
            return number;
        }
        case TaskKind::send:
        case TaskKind::receive: return add_message(task);
        default: TUTTI_CHECK(false, "a schedule with a task {}", name_of(task.kind));
        }
    }

    // The weight gradients of a whole backward, after its message has gone.
    void write_deferred() {
        if (!deferred_) return;
        add(*deferred_, Part::weight_gradient);
        deferred_.reset();
    }

    std::int32_t add(Task task, Part part) {
        const auto [at, is_new] =
            segments_.try_emplace({task.local, part}, narrow<std::int32_t>(program_.segments.size()));
        if (is_new) {
            program_.segments.push_back(code_of(task).segments[static_cast<std::size_t>(part)]);
            program_.segments.back().stage = task.stage;
        }
        task.segment = at->second;
        program_.step.push_back(std::move(task));
        return narrow<std::int32_t>(program_.step.size() - 1);
    }

    std::int32_t add_message(Task task) {
        const bool sends = task.kind == TaskKind::send;
        const StageCode& code = code_of(task);
        const std::vector<Argument>& values = sends ? (task.gradient ? code.gradients_out : code.activations_out)
                                                    : (task.gradient ? code.gradients_in : code.activations_in);
        const auto [at, is_new] = messages_.try_emplace({task.local, sends, task.gradient, task.peer},
                                                        narrow<std::int32_t>(program_.segments.size()));
        if (is_new) {
            Segment segment{.kind = task.kind, .stage = task.stage};
            for (const Argument& value : values) {
                Instruction message =
                    communication_of(sends ? InstructionKind::send : InstructionKind::receive, pipe_, {}, task.peer);
                (sends ? message.inputs : message.outputs).push_back(value);
                segment.instructions.push_back(std::move(message));
            }
            program_.segments.push_back(std::move(segment));
        }
        task.segment = at->second;
        program_.step.push_back(std::move(task));
        return narrow<std::int32_t>(program_.step.size() - 1);
    }

    void mark_first_and_last() {
        std::map<std::int32_t, std::pair<Task*, Task*>> ends; // per segment
        for (Task& task : program_.step) {
            if (task.segment < 0) continue;
            task.first = task.last = false;
            auto& [first, last] = ends[task.segment];
            if (first == nullptr) first = &task;
            last = &task;
        }
        for (auto& [segment, tasks] : ends) {
            tasks.first->first = true;
            tasks.second->last = true;
        }
    }

    Program& program_;
    std::span<const StageCode> code_;
    const Program& skeleton_;
    int pipe_;
    std::set<std::tuple<TaskKind, std::int32_t, std::int32_t>> apart_; // tasks that the schedule places itself
    std::optional<Task> deferred_;
    std::map<std::pair<std::int32_t, Part>, std::int32_t> segments_;
    std::map<std::tuple<std::int32_t, bool, bool, std::int32_t>, std::int32_t> messages_;
};

} // namespace

void write_pipeline(Program& program, std::span<const StageCode> code, const Program& skeleton, int pipe) {
    Writer(program, code, skeleton, pipe).run();
}

} // namespace tutti::compile
