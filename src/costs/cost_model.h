// CostModel: the seconds of kernels, collectives, messages and copies. `kind` is the kind of node (Cluster::kinds) on
// which they run.
#pragma once

#include "costs/collectives.h"
#include "graph/operator.h"
#include "program/program.h"

namespace tutti::costs {

// Contention: how much slower computation and communication are while a device does both.
struct Contention {
    double compute = 1, communication = 1;
    bool operator==(const Contention&) const = default;
};

// Of both together, where they start at the same time: as long as both go on, each is slower by its factor.
double overlapped_seconds(double compute, double communication, const Contention& contention);

class CostModel {
  public:
    virtual ~CostModel() = default;

    virtual const Cluster& cluster() const = 0;
    // A kernel on operands of these types, as one rank has them. Views cost nothing: do not ask for them.
    virtual double kernel_seconds(std::string_view op, Types inputs, Types outputs, const Attributes& attributes,
                                  int kind) const = 0;
    // As most micro-batches run it: what adds to gradients does add.
    virtual double kernel_seconds(const Instruction& instruction, int kind) const = 0;
    // As the first micro-batch of a step does, which overwrites them.
    virtual double first_kernel_seconds(const Instruction& instruction, int kind) const {
        return kernel_seconds(instruction, kind);
    }
    // Memory that a kernel needs beside its operands, as far as it is known.
    virtual Bytes workspace(const Instruction&) const { return {}; }
    // A program whose kernels are asked for next: who measures on demand does so now.
    virtual void expect(const Program&) const {}
    virtual double collective_seconds(Collective what, Bytes bytes, const GroupShape& shape, int kind) const = 0;
    // `senders`: see collectives.h
    virtual double message_seconds(Bytes bytes, int level, int senders, int kind) const = 0;
    virtual double host_copy_seconds(Bytes bytes, int kind) const = 0; // either way
    // The optimizer's pass over parameters, each with this many bytes of gradient, weight, master and moments.
    virtual double optimizer_seconds(std::int64_t parameters, std::int64_t bytes_each, int kind) const = 0;
    // The sum of the squares of so many gradients.
    virtual double norm_seconds(std::int64_t parameters, std::int64_t bytes_each, int kind) const {
        return optimizer_seconds(parameters, bytes_each, kind);
    }
    virtual Contention contention(int kind) const = 0;
    // The slowdown of the slowest rank: the time of its kernels over the mean of all ranks.
    virtual double slowdown() const { return 1; }
    // Memory that a group of so many ranks takes of each rank for its communication, as far as it is known.
    virtual Bytes group_room(int) const { return {}; }
};

// From data-sheet figures and the efficiencies of device kinds: a kernel takes the slower of its flops and its bytes,
// and a launch. `operators` and `cluster` are kept by reference.
class RooflineCost : public CostModel {
  public:
    RooflineCost(const Cluster& cluster, const OperatorSet& operators);

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
    const NodeKind& at(int kind) const;

    const Cluster& cluster_;
    const OperatorSet& operators_;
    std::vector<std::vector<LinkLevel>> levels_; // per kind
};

} // namespace tutti::costs
