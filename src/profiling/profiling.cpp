#include "profiling/profiling.h"

#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "compile/compile.h"
#include "cores/topology.h"
#include "devices/devices.h"
#include "models/model.h"
#include "planner/evaluate/segments.h"
#include "profiling/kernel_speed.h"
#include "profiling/link_timing.h"
#include "profiling/measuring_cost.h"
#include "run/layout.h"
#include "run/memory_table.h"
#include "runtime/executor.h"
#include "runtime/group_table.h"

#include <algorithm>
#include <set>

namespace tutti::profiling {
namespace {

Plan plan_for(const ProfileConfig& config, const models::Model& model, std::int64_t sequence, std::int64_t micro_batch,
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
    plan.chunk_elements = small_chunk; // so that AdamW is timed in a little memory; larger ones take in proportion
    check(plan);
    return plan;
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
    Profiling(const ProfileConfig& config, comm::World& world, const std::string& version,
              const ProfileListener& listener)
        : config_(config), world_(world), listener_(listener),
          device_(devices::open_device(config.device, config.threads, run::local_rank_of({}, world))) {
        devices::check_computes(*device_, config.dtype);
        profile_.machine = fingerprint_of(*device_, config.threads, version);
        profile_.ranks = world.size();
        profile_.transport = world.size() == 1 ? "" : world.shares_process() ? "threads" : "mpi";
        profile_.name = config.model;
        profile_.dtype = config.dtype;
        const auto own = device_->memory();
        profile_.host_memory = machine_memory();
        profile_.memory = own ? own->total : Bytes{profile_.host_memory.count / world.size()};
    }

    costs::CostProfile run() {
        profile_.libraries = libraries();
        say("timing collectives and messages");
        profile_.speed = mean_speed(measure_kernels(*device_, config_.dtype));
        profile_.collectives = time_collectives(*device_, config_.dtype, world_);
        profile_.messages = time_messages(world_);
        if (!device_->memory()) // what groups take is the host's
            for (const costs::CollectiveSample& sample : profile_.collectives)
                profile_.group_room[sample.ranks] = world_.room_of_group(sample.ranks);
        profile_.host_copy = time_host_copies(*device_, world_);
        say("timing computing and communicating at once");
        profile_.contention = time_contention(*device_, config_.dtype, world_);
        if (!config_.model.empty()) time_model();
        return profile_;
    }

  private:
    void say(const std::string& what) const {
        if (world_.rank() == 0) listener_.begins(what);
        comm::barrier(world_.all()); // ranks share cores and memory: they are timed together
    }

    void time_model() {
        const models::ModelSource source = models::open_model(config_.model);
        const std::int64_t sequence = sequence_of(source);
        const std::int64_t parameters = source.build({1, sequence, config_.dtype}).graph.stored_elements();
        const MeasuringCost costs(profile_, *device_, world_,
                                  {.apart = {8 * parameters / world_.size()},
                                   .lasting = config_.lasting,
                                   .tell = world_.rank() == 0 ? listener_.goes_on : nullptr});
        for (std::int64_t micro_batch : config_.micro_batches) {
            const models::Model model = source.build({micro_batch, sequence, config_.dtype});
            for (int width : widths_of(config_, world_.size())) {
                say(fmt::format("timing kernels of {}: micro-batch {}, tensor {}", config_.model, micro_batch, width));
                Plan plan = plan_for(config_, model, sequence, micro_batch, world_.size(), width);
                plan.fusion = FusionOptions{.head_logits = devices::head_logits_of(*device_)};
                if (time_width(model, plan, costs) && config_.dtype != DType::float64) time_stages(source, plan, costs);
            }
        }
        profile_.kernels = costs.profile().kernels;
        profile_.slowdown = costs.profile().slowdown;
    }

    // What a rank takes beside its arena: of ranks that are threads, their share. Asked before anything is timed, which
    // leaves more behind than a run does.
    Bytes libraries() const {
        if (config_.model.empty()) return taken();
        const models::ModelSource source = models::open_model(config_.model);
        const std::int64_t sequence = sequence_of(source), micro_batch = config_.micro_batches.front();
        const models::Model model = source.build({micro_batch, sequence, config_.dtype});
        Plan plan = plan_for(config_, model, sequence, micro_batch, world_.size(), 1);
        plan.fusion = FusionOptions{.head_logits = devices::head_logits_of(*device_)};
        const Program program = compile::compile(model.graph, plan, world_.rank()).program;
        runtime::GroupTable groups(world_);
        const runtime::Executor executor(program, *device_, groups); // its kernels are prepared
        return taken();
    }
    Bytes taken() const {
        if (const auto own = device_->memory()) return own->total - own->free;
        const std::vector<Bytes> all = comm::gather_values(world_.all(), resident_memory());
        return run::first_step_growth +
               Bytes{std::ranges::max(all).count / (world_.shares_process() ? world_.size() : 1)};
    }

    std::int64_t sequence_of(const models::ModelSource& source) const {
        return config_.sequence > 0 ? config_.sequence : std::min<std::int64_t>(source.facts().context, 1024);
    }

    // The kernels of a whole step. False where the model cannot be split like that.
    bool time_width(const models::Model& model, const Plan& plan, const MeasuringCost& costs) {
        Program program;
        try {
            program = compile::compile(model.graph, plan, world_.rank()).program;
        } catch (const Error&) { // such as fewer heads than ranks: on all ranks alike
            if (!config_.widths.empty()) throw;
            return false;
        }
        costs.expect(program);
        return true;
    }

    // Those that small stages have beside them, as a planner compiles them: recomputed, with weights that are sharded,
    // in halves.
    void time_stages(const models::ModelSource& source, const Plan& plan, const MeasuringCost& costs) {
        const planner::BlockChain chain = planner::chain_of(source, plan.workload.sequence, config_.dtype);
        const planner::PlannerWorkload workload{.sequence = plan.workload.sequence,
                                                .global_batch = plan.workload.global_batch,
                                                .precision = plan.precision,
                                                .head_logits = devices::head_logits_of(*device_),
                                                .over_weights = plan.gradients_over_weights};
        planner::SegmentTable table(chain, costs, workload);
        const planner::GroupShapes shapes{.tensor = {{plan.mesh.tensor}}, .data = {{plan.mesh.data}}};
        planner::SegmentKey key{.tensor_parallel = {.ranks = plan.mesh.tensor},
                                .micro_batch = plan.workload.micro_batch};
        auto time = [&](planner::BackwardStyle style, Zero zero, bool recomputed, bool halves) {
            key.style = style;
            key.zero = zero;
            key.recomputed = recomputed;
            key.tensor_parallel.sub_pipeline = halves;
            table.figures(key, shapes, 0);
        };
        for (const bool recomputed : {false, true}) time(planner::BackwardStyle::whole, 0, recomputed, false);
        if (plan.mesh.tensor > 1 && key.micro_batch % 2 == 0) time(planner::BackwardStyle::whole, 0, false, true);
        if (plan.mesh.data > 1) time(planner::BackwardStyle::whole, 3, false, false);
        if (plan.mesh.data > 1) time(planner::BackwardStyle::split, 0, false, false);
    }

    KernelSpeed mean_speed(const KernelSpeed& mine) {
        std::array<double, 3> sums = {mine.flops, mine.bytes, mine.launch};
        comm::Group& all = world_.all();
        all.wait(all.all_reduce(std::as_writable_bytes(std::span(sums)), DType::float64, Combine::sum));
        const double ranks = world_.size();
        return {sums[0] / ranks, sums[1] / ranks, sums[2] / ranks};
    }

    const ProfileConfig& config_;
    comm::World& world_;
    const ProfileListener& listener_;
    std::unique_ptr<backend::Device> device_;
    costs::CostProfile profile_;
};

} // namespace

costs::Fingerprint fingerprint_of(const backend::Device& device, int threads, const std::string& version) {
    const int cores = cores::usable_cores();
    return {.device = device.name(),
            .model = device.model(),
            .cores = cores,
            .threads = threads > 0 ? threads : cores,
            .version = version};
}

costs::CostProfile measure_profile(const ProfileConfig& config, comm::World& world, const std::string& version,
                                   const ProfileListener& listener) {
    std::optional<Profiling> profiling;
    comm::agree(world.all(), [&] { profiling.emplace(config, world, version, listener); });
    return profiling->run();
}

} // namespace tutti::profiling
