// CostProfile: what `tutti profile` measured on a machine with so many ranks at work, as a value and a JSON file. It
// holds for that machine, threads and program alone: its fingerprint says which.
#pragma once

#include "base/file.h"
#include "costs/cost_model.h"
#include "costs/kernel_times.h"

#include <map>

namespace tutti::costs {

struct Fingerprint {
    std::string device{};  // "cpu", "cuda"
    std::string model{};   // the hardware in words
    int cores = 1;         // that the process may run on
    int threads = 1;       // of a rank, computing
    std::string version{}; // of this program
    bool operator==(const Fingerprint&) const = default;
};

struct KernelSample {
    std::string op{};
    double flops = 0, bytes = 0; // as the operator's cost counts them
    double seconds = 0;
    Bytes workspace{};
    bool operator==(const KernelSample&) const = default;
};

// Of groups of neighbours that all do the same at the same time.
struct CollectiveSample {
    Collective what = Collective::all_reduce;
    int ranks = 2;
    Bytes bytes{}; // of the whole tensor
    double seconds = 0;
    bool operator==(const CollectiveSample&) const = default;
};

// Between neighbours, all pairs at once.
struct MessageSample {
    Bytes bytes{};
    double seconds = 0;
    bool operator==(const MessageSample&) const = default;
};

struct CostProfile {
    Fingerprint machine;
    int ranks = 1;
    std::string transport{}; // between them: "threads", "mpi"; empty: one rank, or not known
    std::string name{};      // of the model whose kernels were timed
    Bytes memory{};          // that a rank may use
    Bytes host_memory{};
    Bytes libraries{};   // what a rank takes before it has any model data: code, kernels, stacks
    KernelSpeed speed{}; // of a large matmul, a copy and a tiny kernel, in `dtype`
    DType dtype = DType::float32;
    std::map<std::string, KernelSample> kernels{}; // by kernel_key
    std::vector<CollectiveSample> collectives{};   // by what, ranks and bytes, rising
    std::vector<MessageSample> messages{};         // by bytes, rising
    std::map<int, Bytes> group_room{};             // that a group of so many ranks takes of each of them
    LinkSpeed host_copy{};                         // device to host and back
    Contention contention{};
    double slowdown = 1; // of the slowest rank: its time over the mean of all; others wait for it

    bool operator==(const CostProfile&) const = default;
};

std::string to_json(const CostProfile& profile);
CostProfile parse_profile(std::string_view text, const std::string& where); // Error naming file and key
CostProfile read_profile(const fs::path& path);

// Error saying what differs, and what to do, where the profile was not measured on this machine by this program.
void check_fits(const CostProfile& profile, const Fingerprint& here, const std::string& where);

// The machine as a cluster of one node, a device for each rank.
Cluster cluster_of(const CostProfile& profile);

// What was timed where it was; kernels of other sizes by the nearest of the same operator, in proportion to what their
// flops and bytes would take; collectives of other sizes between their neighbours. With a cluster of many such
// machines, what goes between them is taken from its links.
class MeasuredCost : public CostModel {
  public:
    MeasuredCost(CostProfile profile, const OperatorSet& operators); // `operators` is kept by reference
    // Error where the cluster is not of one kind of node.
    MeasuredCost(CostProfile profile, const OperatorSet& operators, Cluster cluster);

    const CostProfile& profile() const { return profile_; }
    const Cluster& cluster() const override { return cluster_; }
    double kernel_seconds(std::string_view op, Types inputs, Types outputs, const Attributes& attributes,
                          int kind) const override;
    double kernel_seconds(const Instruction& instruction, int kind) const override;
    double first_kernel_seconds(const Instruction& instruction, int kind) const override;
    Bytes workspace(const Instruction& instruction) const override;
    double collective_seconds(Collective what, Bytes bytes, const GroupShape& shape, int kind) const override;
    double message_seconds(Bytes bytes, int level, int senders, int kind) const override;
    double host_copy_seconds(Bytes bytes, int kind) const override;
    double optimizer_seconds(std::int64_t parameters, std::int64_t bytes_each, int kind) const override;
    double norm_seconds(std::int64_t parameters, std::int64_t bytes_each, int kind) const override;
    Contention contention(int kind) const override;
    double slowdown() const override { return profile_.slowdown; }
    Bytes group_room(int ranks) const override;

  protected:
    // Kernels that were timed since, and the slowdown of the slowest rank in them.
    void add(const std::map<std::string, KernelSample>& kernels, double slowdown) const;
    const OperatorSet& operators() const { return operators_; }

  private:
    double roofline(double flops, double bytes) const;
    double estimate(std::string_view op, double flops, double bytes) const;
    const KernelSample* find(const Instruction& instruction, bool accumulate) const;

    mutable CostProfile profile_;
    const OperatorSet& operators_;
    Cluster cluster_;
    mutable std::map<std::string, std::vector<KernelSample>, std::less<>> by_operator_;
};

} // namespace tutti::costs
