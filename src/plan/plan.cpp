#include "plan/plan.h"

#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/limits.h"
#include "schedule/families.h"

#include <algorithm>

namespace tutti {

int PlannedDevices::count() const {
    int devices = 0;
    for (const PlannedNodes& one : nodes) devices += one.nodes * one.devices;
    return devices;
}

std::vector<int> places_of(const Plan& plan) {
    if (!plan.devices) return {};
    const std::vector<int>& devices = plan.devices->ranks;
    std::vector<int> used = devices;
    std::ranges::sort(used);
    if (used == devices) return {};
    std::vector<int> places;
    for (int device : devices)
        places.push_back(static_cast<int>(std::ranges::lower_bound(used, device) - used.begin()));
    return places;
}

schedule::Schedule schedule_of(const Plan& plan) {
    if (plan.schedule) return plan.schedule->schedule;
    schedule::Schedule schedule =
        schedule::make_schedule({.family = "1f1b", .ranks = 1, .micro_batches = narrow<int>(plan.micro_batches())});
    if (!plan.split_backward) return schedule;
    // Each weight gradient right behind its input gradient.
    schedule.parameters.split_backward = true;
    std::vector<schedule::ScheduledTask> tasks;
    for (schedule::ScheduledTask task : schedule.tasks) {
        if (task.work == schedule::Work::full_backward) task.work = schedule::Work::backward;
        tasks.push_back(task);
        if (task.work != schedule::Work::backward) continue;
        task.work = schedule::Work::weight_gradient;
        tasks.push_back(task);
    }
    schedule.first.back() = narrow<std::int32_t>(tasks.size());
    schedule.tasks = std::move(tasks);
    return schedule;
}

namespace {

// As in training: products of two of them stay far from the end of 64 bits.
constexpr std::int64_t largest_count = 1'000'000'000;
constexpr int most_blocks = 1 << 20;
constexpr std::int64_t most_devices = 1 << 16;

void is_count(const char* key, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most) fail("{} is {}; it has to be from {} to {}", key, value, least, most);
}

void check(const Precision& p) {
    const DType wide = p.compute == DType::float64 ? DType::float64 : DType::float32;
    if (p.gradients != wide && (p.gradients != DType::bfloat16 || p.compute != DType::bfloat16))
        fail("gradients are {}; with {} they have to be {}", name_of(p.gradients), name_of(p.compute),
             p.compute == DType::bfloat16 ? "float32 or bf16" : name_of(wide));
    if (p.master != wide && p.master != p.compute)
        fail("master is {}; with {} it has to be {}", name_of(p.master), name_of(p.compute),
             wide == p.compute ? std::string(name_of(wide))
                               : fmt::format("{} or {}", name_of(wide), name_of(p.compute)));
    if (p.moments != wide && (p.moments != DType::bfloat16 || wide == DType::float64))
        fail("moments are {}; with {} they have to be {}", name_of(p.moments), name_of(p.compute),
             wide == DType::float64 ? "float64" : "float32 or bf16");
}

void check_schedule(const Plan& plan) {
    if (!plan.schedule) {
        if (plan.mesh.pipe > 1)
            fail("the mesh {} has a pipeline, but there is no schedule", sharding::to_string(plan.mesh));
        if (!plan.cuts.empty())
            fail("there {} {}, but no schedule", plan.stages() == 1 ? "is" : "are", counted(plan.stages(), "stage"));
        return;
    }
    const schedule::ScheduleParameters& p = plan.schedule->schedule.parameters;
    if (p.ranks != plan.mesh.pipe)
        fail("the schedule is for {}, but the mesh {} has pipe={}", counted(p.ranks, "rank"),
             sharding::to_string(plan.mesh), plan.mesh.pipe);
    if (p.micro_batches != plan.micro_batches())
        fail("the schedule is for {}, but a global batch of {} in micro-batches of {} for {} makes {}",
             counted(p.micro_batches, "micro-batch"), plan.workload.global_batch, plan.workload.micro_batch,
             counted(plan.mesh.data, "replica"), plan.micro_batches());
    if (!plan.cuts.empty()) check_stages(plan);
}

void check_lists(const Plan& plan, const char* key, const std::vector<std::vector<int>>& lists, int blocks) {
    if (lists.empty()) return;
    if (lists.size() != static_cast<std::size_t>(plan.stages()))
        fail("{} has lists for {}; there are {}", key, counted(lists.size(), "stage"), plan.stages());
    for (std::size_t stage = 0; stage < lists.size(); ++stage) {
        const int first = stage == 0 ? 0 : plan.cuts[stage - 1];
        const int end = stage < plan.cuts.size() ? plan.cuts[stage] : blocks;
        int least = first;
        for (int block : lists[stage]) {
            if (block < first || block >= end)
                fail("{} names block {} for stage {}, which has blocks {} to {}", key, block, stage, first,
                     end < most_blocks ? std::to_string(end - 1) : "the last");
            if (block < least)
                fail("{} names blocks {} for stage {}, and should name each once, in order", key,
                     fmt::join(lists[stage], ", "), stage);
            least = block + 1;
        }
    }
}

// Every stage names only its own.
void check_named_blocks(const Plan& plan, int blocks) {
    check_lists(plan, "recompute", plan.recompute, blocks);
    check_lists(plan, "offload", plan.offload, blocks);
}

// Cuts, recomputed and offloaded blocks, of a model that is not known: every stage has a block.
void check_blocks(const Plan& plan) {
    for (std::size_t i = 0; i < plan.cuts.size(); ++i) {
        is_count("a cut", plan.cuts[i], 1, most_blocks);
        if (i > 0 && plan.cuts[i] <= plan.cuts[i - 1])
            fail("cuts are {}, and should rise: each is the first block of a stage", fmt::join(plan.cuts, ", "));
    }
    check_named_blocks(plan, most_blocks);
    const bool offloads = std::ranges::any_of(plan.offload, [](const std::vector<int>& list) { return !list.empty(); });
    if (offloads && plan.device_memory.count <= 0)
        fail("activations are offloaded, and device_memory has no limit to make room under: --device-memory sets one");
}

void check_devices(const Plan& plan) {
    if (!plan.devices) return;
    std::int64_t count = 0;
    for (const PlannedNodes& one : plan.devices->nodes) {
        is_count("nodes of devices", one.nodes, 1, most_devices);
        is_count("devices of a node", one.devices, 1, most_devices);
        count += std::int64_t{one.nodes} * one.devices;
        if (count > most_devices) fail("devices names more than {} of them", most_devices);
    }
    const std::vector<int>& ranks = plan.devices->ranks;
    if (ranks.size() != static_cast<std::size_t>(plan.mesh.ranks()))
        fail("devices names {} for the ranks, but the mesh {} has {}", counted(ranks.size(), "device"),
             sharding::to_string(plan.mesh), counted(plan.mesh.ranks(), "rank"));
    std::vector<int> taken(static_cast<std::size_t>(count), -1);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const int device = ranks[rank];
        if (device < 0 || device >= count)
            fail("rank {} has device {}, and the nodes have {}, counted from 0", rank, device,
                 counted(count, "device"));
        int& other = taken[static_cast<std::size_t>(device)];
        if (other >= 0) fail("ranks {} and {} both have device {}; each needs its own", other, rank, device);
        other = static_cast<int>(rank);
    }
}

void check(const Prediction& predicted, const sharding::Mesh& mesh) {
    if (!limits::duration.hold(predicted.step.count))
        fail("a step is predicted to take {} seconds, and should take {}", predicted.step.count,
             limits::duration.text());
    for (const Bytes& memory : predicted.memory)
        is_count("the predicted memory of a rank", memory.count, 0, limits::bytes);
    if (static_cast<int>(predicted.memory.size()) != mesh.pipe)
        fail("the memory of {} is predicted, and the mesh {} has {}",
             counted(std::ssize(predicted.memory), "pipe rank"), sharding::to_string(mesh), mesh.pipe);
}

// Whether it fits the programs is for those who have them.
void check_residency(const Plan& plan) {
    if (!plan.residency) return;
    if (plan.residency->size() != static_cast<std::size_t>(plan.mesh.ranks()))
        fail("residency speaks of {}, but the mesh {} has {}", counted(plan.residency->size(), "rank"),
             sharding::to_string(plan.mesh), plan.mesh.ranks());
    for (const auto& one : *plan.residency) {
        if (!one) continue;
        if (plan.device_memory.count <= 0)
            fail("there is a residency, and no device_memory that it would keep model data within");
        for (const offload::PlannedStep* step : {&one->training, one->evaluation ? &*one->evaluation : nullptr})
            if (step) is_count("the capacity of a residency", step->capacity.count, 0, limits::bytes);
    }
}

} // namespace

void check_division(const Workload& w, const sharding::Mesh& mesh, bool sub_pipeline) {
    const std::int64_t unit = w.micro_batch * mesh.data, below = w.global_batch / unit * unit;
    if (w.global_batch % unit != 0)
        fail("global_batch {} is not a multiple of micro_batch {}{}: {}{} would be", w.global_batch, w.micro_batch,
             mesh.data > 1 ? fmt::format(" x data {} = {}", mesh.data, unit) : "",
             below > 0 ? fmt::format("{} or ", below) : "", below + unit);
    if (!sub_pipeline) return;
    if (w.micro_batch % 2 != 0)
        fail("sub_pipeline takes micro-batches in halves, and micro_batch is {}: {}{} would do", w.micro_batch,
             w.micro_batch > 1 ? fmt::format("{} or ", w.micro_batch - 1) : "", w.micro_batch + 1);
    if (mesh.tensor == 1)
        fail("sub_pipeline hides collectives of the tensor axis, and the mesh {} has none: tensor=2 "
             "would do",
             sharding::to_string(mesh));
}

void check_stages(const Plan& plan) {
    if (!plan.schedule) return;
    const schedule::ScheduleParameters& p = plan.schedule->schedule.parameters;
    if (plan.stages() != p.stages())
        fail("there are {} cuts, which make {}, but the schedule has {} with {} each: {}", plan.cuts.size(),
             counted(plan.stages(), "stage"), counted(p.ranks, "rank"), counted(p.stages_per_rank, "stage"),
             p.stages());
}

void check_cuts(std::span<const int> cuts, int blocks) {
    for (std::size_t c = 0; c < cuts.size(); ++c)
        if (cuts[c] <= (c == 0 ? 0 : cuts[c - 1]) || cuts[c] >= blocks)
            fail("cuts of a model of {} are growing numbers from 1 to {}, not {}", counted(blocks, "block"), blocks - 1,
                 fmt::join(cuts, ", "));
}

void check_blocks(const Plan& plan, int blocks) {
    check_stages(plan);
    check_cuts(plan.cuts, blocks);
    check_named_blocks(plan, blocks);
}

sharding::OperatorStrategies operator_strategies_of(const Plan& plan) {
    return plan.strategies.value_or(sharding::OperatorStrategies{.axes = {plan.mesh.tensor}});
}

FusionOptions fusion_of(const Plan& plan) {
    return plan.fusion.value_or(FusionOptions{.norm_weights = !plan.split_backward});
}

const offload::PlannedResidency* residency_of(const Plan& plan, int rank) {
    if (!plan.residency) return nullptr;
    const auto& mine = plan.residency->at(static_cast<std::size_t>(rank));
    return mine ? &*mine : nullptr;
}

void check(const Plan& plan) {
    is_count("sequence", plan.workload.sequence, 1, largest_count);
    is_count("micro_batch", plan.workload.micro_batch, 1, largest_count);
    is_count("global_batch", plan.workload.global_batch, 1, largest_count);
    is_count("zero", plan.zero.stage(), 0, 3);
    sharding::check(plan.mesh);
    check_division(plan.workload, plan.mesh, plan.sub_pipeline);
    check(plan.precision);
    is_count("device_memory", plan.device_memory.count, 0, limits::bytes);
    is_count("host_memory", plan.host_memory.count, 0, limits::bytes);
    is_count("chunk_elements", plan.chunk_elements, 1, std::int64_t{1} << 40);
    check_schedule(plan);
    check_blocks(plan);
    if (plan.strategies) sharding::check(*plan.strategies, plan.mesh.tensor);
    check_devices(plan);
    if (plan.predicted) check(*plan.predicted, plan.mesh);
    if (plan.fusion) is_count("head_logits", plan.fusion->head_logits.count, 0, limits::bytes);
    check_residency(plan);
}

} // namespace tutti
