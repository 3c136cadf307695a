#include "text/pattern_translation.h"

#include "base/error.h"
#include "formats/json.h"
#include "text/pattern_sets.h"
#include "text/unicode.h"

#include <cctype>
#include <optional>
#include <vector>

namespace tutti::text {
namespace {

constexpr std::size_t deepest = 100; // groups and classes within one another

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
bool is_alphanumeric(char32_t c) { return c < 0x80 && std::isalnum(static_cast<int>(c)) != 0; }

// A character that stands for itself wherever it is put.
std::string literal(char32_t c) {
    if (is_alphanumeric(c)) return std::string(1, static_cast<char>(c));
    return fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(c));
}

// What an escape stands for: one character, a set of characters, or something else that PCRE2 reads as it is.
struct Escape {
    std::optional<char32_t> character;
    std::optional<CharacterSet> set;
    std::string other;
};

// Characters of a class without those that need an alternation: [body] or one of the alternatives.
struct Union {
    std::string body;
    std::vector<std::string> alternatives;

    bool empty() const { return body.empty() && alternatives.empty(); }
    void add(const CharacterSet& set) {
        if (set.negated)
            alternatives.push_back("[^" + set.body + "]");
        else
            body += set.body;
    }
    std::string text() const {
        if (alternatives.empty()) return "[" + body + "]";
        std::string text = "(?:";
        if (!body.empty()) text += "[" + body + "]|";
        return text + fmt::format("{})", fmt::join(alternatives, "|"));
    }
};

class Translation {
  public:
    Translation(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

    std::string run() {
        groups_.push_back({});
        while (at_ < in_.size()) {
            const char c = in_[at_];
            if (groups_.back().extended && skip_layout()) continue;
            if (c == '(')
                open_group();
            else if (c == ')')
                close_group();
            else if (c == '|')
                ++at_, out_ += '|';
            else
                translate_atom();
        }
        if (groups_.size() > 1) refuse("a group that is not closed");
        return out_.append(groups_.back().inner, ')');
    }

  private:
    struct Group {
        bool extended = false;
        std::size_t begin = 0; // in `out_`
        std::size_t inner = 0; // groups opened for options, which end with this one
    };

    [[noreturn]] void refuse(std::string_view what) const {
        fail("{}: the pattern {} has {}, which is not supported", where_, formats::in_quotes(in_), what);
    }
    bool ahead(std::string_view text) const { return in_.substr(at_).starts_with(text); }
    char32_t take_character() {
        if (at_ >= in_.size()) refuse("an end within an escape or a class");
        return next_character(in_, at_);
    }

    // White space and comments of an extended pattern.
    bool skip_layout() {
        if (in_[at_] == '#') {
            at_ = std::min(in_.find('\n', at_), in_.size() - 1) + 1;
            return true;
        }
        if (std::isspace(static_cast<unsigned char>(in_[at_])) == 0) return false;
        ++at_;
        return true;
    }

    void translate_atom() {
        const std::size_t begin = out_.size();
        const char c = in_[at_];
        if (c == '\\') {
            ++at_;
            const Escape escape = read_escape(false);
            if (escape.character) out_ += literal(*escape.character);
            if (escape.set) out_ += escape.set->as_class();
            out_ += escape.other;
        } else if (c == '[') {
            ++at_;
            out_ += read_class(0);
        } else if (c == '.' || c == '^' || c == '$') {
            ++at_;
            out_ += c;
        } else if (c == '*' || c == '+' || c == '?') {
            refuse("a quantifier with nothing before it");
        } else {
            out_ += literal(take_character());
        }
        translate_quantifiers(begin);
    }

    // The text of {n,m} at this place, with {,m} as {0,m}; nothing where the brace stands for itself.
    std::optional<std::string> read_interval() {
        std::size_t end = at_ + 1;
        std::string least, most;
        while (end < in_.size() && is_digit(in_[end])) least += in_[end++];
        const bool range = end < in_.size() && in_[end] == ',';
        if (range) ++end;
        while (range && end < in_.size() && is_digit(in_[end])) most += in_[end++];
        if (end >= in_.size() || in_[end] != '}' || (least.empty() && most.empty())) return std::nullopt;
        at_ = end + 1;
        if (least.size() > 5 || most.size() > 5) refuse("a repetition of more than 65535 times");
        return "{" + (least.empty() ? "0" : least) + (range ? "," : "") + most + "}";
    }

    // Quantifiers behind the atom that begins at `begin` of `out_`. In Ruby's syntax {n,m}+ repeats {n,m}, and {n}?
    // makes {n} optional; for PCRE2 the one is possessive, the other lazy.
    void translate_quantifiers(std::size_t begin) {
        for (bool first = true;; first = false) {
            while (groups_.back().extended && at_ < in_.size() && skip_layout()) {
            }
            if (at_ >= in_.size()) return;
            const char c = in_[at_];
            std::string quantifier;
            bool interval = false;
            if (c == '*' || c == '+' || c == '?') {
                ++at_;
                quantifier = c;
            } else if (const auto text = c == '{' ? read_interval() : std::nullopt) {
                quantifier = *text;
                interval = true;
            } else {
                return;
            }
            if (!first) {
                out_.insert(begin, "(?:");
                out_ += ')';
            }
            out_ += quantifier;
            const bool exact = interval && quantifier.find(',') == std::string::npos;
            const char suffix = at_ < in_.size() ? in_[at_] : '\0';
            if ((suffix == '?' && !exact) || (suffix == '+' && !interval)) {
                out_ += suffix;
                ++at_;
            }
        }
    }

    void open_group() {
        if (groups_.size() == deepest) refuse(fmt::format("more than {} groups within one another", deepest));
        Group group{groups_.back().extended, out_.size()};
        if (!ahead("(?")) {
            if (ahead("(*")) refuse("a callout (*");
            ++at_;
            out_ += '(';
        } else if (ahead("(?#")) {
            const std::size_t end = in_.find(')', at_);
            if (end == std::string_view::npos) refuse("a comment that is not closed");
            at_ = end + 1;
            return;
        } else if (ahead("(?<=") || ahead("(?<!")) {
            take(4);
        } else if (ahead("(?:") || ahead("(?=") || ahead("(?!") || ahead("(?>")) {
            take(3);
        } else if (ahead("(?<") || ahead("(?'") || ahead("(?(")) {
            const char end = ahead("(?<") ? '>' : ahead("(?'") ? '\'' : ')';
            const std::size_t close = in_.find(end, at_ + 3);
            if (close == std::string_view::npos) refuse("a name that is not closed");
            take(close + 1 - at_);
        } else {
            return open_options(group);
        }
        groups_.push_back(group);
    }
    void take(std::size_t count) {
        out_ += in_.substr(at_, count);
        at_ += count;
    }

    // (?imx-imx: ) and (?imx-imx), which holds for all that follows in its group, alternatives included.
    void open_options(Group group) {
        std::string set, unset;
        bool on = true, extended = group.extended;
        for (at_ += 2; at_ < in_.size() && in_[at_] != ':' && in_[at_] != ')'; ++at_) {
            std::string& letters = on ? set : unset;
            switch (in_[at_]) {
            case '-': on = false; break;
            case 'i': letters += 'i'; break;
            case 'm': letters += 's'; break; // the dot takes line breaks, too
            case 'x': extended = on; break;
            default: refuse(fmt::format("(?{}", in_[at_]));
            }
        }
        if (at_ >= in_.size()) refuse("a group that is not closed");
        out_ += "(?" + set + (unset.empty() ? "" : "-" + unset) + ":";
        if (in_[at_++] == ':') {
            group.extended = extended;
            groups_.push_back(group);
        } else {
            groups_.back().extended = extended;
            ++groups_.back().inner;
        }
    }

    void close_group() {
        if (groups_.size() == 1) refuse("a ) without its (");
        const Group group = groups_.back();
        groups_.pop_back();
        ++at_;
        out_.append(group.inner + 1, ')');
        translate_quantifiers(group.begin);
    }

    std::optional<CharacterSet> read_property(char letter) {
        if (!ahead("{")) return std::nullopt; // \p is the letter then
        const std::size_t end = in_.find('}', at_);
        if (end == std::string_view::npos) refuse("a property that is not closed");
        std::string_view name = in_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        bool negated = letter == 'P';
        if (name.starts_with('^')) {
            negated = !negated;
            name.remove_prefix(1);
        }
        const auto body = property_body(name);
        if (!body) refuse(fmt::format("the property {}", formats::in_quotes(name)));
        return CharacterSet{*body, negated};
    }

    char32_t read_code(std::size_t least, std::size_t most) {
        char32_t code = 0;
        std::size_t digits = 0;
        for (; digits < most && at_ < in_.size() && is_hex(in_[at_]); ++digits)
            code = code * 16 + static_cast<char32_t>(std::stoi(std::string(1, in_[at_++]), nullptr, 16));
        if (digits < least || code > last_character || (code >= 0xD800 && code < 0xE000))
            refuse("an escape of a character that there is not");
        return code;
    }

    char32_t read_hexadecimal() {
        if (!ahead("{")) {
            const char32_t code = read_code(0, 2);
            if (code >= 0x80) refuse("\\x with a byte of a character"); // Oniguruma joins such bytes
            return code;
        }
        ++at_;
        const char32_t code = read_code(1, 8);
        if (!ahead("}")) refuse("an escape that is not closed");
        ++at_;
        return code;
    }

    // Behind a backslash.
    Escape read_escape(bool in_class) {
        const char32_t c = take_character();
        switch (c) {
        case 't': return {'\t', {}, {}};
        case 'n': return {'\n', {}, {}};
        case 'r': return {'\r', {}, {}};
        case 'f': return {'\f', {}, {}};
        case 'v': return {'\v', {}, {}};
        case 'a': return {'\a', {}, {}};
        case 'e': return {char32_t{0x1B}, {}, {}};
        case 'x': return {read_hexadecimal(), {}, {}};
        case 'u': return {read_code(4, 4), {}, {}};
        case 's': return {{}, CharacterSet{std::string(space_body), false}, {}};
        case 'S': return {{}, CharacterSet{std::string(space_body), true}, {}};
        case 'd': return {{}, CharacterSet{std::string(digit_body), false}, {}};
        case 'D': return {{}, CharacterSet{std::string(digit_body), true}, {}};
        case 'w': return {{}, CharacterSet{std::string(word_body), false}, {}};
        case 'W': return {{}, CharacterSet{std::string(word_body), true}, {}};
        case 'h': return {{}, CharacterSet{std::string(hexadecimal_body), false}, {}};
        case 'H': return {{}, CharacterSet{std::string(hexadecimal_body), true}, {}};
        case 'p':
        case 'P':
            if (const auto set = read_property(static_cast<char>(c))) return {{}, set, {}};
            return {c, {}, {}};
        default: break;
        }
        if (c == '0' || (in_class && c >= '1' && c <= '7')) {
            char32_t code = c - '0';
            for (int i = 0; i < 2 && at_ < in_.size() && in_[at_] >= '0' && in_[at_] <= '7'; ++i)
                code = code * 8 + static_cast<char32_t>(in_[at_++] - '0');
            if (code >= 0x80) refuse("an octal escape of a byte of a character");
            return {code, {}, {}};
        }
        if (c == 'c' || ((c == 'C' || c == 'M') && ahead("-"))) refuse("an escape of a control character");
        if (in_class) return {c, {}, {}};
        return read_assertion(c);
    }

    Escape read_assertion(char32_t c) {
        const std::string word = "[" + std::string(word_body) + "]";
        switch (c) {
        case 'b': return {{}, {}, fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)};
        case 'B': return {{}, {}, fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word)};
        case 'A':
        case 'z':
        case 'Z':
        case 'G':
        case 'K':
        case 'R':
        case 'X':
        case 'N': return {{}, {}, "\\" + std::string(1, static_cast<char>(c))};
        case 'O': return {{}, {}, "(?s:.)"};
        case 'y':
        case 'Y': refuse("a boundary of text segments (\\y)");
        case 'k':
        case 'g':
            if (ahead("<") || ahead("'")) {
                const std::size_t end = in_.find(ahead("<") ? '>' : '\'', at_ + 1);
                if (end == std::string_view::npos) refuse("a name that is not closed");
                const std::string name(in_.substr(at_, end + 1 - at_));
                at_ = end + 1;
                return {{}, {}, "\\" + std::string(1, static_cast<char>(c)) + name};
            }
            return {c, {}, {}};
        default: break;
        }
        if (c >= '1' && c <= '9') {
            std::string number(1, static_cast<char>(c));
            while (at_ < in_.size() && is_digit(in_[at_])) number += in_[at_++];
            return {{}, {}, "(?:\\" + number + ")"};
        }
        return {c, {}, {}};
    }

    // Behind the [ of a class: PCRE2 text that matches one character of it. Classes within classes and intersections
    // (&&) become alternations and lookaheads.
    std::string read_class(std::size_t depth) {
        if (depth == deepest) refuse(fmt::format("more than {} classes within one another", deepest));
        const bool negated = ahead("^");
        if (negated) ++at_;
        std::vector<Union> parts(1);
        for (bool first = true;; first = false) {
            if (at_ >= in_.size()) refuse("a class that is not closed");
            if (ahead("]") && !first) break;
            if (ahead("&&")) {
                at_ += 2;
                parts.emplace_back();
            } else if (ahead("[:") && add_posix_set(parts.back())) {
            } else if (ahead("[")) {
                ++at_;
                parts.back().alternatives.push_back(read_class(depth + 1));
            } else {
                add_characters(parts.back());
            }
        }
        ++at_;
        for (const Union& part : parts)
            if (part.empty()) refuse("an empty class");
        if (parts.size() == 1 && parts[0].alternatives.empty()) return (negated ? "[^" : "[") + parts[0].body + "]";
        std::string inner = "(?:";
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) inner += "(?=" + parts[i].text() + ")";
        inner += parts.back().text() + ")";
        return negated ? "(?:(?!" + inner + ")(?s:.))" : inner;
    }

    bool add_posix_set(Union& part) {
        const std::size_t end = in_.find(":]", at_);
        if (end == std::string_view::npos) return false;
        std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
        const bool negated = name.starts_with('^');
        if (negated) name.remove_prefix(1);
        const auto body = posix_body(name);
        if (!body) return false;
        part.add({*body, negated});
        at_ = end + 2;
        return true;
    }

    // A character, a range of them, or an escape for a set.
    void add_characters(Union& part) {
        const Escape first = read_class_member();
        if (first.set) return part.add(*first.set);
        part.body += literal(*first.character);
        if (!ahead("-") || at_ + 1 >= in_.size() || in_[at_ + 1] == ']' || in_[at_ + 1] == '[') return;
        ++at_;
        const Escape last = read_class_member();
        if (last.set) {
            part.body += "\\-";
            return part.add(*last.set);
        }
        if (*last.character < *first.character) refuse("a range of characters whose end is before its beginning");
        part.body += "-" + literal(*last.character);
    }
    Escape read_class_member() {
        if (!ahead("\\")) return {take_character(), {}, {}};
        ++at_;
        if (ahead("b")) return ++at_, Escape{'\b', {}, {}};
        return read_escape(true);
    }

    std::string_view in_;
    const std::string& where_;
    std::size_t at_ = 0;
    std::string out_;
    std::vector<Group> groups_;
};

} // namespace

std::string translate_pattern(std::string_view pattern, const std::string& where) {
    return Translation(pattern, where).run();
}

} // namespace tutti::text
