// Batches prepared by somebody else: safetensors with input_ids and targets, int64 [steps, batch, sequence], and where
// sequences are documents one behind the other, documents, int32 of the same shape.
#include "base/counted.h"
#include "base/error.h"
#include "data/file_sources.h"
#include "formats/safetensors.h"

namespace tutti::data {
namespace {

class BatchSource final : public TokenSource {
  public:
    BatchSource(const fs::path& path, std::int64_t sequence)
        : file_(path), input_(tensor("input_ids", DType::int64)), targets_(tensor("targets", DType::int64)),
          documents_(file_.find("documents") ? &tensor("documents", DType::int32) : nullptr) {
        if (file_.entries().size() + file_.foreign().size() != (documents_ ? 3 : 2))
            fail("{} holds more than input_ids, targets and documents, which are all that training reads", name());
        if (documents_ && documents_->type.shape != input_.type.shape)
            fail("{} holds input_ids {} and documents {}; they must have the same shape", name(),
                 to_string(input_.type.shape), to_string(documents_->type.shape));
        if (input_.type.shape != targets_.type.shape)
            fail("{} holds input_ids {} and targets {}; they must have the same shape", name(),
                 to_string(input_.type.shape), to_string(targets_.type.shape));
        if (input_.type.shape.elements() == 0)
            fail("{} is empty: its input_ids are {}", name(), to_string(input_.type.shape));
        if (sequence != 0 && sequence != this->sequence())
            fail("{} holds sequences of {}, but {} were asked for", name(), counted(this->sequence(), "token"),
                 sequence);
    }

    std::int64_t samples() const override { return input_.type.shape[0] * input_.type.shape[1]; }
    std::int64_t sequence() const override { return input_.type.shape[2]; }
    std::int64_t batch() const override { return input_.type.shape[1]; }
    bool ordered() const override { return true; }
    std::vector<std::string> files() const override { return {name()}; }
    std::string name() const override { return file_.path().string(); }
    std::string describe() const override {
        return fmt::format("{}: {} of {} of {}, in order", name(), counted(input_.type.shape[0], "step"),
                           counted(batch(), "sample"), counted(sequence(), "token"));
    }

    void read(std::int64_t sample, std::span<std::int64_t> input, std::span<std::int64_t> targets) const override {
        TUTTI_CHECK(sample >= 0 && sample < samples(), "sample {} of {}", sample, samples());
        TUTTI_CHECK(std::ssize(input) == sequence() && std::ssize(targets) == sequence(), "{} and {} for {}",
                    input.size(), targets.size(), sequence());
        const auto first = static_cast<std::uint64_t>(sample * sequence());
        file_.read_range(input_, first, std::as_writable_bytes(input));
        file_.read_range(targets_, first, std::as_writable_bytes(targets));
        for (std::size_t i = 0; i < input.size(); ++i) {
            if (input[i] < 0)
                fail("{} holds the token {} at position {} of sample {} of input_ids; tokens are not negative", name(),
                     input[i], i, sample);
            if (targets[i] < 0 && targets[i] != ignored_target)
                fail("{} holds the target {} at position {} of sample {}; a target is a token, or {} where it is "
                     "ignored",
                     name(), targets[i], i, sample, ignored_target);
        }
    }

    bool has_documents() const override { return documents_ != nullptr; }
    void read_documents(std::int64_t sample, std::span<std::int32_t> begins) const override {
        TUTTI_CHECK(sample >= 0 && sample < samples(), "sample {} of {}", sample, samples());
        TUTTI_CHECK(std::ssize(begins) == sequence(), "{} for {}", begins.size(), sequence());
        if (documents_ == nullptr) return TokenSource::read_documents(sample, begins);
        file_.read_range(*documents_, static_cast<std::uint64_t>(sample * sequence()), std::as_writable_bytes(begins));
        std::int32_t before = 0;
        for (std::size_t i = 0; i < begins.size(); before = begins[i++])
            if (const std::string wrong = wrong_document(begins[i], before, static_cast<std::int64_t>(i));
                !wrong.empty())
                fail("{} says of token {} of sample {} that its document begins at {}, {}", name(), i, sample,
                     begins[i], wrong);
    }

  private:
    const formats::TensorEntry& tensor(std::string_view tensor_name, DType dtype) const {
        const formats::TensorEntry* found = file_.find(tensor_name);
        if (!found) fail("{} holds no tensor {}; training data are input_ids and targets", name(), tensor_name);
        if (found->type.dtype != dtype || found->type.shape.rank() != 3)
            fail("{} holds {} as {} {}; it should be {} [steps, batch, sequence]", name(), tensor_name,
                 name_of(found->type.dtype), to_string(found->type.shape), name_of(dtype));
        return *found;
    }

    // What is wrong with the document of a token; empty where nothing is. `before`: that of the token before it.
    std::string wrong_document(std::int32_t begin, std::int32_t before, std::int64_t token) const {
        if (begin < 0 || begin >= sequence())
            return fmt::format("but the sequence has the positions 0 to {}", sequence() - 1);
        if (begin < before)
            return fmt::format("but that of the token before it begins at {}: documents are in order", before);
        if (begin != before && begin != token) return "but a document begins at its own first token";
        return {};
    }

    formats::SafetensorsFile file_;
    const formats::TensorEntry& input_;
    const formats::TensorEntry& targets_;
    const formats::TensorEntry* documents_; // or null
};

} // namespace

// A text cannot pass: its first eight characters, as a number, exceed any file.
bool is_safetensors(std::span<const std::byte> start, std::uint64_t file_bytes) {
    if (start.size() < 9) return false;
    return load<std::uint64_t>(start, 0) <= file_bytes - 8 && start[8] == std::byte{'{'};
}

std::unique_ptr<TokenSource> open_batches(const fs::path& path, std::int64_t sequence) {
    return std::make_unique<BatchSource>(path, sequence);
}

} // namespace tutti::data
