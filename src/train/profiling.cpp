#include "train/profiling.h"

#include "base/error.h"
#include "cluster/operator_cost.h"
#include "comm/agree.h"
#include "compile/rank_graphs.h"
#include "models/model.h"
#include "ops/operators.h"
#include "runtime/kernel_speed.h"
#include "runtime/kernel_timing.h"
#include "runtime/link_timing.h"
#include "train/process_memory.h"
#include "train/session.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace tutti {
namespace {

// Small enough for the optimizer's kernel to be timed in a little memory; larger chunks take in proportion.
constexpr std::int64_t chunk_elements = std::int64_t{4} << 20;

Plan plan_for(const ProfileConfig& config, const Model& model, std::int64_t sequence, std::int64_t micro_batch,
              int ranks, int width) {
    Plan plan;
    plan.model = model.architecture;
    plan.device = config.device;
    plan.mesh = {.data = ranks / width, .tensor = width};
    // Two micro-batches: the first overwrites gradients, the second adds to them.
    plan.workload = {sequence, 2 * micro_batch * plan.mesh.data, micro_batch};
    plan.precision.compute = config.dtype;
    if (config.dtype == DType::float64)
        plan.precision = {DType::float64, DType::float64, DType::float64, DType::float64};
    plan.chunk_elements = chunk_elements;
    check(plan);
    return plan;
}

// The cost of each kernel of a program, by its key.
void add_costs(const Program& program, const KernelTimes& times, std::map<std::string, KernelSample>& kernels) {
    for (const Segment& segment : program.segments) {
        for (const Instruction& one : segment.instructions) {
            if (one.lane == Lane::communication) continue;
            for (bool accumulate : {false, true}) {
                const auto seconds = times.of(one, accumulate);
                if (!seconds) continue;
                const Cost cost =
                    cost_of(all_operators(), one.op, types_of(one.inputs), types_of(one.outputs), one.attributes);
                kernels.insert_or_assign(
                    kernel_key(one, accumulate),
                    KernelSample{one.op, cost.flops.count, static_cast<double>(cost.bytes.count), *seconds});
            }
        }
    }
}

// Every kernel with the mean of the ranks that timed it.
std::map<std::string, KernelSample> merged(Group& all, const std::map<std::string, KernelSample>& mine) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [key, sample] : mine) list.push_back({key, sample.op, sample.flops, sample.bytes, sample.seconds});
    std::map<std::string, KernelSample> kernels;
    std::map<std::string, int> counts;
    for (const std::string& text : gather_texts(all, list.dump())) {
        for (const nlohmann::json& one : nlohmann::json::parse(text)) {
            KernelSample& sample = kernels[one.at(0)];
            const double before = sample.seconds;
            sample = {one.at(1), one.at(2), one.at(3), one.at(4)};
            sample.seconds += before;
            ++counts[one.at(0)];
        }
    }
    for (auto& [key, sample] : kernels) sample.seconds /= counts.at(key);
    return kernels;
}

std::vector<int> widths_of(const ProfileConfig& config, int ranks) {
    std::vector<int> widths = config.widths;
    for (int width : widths)
        if (width < 1 || ranks % width != 0) fail("a tensor axis of {} does not divide the {} ranks", width, ranks);
    for (int width = 1; config.widths.empty() && width <= ranks; ++width)
        if (ranks % width == 0) widths.push_back(width);
    return widths;
}

class Profiling {
  public:
    Profiling(const ProfileConfig& config, World& world, const std::string& version,
              const std::function<void(const std::string&)>& tell)
        : config_(config), world_(world), tell_(tell), device_(open_device(config.device, config.threads)) {
        if (!device_->supports(config.dtype))
            fail("the {} device does not compute in {}", config.device, name_of(config.dtype));
        profile_.machine = fingerprint_of(*device_, config.threads, version);
        profile_.ranks = world.size();
        profile_.name = config.model;
        profile_.dtype = config.dtype;
        const auto own = device_->memory();
        profile_.host_memory = machine_memory();
        profile_.memory = own ? own->total : Bytes{profile_.host_memory.count / world.size()};
    }

    CostProfile run() {
        time_model();
        say("timing what ranks exchange");
        profile_.speed = mean_speed(measure_kernels(*device_, config_.dtype));
        profile_.collectives = time_collectives(world_);
        profile_.messages = time_messages(world_);
        profile_.host_copy = time_host_copies(*device_, world_);
        say("timing computing and communicating at once");
        profile_.contention = time_contention(*device_, config_.dtype, world_);
        return profile_;
    }

  private:
    void say(const std::string& what) const {
        if (world_.rank() == 0) tell_(what);
        barrier(world_.all()); // ranks share cores and memory: they are timed together
    }

    void time_model() {
        const ModelSource source = open_model(config_.model);
        const ModelFacts& facts = source.facts();
        const std::int64_t sequence =
            config_.sequence > 0 ? config_.sequence : std::min<std::int64_t>(facts.context, 1024);
        std::map<std::string, KernelSample> kernels;
        for (std::int64_t micro_batch : config_.micro_batches) {
            const Model model = source.build({micro_batch, sequence, config_.dtype});
            for (int width : widths_of(config_, world_.size())) {
                say(fmt::format("timing kernels of {}: micro-batch {}, tensor {}", config_.model, micro_batch, width));
                time_width(model, plan_for(config_, model, sequence, micro_batch, world_.size(), width), kernels);
            }
        }
        profile_.kernels = merged(world_.all(), kernels);
    }

    void time_width(const Model& model, const Plan& plan, std::map<std::string, KernelSample>& kernels) {
        RankGraphs graphs;
        try {
            graphs = training_graphs(model.graph, plan, world_.rank(), {});
        } catch (const Error&) { // such as fewer heads than ranks: on all ranks alike
            if (!config_.widths.empty()) throw;
            return;
        }
        const Compiled compiled = compile_training(graphs.stages, plan, graphs.place);
        const auto own = device_->memory();
        const Bytes most{own ? own->free.count / 4 : std::int64_t{512} << 20};
        add_costs(compiled.program, time_kernels(compiled.program, *device_, world_.all(), config_.lasting, most),
                  kernels);
    }

    KernelSpeed mean_speed(const KernelSpeed& mine) {
        std::array<double, 3> sums = {mine.flops, mine.bytes, mine.launch};
        Group& all = world_.all();
        all.wait(all.all_reduce(std::as_writable_bytes(std::span(sums)), DType::float64, Combine::sum));
        const double ranks = world_.size();
        return {sums[0] / ranks, sums[1] / ranks, sums[2] / ranks};
    }

    const ProfileConfig& config_;
    World& world_;
    const std::function<void(const std::string&)>& tell_;
    std::unique_ptr<Device> device_;
    CostProfile profile_;
};

} // namespace

Fingerprint fingerprint_of(const Device& device, int threads, const std::string& version) {
    const int cores = usable_cores();
    return {.device = device.name(),
            .model = device.model(),
            .cores = cores,
            .threads = threads > 0 ? threads : cores,
            .version = version};
}

CostProfile measure_profile(const ProfileConfig& config, World& world, const std::string& version,
                            const std::function<void(const std::string&)>& tell) {
    std::optional<Profiling> profiling;
    agree(world.all(), [&] { profiling.emplace(config, world, version, tell); });
    return profiling->run();
}

} // namespace tutti
