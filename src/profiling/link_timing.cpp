#include "profiling/link_timing.h"

#include "comm/agree.h"
#include "comm/measure.h"
#include "profiling/kernel_timing.h"
#include "profiling/median.h"

#include <algorithm>

namespace tutti::profiling {
namespace {

constexpr int rounds = 5, most_rounds = 200;
constexpr double long_enough = 0.02; // seconds for one figure
constexpr int channel = 4095;        // apart from those of training

constexpr std::array collectives = {costs::Collective::all_reduce, costs::Collective::all_gather,
                                    costs::Collective::reduce_scatter, costs::Collective::all_to_all,
                                    costs::Collective::broadcast};

double slowest(comm::Group& all, double seconds) {
    all.wait(all.all_reduce(std::as_writable_bytes(std::span(&seconds, 1)), DType::float64, Combine::maximum));
    return seconds;
}

// The median over as many rounds as make it steady; the same number on every rank. Short actions come several in a row:
// ranks leave a barrier at different times, and the first has to make up for that.
template <class Action>
double time_together(comm::Group& all, const Action& action) {
    action(); // connections are made, memory is touched
    comm::barrier(all);
    Seconds begin = steady_now();
    action();
    const double once = std::max(slowest(all, steady_now().count - begin.count), 1e-7);
    const int row = std::clamp(static_cast<int>(long_enough / once), 1, 8);
    const int times = std::clamp(static_cast<int>(long_enough / once / row), rounds, most_rounds);
    std::vector<double> samples;
    for (int i = 0; i < times; ++i) {
        comm::barrier(all);
        begin = steady_now();
        for (int j = 0; j < row; ++j) action();
        samples.push_back((steady_now().count - begin.count) / row);
    }
    return std::max(slowest(all, median(std::move(samples))), 1e-9);
}

backend::Operand square(DType dtype, std::int64_t side) { return {{dtype, {side, side}}, dense_strides({side, side})}; }

// A product of some milliseconds, the same on all ranks.
class Matmul {
  public:
    Matmul(const backend::Device& device, DType dtype, comm::Group& all) : queue_(device.make_queue()) {
        for (std::int64_t side = 128; side <= 8192; side *= 2) {
            prepare(device, dtype, side);
            run();
            const Seconds begin = steady_now();
            run();
            if (slowest(all, steady_now().count - begin.count) > 1e-3) break;
        }
    }

    // From a new place every time, as weights come.
    void run() {
        at_ = at_ + 2 * bytes_.count > memory_->size().count ? 0 : at_ + bytes_.count;
        const std::byte* const operand = memory_->data() + at_;
        const std::array<const std::byte*, 2> in = {operand, operand};
        std::byte* const out = result_->data();
        kernel_->run({.inputs = in, .outputs = {&out, 1}, .workspace = workspace_->data(), .queue = queue_.get()});
        queue_->synchronize();
    }

  private:
    void prepare(const backend::Device& device, DType dtype, std::int64_t side) {
        const backend::Operand one = square(dtype, side);
        kernel_ = device.prepare(
            {.op = "linear", .attributes = {}, .inputs = {one, one}, .outputs = {one}, .source = "contention"});
        bytes_ = one.type.bytes();
        memory_ = device.allocate(std::max(bytes_, beyond_caches));
        result_ = device.allocate(one.type.bytes());
        workspace_ = device.allocate({std::max<std::int64_t>(kernel_->workspace().count, 1)});
    }

    std::unique_ptr<backend::Queue> queue_;
    std::unique_ptr<backend::Kernel> kernel_;
    std::unique_ptr<backend::Arena> memory_, result_, workspace_;
    Bytes bytes_; // of an operand
    std::int64_t at_ = 0;
};

// Of an action of a group that comes between matmuls, as training has it: who carries messages may have gone to sleep.
// It takes what the last to come has to wait; the others wait for that one, too, which is no time of the action's.
template <class Action>
double time_between(comm::Group& all, comm::Group& group, Matmul& matmul, const Action& action) {
    constexpr int row = 8;
    action(); // connections are made, memory is touched
    std::vector<double> taken;
    const Seconds start = steady_now();
    do {
        comm::barrier(all);
        for (int j = 0; j < row; ++j) {
            matmul.run();
            const Seconds begin = steady_now();
            action();
            taken.push_back(begin.count - steady_now().count);
        }
    } while (slowest(all, steady_now().count - start.count) < 5 * long_enough);
    group.wait(group.all_reduce(std::as_writable_bytes(std::span(taken)), DType::float64, Combine::maximum));
    return std::max(slowest(all, -median(std::move(taken))), 1e-9);
}

// Buffers for collectives of up to so many bytes, and their parts.
struct Buffers {
    std::vector<std::byte> all, mine;
    std::vector<std::int64_t> counts;

    // Whole elements for every rank; for all_to_all every rank has one part for each.
    Buffers(std::int64_t bytes, int ranks) {
        const std::int64_t share = std::max<std::int64_t>(bytes / ranks / 8 * 8, 8);
        counts.assign(static_cast<std::size_t>(ranks), share);
        all.resize(static_cast<std::size_t>(share * ranks));
        mine.resize(static_cast<std::size_t>(share));
    }
};

comm::Ticket start(costs::Collective what, comm::Group& group, Buffers& buffers) {
    switch (what) {
    case costs::Collective::all_reduce: return group.all_reduce(buffers.all, DType::float32, Combine::sum);
    case costs::Collective::all_gather: return group.all_gather(buffers.mine, buffers.all, buffers.counts);
    case costs::Collective::reduce_scatter:
        return group.reduce_scatter(buffers.all, buffers.mine, buffers.counts, DType::float32, Combine::sum);
    case costs::Collective::broadcast: return group.broadcast(buffers.all, 0);
    case costs::Collective::all_to_all: break;
    }
    const std::int64_t part = std::max<std::int64_t>(buffers.counts[0] / group.size() / 8 * 8, 8);
    const std::vector<std::int64_t> parts(buffers.counts.size(), part);
    const auto bytes = static_cast<std::size_t>(part) * parts.size();
    buffers.mine.resize(std::max(buffers.mine.size(), bytes));
    return group.all_to_all(std::span(buffers.mine).first(bytes), parts, std::span(buffers.all).first(bytes), parts);
}

std::unique_ptr<comm::Group> neighbours(comm::World& world, int size) {
    std::vector<int> members(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) members[static_cast<std::size_t>(i)] = world.rank() / size * size + i;
    return world.group("neighbours of " + std::to_string(size), std::move(members), channel);
}

} // namespace

std::vector<costs::CollectiveSample> time_collectives(const backend::Device& device, DType dtype, comm::World& world,
                                                      std::span<const Bytes> sizes) {
    std::vector<costs::CollectiveSample> samples;
    if (world.size() == 1) return samples;
    Matmul matmul(device, dtype, world.all());
    for (costs::Collective what : collectives) {
        for (int ranks = 2; ranks <= world.size(); ++ranks) {
            if (world.size() % ranks != 0) continue;
            for (Bytes bytes : sizes) {
                Buffers buffers(bytes.count, ranks);
                const auto group = neighbours(world, ranks);
                const double seconds =
                    time_between(world.all(), *group, matmul, [&] { group->wait(start(what, *group, buffers)); });
                samples.push_back({what, ranks, bytes, seconds});
            }
        }
    }
    return samples;
}

std::vector<costs::MessageSample> time_messages(comm::World& world, std::span<const Bytes> sizes) {
    std::vector<costs::MessageSample> samples;
    if (world.size() == 1) return samples;
    comm::Group& all = world.all();
    const int peer = all.rank() ^ 1;
    for (Bytes bytes : sizes) {
        std::vector<std::byte> out(static_cast<std::size_t>(bytes.count)), in(out.size());
        // Both ways at once, as neighbouring stages do; and after a while in which each computes, so that who carries
        // them may be asleep. Times in between differ, so that they do not fall in step with such sleep.
        std::vector<double> taken;
        for (int i = 0; i < 2 * rounds; ++i) {
            comm::barrier(all);
            if (peer >= all.size()) continue;
            const comm::Ticket received = all.receive(in, peer);
            const double until = steady_now().count + 0.001 + 0.00037 * i;
            while (steady_now().count < until) continue;
            const Seconds begin = steady_now();
            const comm::Ticket sent = all.send(out, peer);
            all.wait(received);
            all.wait(sent);
            if (i > 0) taken.push_back(steady_now().count - begin.count);
        }
        const double seconds = slowest(all, taken.empty() ? 0 : median(std::move(taken)));
        samples.push_back({bytes, std::max(seconds, 1e-9)});
    }
    return samples;
}

LinkSpeed time_host_copies(const backend::Device& device, comm::World& world) {
    constexpr std::int64_t large = 64 << 20;
    const auto memory = device.allocate({large}), host = device.allocate_staging({large});
    const auto queue = device.make_queue();
    auto seconds = [&](std::size_t bytes) {
        return time_together(world.all(), [&] {
            queue->copy_in(memory->data(), std::span(host->data(), bytes));
            queue->copy_out(std::span(host->data(), bytes), memory->data());
            queue->synchronize();
        });
    };
    const double small = seconds(64) / 2, all = seconds(large) / 2;
    return {.latency = small, .bytes = static_cast<double>(large) / std::max(all - small, all / 2)};
}

costs::Contention time_contention(const backend::Device& device, DType dtype, comm::World& world) {
    if (world.size() == 1) return {};
    comm::Group& all = world.all();
    Matmul matmul(device, dtype, all);
    Buffers buffers(16 << 20, all.size());
    auto sum = [&] { return start(costs::Collective::all_reduce, all, buffers); };
    const double computing = time_together(all, [&] { matmul.run(); });
    const double communicating = time_together(all, [&] { all.wait(sum()); });
    std::vector<double> products, sums;
    for (int i = 0; i < 2 * rounds; ++i) {
        comm::barrier(all);
        const Seconds begin = steady_now();
        const comm::Ticket ticket = sum();
        while (!all.done(ticket)) { // the last matmul may end after the sum: it counts all the same
            const Seconds start_of_one = steady_now();
            matmul.run();
            products.push_back(steady_now().count - start_of_one.count);
        }
        all.wait(ticket);
        sums.push_back(steady_now().count - begin.count);
    }
    const double slow_matmul = slowest(all, products.empty() ? computing : median(std::move(products)));
    const double slow_sum = slowest(all, median(std::move(sums)));
    constexpr double most = 16; // beyond that something else was measured
    return {.compute = std::clamp(slow_matmul / computing, 1.0, most),
            .communication = std::clamp(slow_sum / communicating, 1.0, most)};
}

} // namespace tutti::profiling
