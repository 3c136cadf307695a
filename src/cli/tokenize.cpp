// tutti tokenize: texts to ids of tokens and back, on all cores, printed in the order of the texts or written to a file
// of tokens.

#include "base/counted.h"
#include "base/error.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cores/topology.h"
#include "data/token_writer.h"
#include "formats/json.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"
#include "text/batches.h"
#include "text/tokenizer.h"

#include <fmt/compile.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace tutti::cli {
namespace {

struct TokenizeFlags {
    CLI::Option *tokenizer, *files, *jsonl, *field, *lines, *special_tokens, *decode, *skip_special_tokens, *output,
        *format, *append, *threads;
};

struct Job {
    std::unique_ptr<const text::Tokenizer> tokenizer;
    std::vector<text::TextFile> files;
    std::string field; // of JSON lines; empty: texts as they are
    bool decode = false, special_tokens = true, skip_special_tokens = false;
    std::optional<text::Id> append; // behind each text
    std::string output;             // empty: print
    data::TokenFormat format = data::TokenFormat::llm_c;
    std::size_t threads = 1;
};

// What a thread makes of a batch: lines to print, or ids with where each text ends.
struct Result {
    std::string printed;
    std::vector<text::Id> ids;
    std::vector<std::size_t> ends;
};

std::string text_of_line(const Job& job, std::string_view line) {
    const nlohmann::json value = formats::parse_json(line, "the line");
    return formats::JsonObject(value, "the line").string(job.field);
}

std::vector<text::Id> ids_of_line(const Job& job, std::string_view line) {
    nlohmann::json value = formats::parse_json(line, "the line");
    if (!job.field.empty()) value = formats::JsonObject(value, "the line").list(job.field);
    if (!value.is_array()) fail("the line should hold a list of token ids");
    std::vector<text::Id> ids;
    for (const nlohmann::json& id : value) {
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() > ~text::Id{0})
            fail("the line holds {}, which is no token id", formats::in_quotes(id.dump()));
        ids.push_back(id.get<text::Id>());
    }
    return ids;
}

void print_ids(std::span<const text::Id> ids, std::string& out) {
    out += '[';
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i > 0) out += ", ";
        fmt::format_to(std::back_inserter(out), FMT_COMPILE("{}"), ids[i]);
    }
    out += "]\n";
}

// On a terminal a text's characters could be commands to it.
std::string printed_text(const std::string& decoded) {
    return terminal::output_is_terminal() ? terminal::json_to_show(decoded) : formats::json_string(decoded) + '\n';
}

void process_text(const Job& job, text::Encoder& encoder, std::string_view line, Result& result) {
    if (job.decode) {
        result.printed += printed_text(job.tokenizer->decode(ids_of_line(job, line), job.skip_special_tokens));
        return;
    }
    const std::size_t begin = result.ids.size();
    if (job.field.empty())
        encoder.encode(line, job.special_tokens, result.ids);
    else
        encoder.encode(text_of_line(job, line), job.special_tokens, result.ids);
    if (job.append) result.ids.push_back(*job.append);
    if (job.output.empty()) {
        print_ids(std::span(result.ids).subspan(begin), result.printed);
        result.ids.resize(begin);
    } else {
        result.ends.push_back(result.ids.size());
    }
}

Result process(const Job& job, text::Encoder& encoder, const text::TextBatch& batch) {
    Result result;
    for (const text::TextBatch::Text& one : batch.texts) {
        try {
            process_text(job, encoder, batch.text(one), result);
        } catch (const Error& error) {
            fail("{}: {}", batch.place(one), error.what());
        }
    }
    return result;
}

// The line that is drawn over, and what is said at the end.
class TokenizeProgress {
  public:
    explicit TokenizeProgress(std::uint64_t total) : total_(total) {}
    void show(std::uint64_t bytes, std::uint64_t tokens) {
        if (!terminal::output_is_terminal() || Clock::now() - drawn_ < std::chrono::milliseconds(200)) return;
        drawn_ = Clock::now();
        const std::string share =
            total_ > 0 ? fmt::format("{:.0f}%, ", 100 * static_cast<double>(bytes) / static_cast<double>(total_)) : "";
        terminal::print(fmt::format("\r{}{} tokens, {:.1f} MB/s\x1b[K", share,
                                    terminal::with_commas(static_cast<std::int64_t>(tokens)), speed(bytes)));
        is_drawn_ = true;
    }
    void clear() {
        if (is_drawn_) terminal::print("\r\x1b[K");
        is_drawn_ = false;
    }
    double seconds() const { return std::chrono::duration<double>(Clock::now() - begun_).count(); }
    double speed(std::uint64_t bytes) const { return static_cast<double>(bytes) / 1e6 / std::max(seconds(), 1e-9); }

  private:
    using Clock = std::chrono::steady_clock;
    std::uint64_t total_;
    bool is_drawn_ = false;
    Clock::time_point begun_ = Clock::now(), drawn_{};
};

void write_result(const Result& result, data::TokenWriter& writer) {
    std::size_t begin = 0;
    for (std::size_t end : result.ends) {
        writer.add(std::span(result.ids).subspan(begin, end - begin));
        begin = end;
    }
}

int run_job(const Job& job) {
    std::vector<std::unique_ptr<text::Encoder>> encoders;
    for (std::size_t i = 0; i < job.threads; ++i) encoders.push_back(job.tokenizer->encoder());
    std::unique_ptr<data::TokenWriter> writer;
    if (!job.output.empty()) writer = data::write_tokens(job.output, job.format, job.tokenizer->end_of_ids());
    text::TextReader reader(job.files);
    TokenizeProgress progress(reader.total_bytes());
    std::uint64_t texts = 0;
    text::in_order<Result>(
        reader, job.threads,
        [&](std::size_t thread, const text::TextBatch& batch) { return process(job, *encoders[thread], batch); },
        [&](const text::TextBatch& batch, const Result& result) {
            texts += batch.texts.size();
            if (!writer) return terminal::print(result.printed);
            write_result(result, *writer);
            progress.show(reader.bytes(), writer->tokens());
        });
    progress.clear();
    if (!writer) return 0;
    writer->finish();
    terminal::print(
        fmt::format("{}: {} tokens of {} as {}, in {:.1f} s ({:.1f} MB/s)\n", terminal::name_to_show(job.output),
                    terminal::with_commas(static_cast<std::int64_t>(writer->tokens())), counted(texts, "text"),
                    writer->type(), progress.seconds(), progress.speed(reader.bytes())));
    return 0;
}

Job read_job(const TokenizeFlags& flags) {
    Job job;
    const auto tokenizer = text_of(flags.tokenizer);
    if (!tokenizer) fail("which tokenizer? as in tutti tokenize path/to/model story.txt");
    job.decode = is_set(flags.decode);
    const auto jsonl = text_of(flags.jsonl);
    const bool lines = jsonl.has_value() || is_set(flags.lines) || job.decode;
    for (const std::string& file : flags.files->results()) job.files.push_back({file, lines});
    if (jsonl && !job.files.empty()) fail("give either --jsonl FILE or files of text, not both");
    if (jsonl) job.files.push_back({*jsonl, true});
    if (job.files.empty()) job.files.push_back({"-", lines});
    if (jsonl) job.field = text_of(flags.field).value_or("text");
    if (!jsonl && text_of(flags.field)) fail("--field names a field of JSON lines, which --jsonl FILE gives");
    job.special_tokens = !text_of(flags.special_tokens) || is_set(flags.special_tokens);
    job.skip_special_tokens = is_set(flags.skip_special_tokens);
    job.output = text_of(flags.output).value_or("");
    if (text_of(flags.output)) check_writable(job.output);
    if (job.decode && !job.output.empty())
        fail("--output is for tokens, and --decode prints texts: use > to keep them");
    if (const auto format = text_of(flags.format)) {
        if (*format != "llm.c" && *format != "megatron")
            fail("--format is {}, and should be llm.c or megatron", formats::in_quotes(*format));
        job.format = *format == "megatron" ? data::TokenFormat::megatron : data::TokenFormat::llm_c;
    }
    job.threads = static_cast<std::size_t>(integer_of(flags.threads, 0, 1024).value_or(0));
    if (job.threads == 0) job.threads = static_cast<std::size_t>(cores::usable_cores());
    job.tokenizer = text::open_tokenizer(*tokenizer);
    if (const auto append = text_of(flags.append)) {
        job.append = job.tokenizer->id_of(*append);
        if (!job.append) fail("--append is {}, which is no token of {}", formats::in_quotes(*append), *tokenizer);
    }
    return job;
}

} // namespace

Command tokenize_command() {
    Command command;
    command.name = "tokenize";
    command.summary = "turn text into tokens with a model's tokenizer, or tokens into text";
    command.usage = "TOKENIZER [FILE...] [options]";
    command.about = "Turns texts into ids of tokens as Hugging Face's tokenizers do, and prints one JSON list per "
                    "text, or writes a "
                    "file of tokens for tutti train. A file of text is one text; without a file, standard input is.";
    command.examples =
        "tutti tokenize path/to/model story.txt\n"
        "tutti tokenize path/to/model --jsonl corpus.jsonl --output tokens.bin --append \"<|endoftext|>\"\n"
        "tutti tokenize path/to/model --jsonl ids.jsonl --field ids --decode";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<TokenizeFlags>();
        flags->tokenizer = add_value(app, "tokenizer", "TOKENIZER",
                                     "a folder with a tokenizer.json or a tokenizer.model, or one of these files");
        flags->files = app.add_option("files", "texts; \"-\" is standard input")->type_name("FILE");
        flags->files->expected(0, CLI::detail::expected_max_vector_size)->allow_extra_args(); // all that follow
        flags->jsonl = add_value(app, "--jsonl", "FILE", "JSON lines, each with a text in one field");
        flags->field = add_value(app, "--field", "NAME", "that field", "text");
        flags->lines = add_flag(app, "--lines", "every line of a file is a text by itself, without its line break");
        flags->special_tokens =
            add_flag(app, "--special-tokens", "with the special tokens that the tokenizer puts around a text")
                ->default_str("yes");
        flags->decode = add_flag(app, "--decode", "lists of ids to texts, each printed as a JSON string");
        flags->skip_special_tokens =
            add_flag(app, "--skip-special-tokens", "leave special tokens out of decoded texts");
        flags->output = add_value(app, "--output", "FILE", "write a file of tokens instead, for --data of tutti train");
        flags->format = add_value(app, "--format", "NAME", "of that file: llm.c, or megatron with its .idx", "llm.c");
        flags->append = add_value(app, "--append", "TOKEN", "put this token behind every text, as between documents");
        flags->threads = add_value(app, "--threads", "N", "0: all cores that this process may use", "0");
        return [flags] { return run_job(read_job(*flags)); };
    };
    return command;
}

} // namespace tutti::cli
