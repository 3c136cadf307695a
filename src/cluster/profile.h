// CostProfile: what `tutti profile` measured on a machine with so many ranks at work, as a value and a JSON file. It
// holds for that machine, threads and program alone: its fingerprint says which.
#pragma once

#include "base/file.h"
#include "cluster/cost_model.h"
#include "program/kernel_times.h"

#include <map>

namespace tutti {

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
    KernelSpeed speed{}; // of a large product, a copy and a tiny kernel, in `dtype`
    DType dtype = DType::float32;
    std::map<std::string, KernelSample> kernels{}; // by kernel_key
    std::vector<CollectiveSample> collectives{};   // by what, ranks and bytes, rising
    std::vector<MessageSample> messages{};         // by bytes, rising
    LinkSpeed host_copy{};                         // device to host and back
    Contention contention{};

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
// flops and bytes would take; collectives of other sizes between their neighbours.
class MeasuredCost : public CostModel {
  public:
    MeasuredCost(CostProfile profile, const OperatorSet& operators); // `operators` is kept by reference

    const Cluster& cluster() const override { return cluster_; }
    double kernel_seconds(std::string_view op, Types inputs, Types outputs, const Attributes& attributes,
                          int kind) const override;
    double kernel_seconds(const Instruction& instruction, int kind) const override;
    double collective_seconds(Collective what, Bytes bytes, const GroupShape& shape, int kind) const override;
    double message_seconds(Bytes bytes, int level, int senders, int kind) const override;
    double host_copy_seconds(Bytes bytes, int kind) const override;
    double optimizer_seconds(std::int64_t parameters, std::int64_t bytes_each, int kind) const override;
    Contention contention(int kind) const override;

  private:
    double roofline(double flops, double bytes) const;
    double estimate(std::string_view op, double flops, double bytes) const;

    CostProfile profile_;
    const OperatorSet& operators_;
    Cluster cluster_;
    std::map<std::string, std::vector<KernelSample>, std::less<>> by_operator_;
};

} // namespace tutti
