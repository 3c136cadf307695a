#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include "base/error.h"
#include "formats/json.h"
#include "text/pattern_translation.h"
#include "text/unicode.h"

#include <pcre2.h>

#include <array>
#include <new>

namespace tutti::text {
namespace {

constexpr std::size_t longest_pattern = 1 << 16;
constexpr std::uint32_t most_steps = 10'000'000, most_kibibytes = 256 << 10; // of one match
constexpr std::size_t first_stack = 32 << 10, largest_stack = 8 << 20;

template <class T>
T* allocated(T* pointer) {
    if (pointer == nullptr) throw std::bad_alloc();
    return pointer;
}

// What a match needs beside the pattern; one per thread serves all patterns.
struct MatchState {
    MatchState() {
        pcre2_set_match_limit(context, most_steps);
        pcre2_set_depth_limit(context, most_steps);
        pcre2_set_heap_limit(context, most_kibibytes);
        pcre2_jit_stack_assign(context, nullptr, stack);
    }
    MatchState(const MatchState&) = delete;
    MatchState& operator=(const MatchState&) = delete;
    ~MatchState() {
        pcre2_jit_stack_free(stack);
        pcre2_match_context_free(context);
        pcre2_match_data_free(data);
    }

    pcre2_match_data* data = allocated(pcre2_match_data_create(1, nullptr));
    pcre2_match_context* context = allocated(pcre2_match_context_create(nullptr));
    pcre2_jit_stack* stack = allocated(pcre2_jit_stack_create(first_stack, largest_stack, nullptr));
};

std::string message_of(int error) {
    std::array<PCRE2_UCHAR, 256> buffer{};
    pcre2_get_error_message(error, buffer.data(), buffer.size());
    return reinterpret_cast<const char*>(buffer.data());
}

} // namespace

struct Pattern::Code {
    explicit Code(pcre2_code* compiled) : code(compiled) {}
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;
    ~Code() { pcre2_code_free(code); }

    pcre2_code* code;
};

Pattern Pattern::of_text(const std::string& text, std::string where) {
    Pattern pattern(text, std::move(where));
    if (text.empty()) pattern.compile(""); // matches between all characters
    return pattern;
}

Pattern Pattern::of_expression(const std::string& expression, std::string where) {
    if (expression.size() > longest_pattern)
        fail("{}: a pattern of {} bytes is longer than the {} that are read", where, expression.size(),
             longest_pattern);
    Pattern pattern(expression, std::move(where));
    pattern.compile(translate_pattern(expression, pattern.where_));
    return pattern;
}

void Pattern::compile(const std::string& translated) {
    struct Free {
        void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
    };
    const std::unique_ptr<pcre2_compile_context, Free> context(allocated(pcre2_compile_context_create(nullptr)));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
    int error = 0;
    PCRE2_SIZE place = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place, context.get());
    if (code == nullptr)
        fail("{}: the pattern {} cannot be used: {}", where_, formats::in_quotes(text_), message_of(error));
    code_ = std::make_shared<const Code>(code);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // where it cannot, PCRE2 interprets
}

bool Pattern::find(std::string_view text, std::size_t begin, std::size_t& match_begin, std::size_t& match_end) const {
    if (!code_) {
        match_begin = text.find(text_, begin);
        match_end = match_begin + text_.size();
        return match_begin != std::string_view::npos;
    }
    thread_local MatchState state;
    const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                                   PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0)
        fail("{}: the pattern {} gives up on a text of {} bytes: {}", where_, formats::in_quotes(text_), text.size(),
             message_of(result));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data);
    if (bounds[0] > bounds[1] || bounds[0] < begin)
        fail("{}: the pattern {} matches backwards", where_, formats::in_quotes(text_));
    match_begin = bounds[0];
    match_end = bounds[1];
    return true;
}

std::vector<Match> Pattern::matches(std::string_view text) const {
    std::vector<Match> result;
    std::size_t done = 0, from = 0, last_end = std::string_view::npos, begin = 0, end = 0;
    while (from <= text.size() && find(text, from, begin, end)) {
        if (begin == end && end == last_end) {
            from += from < text.size() ? length_from(text[from]) : 1;
            continue;
        }
        from = last_end = end;
        if (done != begin) result.push_back({done, begin, false});
        result.push_back({begin, end, true});
        done = end;
    }
    if (done != text.size()) result.push_back({done, text.size(), false});
    return result;
}

} // namespace tutti::text
