#include "train/step_dump.h"

#include "formats/safetensors.h"
#include "formats/tensor_store.h"
#include "models/checkpoint.h"
#include "train/tensor_pieces.h"

#include <algorithm>

namespace tutti {
namespace {

// A parameter may be called otherwise in memory than in the checkpoint (GPT-NeoX's head): it is found under both names.
std::vector<std::string> names_of(const Session& session, const std::string& stored) {
    std::vector<std::string> names = {stored};
    for (const std::string& other : other_names(session.source(), stored))
        if (std::ranges::find(session.stored(), other, &StoredTensor::name) == session.stored().end())
            names.push_back(other);
    return names;
}

} // namespace

StepDump::StepDump(const std::string& path, Session& session, const ModelData& data)
    : path_(fs::weakly_canonical(path)), session_(session), data_(data) {
    if (fs::exists(path_) && !fs::is_regular_file(path_)) fail("cannot write {}: it is not a regular file", path);
    temporary_ = path_;
    temporary_ += ".tmp";
    OutputFile probe(temporary_); // removed again when it goes out of scope
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
    logits_.resize(count * static_cast<std::size_t>(session_.plan().micro_batches()));
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
    std::vector<std::size_t> written; // gradient behind each tensor of the file
    for (std::size_t i = 0; i < session_.stored().size(); ++i)
        for (const std::string& name : names_of(session_, session_.stored()[i].name)) {
            specs.push_back({"grad/" + name, data_.dtype(Region::gradients), session_.stored()[i].type.shape});
            written.push_back(i);
        }
    SafetensorsWriter writer(temporary_, specs);
    writer.append(std::as_bytes(std::span(logits_)));
    for (std::size_t i : written) writer.append(gradients_[i]);
    writer.finish();
    rename_durably(temporary_, path_);
}

} // namespace tutti
