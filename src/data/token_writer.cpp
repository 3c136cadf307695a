#include "data/token_writer.h"

#include "base/error.h"
#include "data/file_sources.h"

#include <limits>
#include <string>
#include <vector>

namespace tutti::data {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
    return std::as_bytes(std::span(values));
}

// A row of tokens of 16 or 32 bits behind a header of any length; written a megabyte at a time.
class TokenRow {
  public:
    TokenRow(const fs::path& path, TokenType type) : file_(path), type_(type) {}

    void write_header(std::span<const std::byte> header) { file_.write(header); }
    void write(std::span<const std::uint32_t> tokens) {
        count_ += tokens.size();
        for (std::uint32_t token : tokens) {
            const auto* bytes = reinterpret_cast<const char*>(&token); // the lower half comes first
            waiting_.append(bytes, size_of(type_));
        }
        if (waiting_.size() > largest_write) flush();
    }
    void finish() {
        flush();
        file_.finish();
    }
    std::uint64_t count() const { return count_; }
    TokenType type() const { return type_; }

  private:
    static constexpr std::size_t largest_write = 1 << 20;
    void flush() {
        file_.write(waiting_);
        waiting_.clear();
    }

    OutputFile file_;
    TokenType type_;
    std::uint64_t count_ = 0;
    std::string waiting_;
};

class LlmCWriter final : public TokenWriter {
  public:
    LlmCWriter(const fs::path& path, std::uint64_t vocabulary)
        : path_(path), row_(path, vocabulary <= 1u << 16 ? TokenType::uint16 : TokenType::uint32) {
        row_.write_header(bytes_of(header(0)));
    }
    void add(std::span<const std::uint32_t> document) override {
        constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
        if (document.size() > most - row_.count())
            fail("{} would hold more than {} tokens, which llm.c's format cannot count: write Megatron's, or several "
                 "files",
                 path_.string(), most);
        row_.write(document);
    }
    void finish() override {
        row_.finish();
        SharedFile file(path_); // the count is known only now
        file.write(0, bytes_of(header(row_.count())));
        file.sync();
    }
    std::uint64_t tokens() const override { return row_.count(); }
    std::string_view type() const override { return name_of(row_.type()); }

  private:
    std::vector<std::int32_t> header(std::uint64_t count) const {
        const bool narrow = row_.type() == TokenType::uint16;
        std::vector<std::int32_t> words(256);
        words[0] = narrow ? 20240520 : 20240801;
        words[1] = narrow ? 1 : 7;
        words[2] = static_cast<std::int32_t>(count);
        return words;
    }

    fs::path path_;
    TokenRow row_;
};

// The index as open_megatron reads it; every document is one sequence.
class MegatronWriter final : public TokenWriter {
  public:
    MegatronWriter(const fs::path& path, std::uint64_t vocabulary)
        : row_(path, vocabulary < 65500 ? TokenType::uint16 : TokenType::int32), // as Megatron chooses
          index_(fs::path(path).replace_extension(".idx")) {
        if (path.extension() == ".idx")
            fail("{} names Megatron's index, and --output its tokens: a name that ends in .bin", path.string());
    }
    void add(std::span<const std::uint32_t> document) override {
        if (document.size() > std::numeric_limits<std::int32_t>::max())
            fail("a document of {} tokens is too long for Megatron's index", document.size());
        lengths_.push_back(static_cast<std::int32_t>(document.size()));
        row_.write(document);
    }
    void finish() override {
        std::string header("MMIDIDX\0\0", 9);
        const auto put = [&](auto value) { header.append(reinterpret_cast<const char*>(&value), sizeof value); };
        put(std::uint64_t{1});
        put(static_cast<std::uint8_t>(row_.type() == TokenType::uint16 ? 8 : 4));
        put(std::uint64_t{lengths_.size()});
        put(std::uint64_t{lengths_.size() + 1});
        std::vector<std::int64_t> pointers, documents{0};
        std::int64_t place = 0;
        for (std::int32_t length : lengths_) {
            pointers.push_back(place);
            place += length * static_cast<std::int64_t>(size_of(row_.type()));
            documents.push_back(static_cast<std::int64_t>(pointers.size()));
        }
        index_.write(header);
        index_.write(bytes_of(lengths_));
        index_.write(bytes_of(pointers));
        index_.write(bytes_of(documents));
        row_.finish();
        index_.finish();
    }
    std::uint64_t tokens() const override { return row_.count(); }
    std::string_view type() const override { return name_of(row_.type()); }

  private:
    TokenRow row_;
    OutputFile index_;
    std::vector<std::int32_t> lengths_;
};

} // namespace

std::unique_ptr<TokenWriter> write_tokens(const fs::path& path, TokenFormat format, std::uint64_t vocabulary) {
    if (format == TokenFormat::llm_c) return std::make_unique<LlmCWriter>(path, vocabulary);
    return std::make_unique<MegatronWriter>(path, vocabulary);
}

} // namespace tutti::data
