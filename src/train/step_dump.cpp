#include "train/step_dump.h"

#include "formats/safetensors.h"
#include "formats/tensor_store.h"
#include "train/tensor_pieces.h"

namespace tutti {

StepDump::StepDump(const std::string& path, Session& session, const ModelData& data)
    : path_(path), session_(session), data_(data) {
    OutputFile probe(path_); // removed again when it goes out of scope
}

Executor::Observer StepDump::observer() {
    return [this](const Task& task, bool done) {
        if (task.kind == TaskKind::forward && done) collect_logits(task.micro_batch);
        if (task.kind == TaskKind::norm && !done) collect_gradients();
    };
}

void StepDump::collect_logits(std::int32_t micro_batch) {
    const Executor& executor = session_.executor();
    const Argument& logits = executor.output("logits").buffer;
    const auto count = static_cast<std::size_t>(logits.type.elements());
    std::vector<std::byte> raw(static_cast<std::size_t>(logits.type.bytes().count));
    session_.device().copy_out(raw, executor.address(logits.address));
    logits_.resize(count * static_cast<std::size_t>(session_.plan().workload.micro_batches()));
    const std::span<float> out(logits_.data() + count * static_cast<std::size_t>(micro_batch), count);
    convert_elements(logits.type.dtype, raw, DType::float32, std::as_writable_bytes(out));
}

void StepDump::collect_gradients() {
    for (std::size_t i = 0; i < session_.stored().size(); ++i) {
        std::vector<std::byte>& gradient = gradients_.emplace_back();
        for_each_piece(data_, Region::gradients, static_cast<std::int32_t>(i),
                       [&](std::int64_t, std::span<const std::byte> bytes) {
                           gradient.insert(gradient.end(), bytes.begin(), bytes.end());
                       });
    }
}

void StepDump::write() {
    const Workload& workload = session_.plan().workload;
    std::vector<TensorSpec> specs = {
        {"logits", DType::float32, {workload.global_batch, workload.sequence, session_.facts().vocabulary}}};
    for (const StoredTensor& tensor : session_.stored())
        specs.push_back({"grad/" + tensor.name, data_.dtype(Region::gradients), tensor.type.shape});
    SafetensorsWriter writer(path_, specs);
    writer.append(std::as_bytes(std::span(logits_)));
    for (const auto& gradient : gradients_) writer.append(gradient);
    writer.finish();
}

} // namespace tutti
