// The first step made visible: its logits and every parameter's gradient, before clipping, as a safetensors file.
#pragma once

#include "train/session.h"

namespace tutti {

class StepDump {
  public:
    // The place is tried at once, so that a place that cannot be written is known before the step is paid for.
    StepDump(const std::string& path, Session& session, const ModelData& data);

    Executor::Observer observer(); // collects logits after each forward, gradients before the norm
    void write();

  private:
    void collect_logits(std::int32_t micro_batch);
    void collect_gradients();

    fs::path path_, temporary_;
    Session& session_;
    const ModelData& data_;
    std::vector<float> logits_;
    std::vector<std::vector<std::byte>> gradients_; // per stored tensor
};

} // namespace tutti
