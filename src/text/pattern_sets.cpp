#include "text/pattern_sets.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace tutti::text {
namespace {

struct Named {
    std::string_view name, body;
};

const Named posix_sets[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x00-\\x7F"},
    {"blank", "\\x09\\p{Zs}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", digit_body},
    {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"},
    {"lower", "\\p{Lowercase}"},
    {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}"},
    {"punct", "\\p{P}$+<=>\\^`|~"},
    {"space", space_body},
    {"upper", "\\p{Uppercase}"},
    {"word", word_body},
    {"xdigit", hexadecimal_body},
};

const Named categories[] = {
    {"any", "\\x{0}-\\x{10FFFF}"},
    {"assigned", "\\P{Cn}"},
    {"c", "\\p{C}"},
    {"other", "\\p{C}"},
    {"cc", "\\p{Cc}"},
    {"control", "\\p{Cc}"},
    {"cf", "\\p{Cf}"},
    {"format", "\\p{Cf}"},
    {"cn", "\\p{Cn}"},
    {"unassigned", "\\p{Cn}"},
    {"co", "\\p{Co}"},
    {"privateuse", "\\p{Co}"},
    {"cs", "\\p{Cs}"},
    {"surrogate", "\\p{Cs}"},
    {"l", "\\p{L}"},
    {"letter", "\\p{L}"},
    {"lc", "\\p{Lu}\\p{Ll}\\p{Lt}"},
    {"casedletter", "\\p{Lu}\\p{Ll}\\p{Lt}"},
    {"ll", "\\p{Ll}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"lm", "\\p{Lm}"},
    {"modifierletter", "\\p{Lm}"},
    {"lo", "\\p{Lo}"},
    {"otherletter", "\\p{Lo}"},
    {"lt", "\\p{Lt}"},
    {"titlecaseletter", "\\p{Lt}"},
    {"lu", "\\p{Lu}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"m", "\\p{M}"},
    {"mark", "\\p{M}"},
    {"combiningmark", "\\p{M}"},
    {"mc", "\\p{Mc}"},
    {"spacingmark", "\\p{Mc}"},
    {"me", "\\p{Me}"},
    {"enclosingmark", "\\p{Me}"},
    {"mn", "\\p{Mn}"},
    {"nonspacingmark", "\\p{Mn}"},
    {"n", "\\p{N}"},
    {"number", "\\p{N}"},
    {"nd", "\\p{Nd}"},
    {"decimalnumber", "\\p{Nd}"},
    {"nl", "\\p{Nl}"},
    {"letternumber", "\\p{Nl}"},
    {"no", "\\p{No}"},
    {"othernumber", "\\p{No}"},
    {"p", "\\p{P}"},
    {"punctuation", "\\p{P}"},
    {"pc", "\\p{Pc}"},
    {"connectorpunctuation", "\\p{Pc}"},
    {"pd", "\\p{Pd}"},
    {"dashpunctuation", "\\p{Pd}"},
    {"pe", "\\p{Pe}"},
    {"closepunctuation", "\\p{Pe}"},
    {"pf", "\\p{Pf}"},
    {"finalpunctuation", "\\p{Pf}"},
    {"pi", "\\p{Pi}"},
    {"initialpunctuation", "\\p{Pi}"},
    {"po", "\\p{Po}"},
    {"otherpunctuation", "\\p{Po}"},
    {"ps", "\\p{Ps}"},
    {"openpunctuation", "\\p{Ps}"},
    {"s", "\\p{S}"},
    {"symbol", "\\p{S}"},
    {"sc", "\\p{Sc}"},
    {"currencysymbol", "\\p{Sc}"},
    {"sk", "\\p{Sk}"},
    {"modifiersymbol", "\\p{Sk}"},
    {"sm", "\\p{Sm}"},
    {"mathsymbol", "\\p{Sm}"},
    {"so", "\\p{So}"},
    {"othersymbol", "\\p{So}"},
    {"z", "\\p{Z}"},
    {"separator", "\\p{Z}"},
    {"zl", "\\p{Zl}"},
    {"lineseparator", "\\p{Zl}"},
    {"zp", "\\p{Zp}"},
    {"paragraphseparator", "\\p{Zp}"},
    {"zs", "\\p{Zs}"},
    {"spaceseparator", "\\p{Zs}"},
    {"whitespace", space_body},
};

constexpr std::string_view binary_properties[] = {
    "alphabetic",
    "asciihexdigit",
    "caseignorable",
    "cased",
    "dash",
    "defaultignorablecodepoint",
    "diacritic",
    "emoji",
    "emojicomponent",
    "emojimodifier",
    "emojimodifierbase",
    "emojipresentation",
    "extendedpictographic",
    "extender",
    "hexdigit",
    "idcontinue",
    "idstart",
    "ideographic",
    "lowercase",
    "math",
    "noncharactercodepoint",
    "patternsyntax",
    "patternwhitespace",
    "quotationmark",
    "regionalindicator",
    "softdotted",
    "terminalpunctuation",
    "unifiedideograph",
    "uppercase",
    "variationselector",
    "xidcontinue",
    "xidstart",
};

// Names are compared without case, spaces and what joins words.
std::string plain(std::string_view name) {
    std::string result;
    for (char c : name)
        if (c != ' ' && c != '_' && c != '-') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

template <class Table>
std::optional<std::string> find(const Table& table, std::string_view name) {
    const auto found = std::ranges::find(table, name, &Named::name);
    if (found == std::end(table)) return std::nullopt;
    return std::string(found->body);
}

} // namespace

std::optional<std::string> posix_body(std::string_view name) { return find(posix_sets, name); }

std::optional<std::string> property_body(std::string_view name) {
    const std::string key = plain(name);
    if (const auto body = find(posix_sets, key)) return body;
    if (const auto body = find(categories, key)) return body;
    const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
    if (key.empty() || !std::ranges::all_of(key, is_letter)) return std::nullopt;
    if (std::ranges::find(binary_properties, key) != std::end(binary_properties)) return "\\p{" + key + "}";
    if (key.starts_with("in") && name.size() > 2 && name[2] == '_') return std::nullopt; // a block
    return "\\p{sc:" + key + "}"; // PCRE2 says whether there is such a script
}

} // namespace tutti::text
