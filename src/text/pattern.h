// A pattern of a tokenizer: a text that is looked for as it is, or a regular expression on PCRE2, compiled to machine
// code and with a limit on the work that a match may take.
#pragma once

#include "text/splitting.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::text {

class Pattern {
  public:
    // Errors name `where`, the place in the tokenizer's file.
    static Pattern of_text(const std::string& text, std::string where);
    static Pattern of_expression(const std::string& expression, std::string where);

    // The whole text as matches and what lies between them. As in Oniguruma's iterator, an empty match directly behind
    // another match is none. Thread-safe.
    std::vector<Match> matches(std::string_view text) const;

    // The expression as it stands in the file.
    const std::string& text() const { return text_; }

  private:
    struct Code;

    Pattern(std::string text, std::string where) : text_(std::move(text)), where_(std::move(where)) {}
    void compile(const std::string& translated);
    // Where the next match lies from `begin` on; false where there is none.
    bool find(std::string_view text, std::size_t begin, std::size_t& match_begin, std::size_t& match_end) const;

    std::string text_, where_;
    std::shared_ptr<const Code> code_; // none: the text as it is
};

} // namespace tutti::text
