#include "train/step_dump.h"

#include "base/error.h"
#include "checkpoints/shared_tensors.h"
#include "checkpoints/tensor_pieces.h"
#include "checkpoints/whole_tensors.h"
#include "comm/agree.h"
#include "formats/tensor_store.h"
#include "models/checkpoint.h"

#include <algorithm>

namespace tutti::train {
namespace {

// A parameter may be called otherwise in memory than in the checkpoint (GPT-NeoX's head): it is found under both names.
std::vector<std::string> names_of(const Session& session, const std::string& stored) {
    std::vector<std::string> names = {stored};
    for (const std::string& other : models::other_names(session.source(), stored))
        if (std::ranges::find(session.stored(), other, &StoredTensor::name) == session.stored().end())
            names.push_back(other);
    return names;
}

} // namespace

StepDump::StepDump(comm::Group& group, const std::string& path, Session& session, const offload::ModelData& data)
    : group_(group), path_(behind_links(path)), temporary_(path_), session_(session), data_(data),
      owned_logits_(owned_logits(session)) {
    temporary_ += ".tmp";
    comm::first_does(group_, [&] {
        if (is_there(path_) && !is_file(path_)) fail("cannot write {}: it is not a regular file", path);
        OutputFile probe(temporary_); // removed again when it goes out of scope
    });
}

std::optional<StepDump::OwnedLogits> StepDump::owned_logits(const Session& session) {
    const auto& logits = session.compiled().logits;
    if (!logits) return std::nullopt;
    const Workload& workload = session.plan().workload;
    const Program& program = session.compiled().program;
    OwnedLogits owned{*logits, schedule_of(session.plan()).parameters.model_replicas};
    owned.slice.whole[0] = workload.global_batch;
    owned.slice.dims[0].clear();
    for (std::int32_t m = owned.replica; m < program.micro_batches; m += owned.model_replicas) {
        const std::int64_t first = program.first_sample + m * workload.micro_batch;
        owned.slice.dims[0] = joined(owned.slice.dims[0], shifted(logits->slice.dims[0], first));
    }
    return owned;
}

runtime::Executor::Observer StepDump::observer() {
    return [this](const Task& task, bool done) {
        if (task.kind == TaskKind::forward && done && owned_logits_ && task.stage == owned_logits_->stage &&
            task.replica == owned_logits_->replica)
            collect_logits(task);
        if (task.kind == TaskKind::norm && !done) collect_gradients();
    };
}

void StepDump::collect_logits(const Task& task) {
    const runtime::Executor& executor = session_.executor();
    const Argument& logits = executor.output("logits").buffer;
    const auto count = static_cast<std::size_t>(logits.type.elements());
    std::vector<std::byte> raw(static_cast<std::size_t>(logits.type.bytes().count));
    session_.device().copy_out(raw, executor.address(logits.address, task));
    logits_.resize(static_cast<std::size_t>(owned_logits_->slice.elements()));
    const std::size_t first = count * static_cast<std::size_t>(task.micro_batch / owned_logits_->model_replicas);
    TUTTI_CHECK(first + count <= logits_.size(), "logits {} to {} of {}", first, first + count, logits_.size());
    formats::convert_elements(logits.type.dtype, raw, DType::float32,
                              std::as_writable_bytes(std::span(logits_).subspan(first, count)));
}

void StepDump::collect_gradients() {
    for (std::int32_t owned = 0; owned < data_.tensors(); ++owned) {
        const Range saved = data_.saved(Region::gradients, owned);
        std::vector<std::byte>& gradient = gradients_.emplace_back();
        gradient.resize(static_cast<std::size_t>(saved.size() * size_of(data_.dtype(Region::gradients))));
        if (saved.size() > 0) data_.read(Region::gradients, owned, saved.begin, gradient);
    }
}

void StepDump::write() {
    const Workload& workload = session_.plan().workload;
    const checkpoints::WholeTensors tensors(session_.stored(), data_);
    const DType dtype = data_.dtype(Region::gradients);
    std::vector<StoredTensor> specs = {
        {"logits", {DType::float32, {workload.global_batch, workload.sequence, session_.facts().vocabulary}}}};
    std::vector<std::size_t> mine, gradients = {0}; // the model's tensor behind each of the file's but the first
    if (owned_logits_) mine.push_back(0);
    for (std::size_t i = 0; i < session_.stored().size(); ++i)
        for (const std::string& name : names_of(session_, session_.stored()[i].name)) {
            if (tensors.owned_of(i)) mine.push_back(specs.size());
            specs.push_back({"grad/" + name, {dtype, session_.stored()[i].type.shape}});
            gradients.push_back(i);
        }
    try {
        checkpoints::SharedTensorFile file(group_, temporary_, specs);
        file.write(mine, [&](std::size_t number, const checkpoints::SharedTensorFile::Put& put) {
            if (number == 0)
                return checkpoints::for_each_run(owned_logits_->slice, 0, std::as_bytes(std::span(logits_)),
                                                 DType::float32, put);
            const std::int32_t owned = *tensors.owned_of(gradients[number]);
            checkpoints::for_each_run(data_.tensor(owned).slice, data_.saved(Region::gradients, owned).begin,
                                      gradients_[static_cast<std::size_t>(owned)], dtype, put);
        });
        comm::first_does(group_, [&] { rename_durably(temporary_, path_); });
    } catch (...) {
        if (group_.rank() == 0) remove_quietly(temporary_);
        throw;
    }
}

} // namespace tutti::train
