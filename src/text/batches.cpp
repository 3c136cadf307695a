#include "text/batches.h"

#include "base/error.h"
#include "base/system_error.h"

#include <unistd.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <utility>

namespace tutti::text {
namespace {

constexpr std::size_t block = 256 << 10, longest_text = 1 << 30;

} // namespace

// A file, or standard input, from its beginning to its end.
class TextReader::Source {
  public:
    explicit Source(const TextFile& file) : name_(file.path == "-" ? "standard input" : file.path) {
        if (file.path == "-") return;
        file_.emplace(file.path);
        if (!is_file(file.path)) fail("{} is no regular file: give it as standard input, which is \"-\"", file.path);
    }

    const std::string& name() const { return name_; }
    std::optional<std::uint64_t> size() const {
        return file_ && file_->size() > 0 ? std::optional(file_->size()) : std::nullopt;
    }
    // Adds the next block to `bytes`; 0 at the end.
    std::size_t read(std::string& bytes) {
        const std::size_t before = bytes.size();
        const std::size_t wanted = file_ ? std::min<std::uint64_t>(block, file_->size() - offset_) : block;
        bytes.resize(before + wanted);
        const auto out = std::as_writable_bytes(std::span(bytes)).subspan(before);
        const std::size_t count = file_ ? read_file(out) : read_input(out);
        bytes.resize(before + count);
        offset_ += count;
        return count;
    }

  private:
    std::size_t read_file(std::span<std::byte> out) const {
        if (!out.empty()) file_->read(offset_, out);
        return out.size();
    }
    static std::size_t read_input(std::span<std::byte> out) {
        ssize_t count = 0;
        while ((count = ::read(STDIN_FILENO, out.data(), out.size())) < 0)
            if (errno != EINTR) fail_system(errno, "cannot read standard input");
        return static_cast<std::size_t>(count);
    }

    std::string name_;
    std::optional<InputFile> file_;
    std::uint64_t offset_ = 0;
};

std::string TextBatch::place(const Text& text) const {
    return text.line == 0 ? file : fmt::format("{}, line {}", file, text.line);
}

TextReader::TextReader(std::vector<TextFile> files) : files_(std::move(files)) {
    bool known = true;
    for (const TextFile& file : files_) {
        const auto size = Source(file).size();
        known = known && size;
        total_bytes_ += size.value_or(0);
    }
    if (!known) total_bytes_ = 0;
}

TextReader::~TextReader() = default;

bool TextReader::read(TextBatch& batch) {
    batch.texts.clear();
    batch.bytes.clear();
    for (;;) {
        if (!source_) {
            if (next_file_ == files_.size()) return false;
            source_ = std::make_unique<Source>(files_[next_file_++]);
            line_ = 0;
        }
        batch.file = source_->name();
        if (!files_[next_file_ - 1].lines) {
            read_whole(batch);
            source_.reset();
            return true;
        }
        if (read_lines(batch)) return true;
        source_.reset();
    }
}

void TextReader::read_whole(TextBatch& batch) {
    while (const std::size_t count = source_->read(batch.bytes)) {
        bytes_ += count;
        if (batch.bytes.size() > longest_text)
            fail("{} is longer than {} bytes, the most that one text may have: split it, or give --lines",
                 source_->name(), longest_text);
    }
    batch.texts.push_back({0, batch.bytes.size(), 0});
}

// The lines that end in the next block; false where there is none any more.
bool TextReader::read_lines(TextBatch& batch) {
    batch.bytes = std::exchange(rest_, {});
    std::size_t searched = batch.bytes.size(), end = std::string::npos;
    while (end == std::string::npos) {
        const std::size_t count = source_->read(batch.bytes);
        bytes_ += count;
        if (count == 0) { // the last line may lack its line break
            if (batch.bytes.empty()) return false;
            end = batch.bytes.size();
            break;
        }
        if (batch.bytes.size() > longest_text)
            fail("{}, line {} is longer than {} bytes", source_->name(), line_ + 1, longest_text);
        const std::size_t last = std::string_view(batch.bytes).substr(searched).find_last_of('\n');
        if (last != std::string::npos) end = searched + last + 1;
        searched = batch.bytes.size();
    }
    rest_ = batch.bytes.substr(end);
    batch.bytes.resize(end);
    for (std::size_t begin = 0; begin < end;) {
        const std::size_t line_break = std::min(batch.bytes.find('\n', begin), end);
        std::size_t text_end = line_break;
        if (line_break < end && text_end > begin && batch.bytes[text_end - 1] == '\r') --text_end;
        batch.texts.push_back({begin, text_end, ++line_});
        begin = line_break + 1;
    }
    return true;
}

} // namespace tutti::text
