// Writes the first step's logits and every parameter's gradient, before clipping, to a safetensors file.
#pragma once

#include "comm/group.h"
#include "compile/compile.h"
#include "train/session/session.h"

namespace tutti::train {

class StepDump {
  public:
    // The place is tried at once, so that a place that cannot be written is known before the step is paid for. All
    // ranks write the file together; those without logits give none.
    StepDump(comm::Group& group, const std::string& path, Session& session, const offload::ModelData& data);

    runtime::Executor::Observer observer(); // collects logits after each forward, gradients before the norm
    void write();

  private:
    // The part of the step's logits that a rank owns and writes, after forwards of the stage that ends in them. The
    // slice is of [global batch, sequence, vocabulary]: the samples of its micro-batches, in turn.
    struct OwnedLogits : compile::RankLogits {
        std::int32_t model_replicas = 1; // micro-batch m belongs to copy m mod copies
    };
    static std::optional<OwnedLogits> owned_logits(const Session& session); // where no other rank writes them
    void collect_logits(const Task& task);
    void collect_gradients();

    comm::Group& group_;
    fs::path path_, temporary_;
    Session& session_;
    const offload::ModelData& data_;
    std::optional<OwnedLogits> owned_logits_;
    std::vector<float> logits_;
    std::vector<std::vector<std::byte>> gradients_; // per stored tensor of this rank, what it saves of it
};

} // namespace tutti::train
