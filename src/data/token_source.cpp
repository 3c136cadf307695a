#include "data/token_source.h"

#include "base/error.h"
#include "base/file.h"
#include "data/file_sources.h"
#include "data/stories.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace tutti::data {
namespace {

constexpr std::uint64_t builtin_seed = 1;
constexpr std::size_t builtin_bytes = 4'000'000;

class BuiltinSource final : public StreamSource {
  public:
    BuiltinSource(std::string text, std::int64_t sequence)
        : StreamSource("builtin", static_cast<std::int64_t>(text.size()), sequence), text_(std::move(text)) {}

    std::int64_t vocabulary() const override { return 256; }
    TokenOrigin origin() const override { return TokenOrigin::builtin; }
    std::vector<std::string> files() const override { return {}; }
    std::string describe() const override { return describe_as("bytes of generated stories as tokens"); }

  private:
    void read_tokens(std::int64_t first, std::span<std::int64_t> out) const override {
        const auto begin = text_.begin() + first;
        std::transform(begin, begin + static_cast<std::ptrdiff_t>(out.size()), out.begin(),
                       [](char byte) { return static_cast<unsigned char>(byte); });
    }

    std::string text_;
};

std::vector<std::byte> first_bytes(const InputFile& file, std::uint64_t count) {
    std::vector<std::byte> bytes(std::min(count, file.size()));
    file.read(0, bytes);
    return bytes;
}

// Whether a text is JSON, or JSON lines as corpora are handed round: by its name, or because it opens an object or a
// list of objects.
bool is_json(const std::string& extension, std::span<const std::byte> start) {
    if (extension == ".json" || extension == ".jsonl" || extension == ".ndjson") return true;
    std::string opening; // the first characters that are no white space
    for (const std::byte byte : start) {
        const auto character = static_cast<unsigned char>(byte);
        if (std::isspace(character) == 0) opening += static_cast<char>(character);
        if (opening.size() == 3) break;
    }
    return opening.starts_with("{\"") || opening == "[{\"";
}

[[noreturn]] void fail_json(const fs::path& path) {
    fail("{} holds JSON, which --data does not take: it reads {}. tutti tokenize MODEL --jsonl {} --output tokens.bin "
         "makes tokens of JSON lines with the model's tokenizer; for a model whose tokens are bytes, write the texts "
         "into "
         "a plain text file",
         path.string(), token_formats(), path.string());
}

fs::path with_suffix(fs::path path, const char* suffix) { return path += suffix; }

std::unique_ptr<TokenSource> open_file(const fs::path& path, std::int64_t sequence) {
    InputFile file(path);
    if (file.size() == 0) fail("{} is empty: there is nothing to train on", path.string());
    const std::string extension = path.extension().string();
    const std::vector<std::byte> start = first_bytes(file, 1 << 16);
    if (extension == ".idx" || is_megatron_index(start))
        return open_megatron(fs::path(path).replace_extension(".bin"), path, sequence);
    const fs::path index = fs::path(path).replace_extension(".idx");
    if (extension == ".bin" && is_there(index)) return open_megatron(path, index, sequence);
    if (is_llm_c(start)) return open_llm_c(std::move(file), sequence);
    if (extension == ".safetensors" || is_safetensors(start, file.size())) return open_batches(path, sequence);
    if (extension == ".bin")
        fail("{} is not a token file: it begins with neither llm.c's number 20240520 (GPT-2) nor 20240801 (Llama 3), "
             "and no {} is beside it, as Megatron's would have",
             path.string(), index.filename().string());
    if (std::find(start.begin(), start.end(), std::byte{0}) != start.end())
        fail("{} is neither text nor a token file. --data reads text, {}", path.string(), token_formats());
    if (is_json(extension, start)) fail_json(path);
    return open_text(std::move(file), sequence);
}

} // namespace

std::unique_ptr<TokenSource> open_tokens(const std::string& spec, std::int64_t sequence) {
    if (sequence < 0) fail("a sequence of {} tokens was asked for; it must be at least 1", sequence);
    if (spec == "builtin")
        return std::make_unique<BuiltinSource>(generate_stories(builtin_seed, builtin_bytes),
                                               sequence == 0 ? default_sequence : sequence);
    const fs::path path = spec, prefix_bin = with_suffix(path, ".bin"), prefix_idx = with_suffix(path, ".idx");
    if (!is_there(path) && is_there(prefix_bin) && is_there(prefix_idx))
        return open_megatron(prefix_bin, prefix_idx, sequence);
    constexpr const char* wanted = "name a text file, an llm.c or Megatron .bin, a safetensors file, or \"builtin\"";
    if (!is_there(path)) fail("there is no data {}: {}", spec.empty() ? "\"\"" : spec, wanted);
    if (is_folder(path)) fail("{} is a folder, and data is one file: {}", spec, wanted);
    return open_file(path, sequence);
}

std::string_view token_formats() {
    return "an llm.c .bin, a Megatron .bin with its .idx, or a safetensors file with int64 input_ids and targets";
}

void check_tokens(std::span<const std::int64_t> tokens, std::int64_t vocabulary, std::int64_t sample,
                  const TokenSource& source) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int64_t token = tokens[i];
        if ((token >= 0 && token < vocabulary) || token == ignored_target) continue;
        fail(
            "token {} at position {} of sample {} of {} is outside the model's vocabulary of {}; the data must be made "
            "with the model's own tokenizer",
            token, i, sample, source.name(), vocabulary);
    }
}

} // namespace tutti::data
