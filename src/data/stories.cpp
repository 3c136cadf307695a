#include "data/stories.h"

#include "base/philox.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {
namespace {

// A rule's alternatives are parted by '|'; {word} is a rule drawn anew, or something that this story has settled: who
// it is about, where, and the words below under `settled`. {a} becomes "a" or "an". Changing anything here changes the
// built-in data and the hashes in its test.
using Rule = std::pair<std::string_view, std::string_view>;

constexpr std::array settled = {"kind", "friendkind", "home",  "colour", "thing", "food", "sad",
                                "glad", "time",       "skill", "trait",  "spot",  "made", "owner"};

constexpr Rule words[] = {
    {"girl", "Mila|Anna|Rosa|Lily|Nora|Ella|Tess|Ruby|Ida|Clara|Maya|Zoe|Hana|Lucy|Emma|Wren"},
    {"boy", "Tom|Ben|Max|Leo|Sam|Otto|Finn|Hugo|Jack|Oscar|Milo|Theo|Noah|Paul|Erik|Luca"},
    {"kind", "fox|bear|rabbit|mouse|owl|hedgehog|squirrel|frog|duck|otter|badger|deer|cat|dog|goat|pony"},
    {"friendkind", "turtle|sparrow|beaver|mole|goose|lamb|crow|snail|robin|donkey|kitten|heron"},
    {"owner", "farmer|baker|miller|teacher|fisherman|shepherd|gardener|postman"},
    {"home",
     "in a small house by the river|in a hollow tree in the forest|under the old bridge|at the edge of the village|"
     "in a warm burrow on the hill|near the blue lake|behind the red barn|in a garden full of flowers|"
     "by the sea|next to the windmill"},
    {"colour", "red|blue|green|yellow|white|silver|golden|purple"},
    {"thing", "ball|hat|kite|scarf|boat|drum|bell|basket|lantern|blanket|spoon|button|key|ring|book|flute"},
    {"food", "apples|berries|nuts|carrots|pears|plums|cookies|pancakes|muffins|grapes|figs|cherries"},
    {"sad", "sad|worried|lonely|upset|unhappy"},
    {"glad", "happy|glad|proud|cheerful|excited"},
    {"time", "morning|day|afternoon|evening"},
    {"trait", "little|brave|kind|clever|quiet|funny|gentle|curious|shy|young"},
    {"skill", "swim|sing|whistle|climb|dance|paint|skate|juggle"},
    {"spot", "under a bush|behind a big stone|in the tall grass|between two roots|on top of the fence|beside the well|"
             "inside an empty barrel|at the foot of the hill"},
    {"made", "a bridge|a raft|a tree house|a swing|a bench|a little cart|a bird house|a tent"},
    {"weather", "sunny|rainy|windy|cold|warm|bright|foggy|quiet"},
    {"search", "under the bed|in the kitchen|behind the door|along the path|near the pond|in the garden|by the gate|"
               "around the barn"},
    {"walked", "walked|ran|wandered|skipped|hurried"},
    {"where", "through the forest|along the river|across the field|over the hill|down the road|past the mill"},
    {"joy", "laughed out loud|danced in a circle|clapped|jumped up and down|smiled all day|sang a song"},
    {"night", "The moon was round and bright.|The stars came out one by one.|The wind was soft and warm.|"
              "Everything was quiet."},
    {"many", "two|three|four|five|six|seven"},
};

constexpr Rule openings[] = {
    {"opening", "Once there was {a} {trait} {kind} named {hero}. {He} lived {home}.|"
                "Once upon a time, {a} {kind} named {hero} lived {home}. {He} was {a} {trait} {kind}.|"
                "{hero} was {a} {trait} {kind} who lived {home}.|"
                "Long ago there lived {a} {trait} {kind}. {His} name was {hero}, and {he} lived {home}."},
    {"meet",
     "After a while {he} met {a} {friendkind} named {friend}.|Then {a} {friendkind} came by. {Fhis} name was {friend}.|"
     "There {he} saw {friend}, the {friendkind}.|Soon {friend}, the {friendkind}, came along."},
    {"help",
     "\"Do not worry,\" said {friend}. \"I will help you.\"|\"I can help you,\" said {friend}. \"Come with me.\"|"
     "{friend} thought for a while. \"Let us try together,\" {fhe} said.|"
     "\"Two can do more than one,\" said {friend}."},
    {"thanks", "\"Thank you, {friend},\" said {hero}.|\"Thank you!\" said {hero}. \"You are a good friend.\"|"
               "{hero} thanked {friend} and gave {fhim} some {food}.|\"You are so kind,\" said {hero} to {friend}."},
    {"ending", "From that day on, {hero} and {friend} were best friends.|"
               "That night {hero} went home and slept well. {night}|"
               "And {hero} never forgot what {friend} did that {time}.|"
               "Then {hero} and {friend} shared some {food} and watched the sun go down.|"
               "When {hero} came home, {he} told {his} mother everything. \"I am proud of you,\" said {his} mother.|"
               "{hero} and {friend} {walked} home together. {night}"},
};

constexpr std::string_view plots[] = {
    // A thing is lost, and found by the friend.
    "One {weather} {time}, {hero} could not find {his} {colour} {thing}. {He} looked {search}. {He} looked {search}. "
    "But the "
    "{thing} was gone, and {hero} was very {sad}. {meet} \"Why are you so {sad}?\" asked {friend}. \"I lost my "
    "{colour} "
    "{thing},\" said {hero}. {help} They {walked} {where} and looked everywhere. At last they found the {colour} "
    "{thing} "
    "{spot}. {hero} was so {glad} that {he} {joy}. {thanks}",
    // Food is shared.
    "One {weather} {time}, {hero} had a basket of {food}. {He} {walked} {where} to find a good place to eat. {meet} "
    "{friend} "
    "looked {sad}. \"What is wrong?\" asked {hero}. \"I am hungry, and I have no {food},\" said {friend}. {hero} "
    "looked at "
    "the basket. There were only {many} left. \"We can share,\" said {hero}. They sat down {spot} and ate the {food} "
    "together. {friend} was {glad} again, and {fhe} {joy}.",
    // A storm, and a shelter.
    "One {weather} {time}, {hero} {walked} {where}. Suddenly the sky turned dark and it began to rain. {hero} was wet "
    "and "
    "cold and {sad}. {meet} \"Come in, come in!\" said {friend}. \"My house is {spot}.\" Inside it was warm and dry. "
    "{friend} made some {food}, and they told each other stories until the rain stopped. Then the sun came out. {hero} "
    "was "
    "so {glad} that {he} {joy}. {thanks}",
    // Learning something.
    "{hero} wanted to learn to {skill}. {He} tried in the morning, and {he} tried in the evening, but {he} could not "
    "{skill}. \"I will never learn it,\" {he} said, and {he} felt {sad}. {meet} {friend} could {skill} very well. "
    "{help} "
    "Every {time} they went {where} to practice. After {many} days, {hero} could {skill} too! {He} was {glad}, and "
    "{he} "
    "{joy}. {thanks}",
    // Something found goes back to its owner.
    "One {weather} {time}, {hero} {walked} {where}. {spot-} {he} found {a} {colour} {thing}. \"Whose {thing} is "
    "this?\" {he} "
    "asked. {meet} \"Is this your {thing}?\" asked {hero}. \"No,\" said {friend}, \"but I think it belongs to the "
    "{owner}.\" "
    "So they {walked} {where} to the {owner}. The {owner} was very {glad}. \"I looked for my {colour} {thing} for "
    "{many} "
    "days,\" said the {owner}. The {owner} gave them some {food}, and {hero} {joy}.",
    // Building together.
    "One {weather} {time}, {hero} wanted to build {made}. {He} worked and worked, but it was too hard to do alone. "
    "{He} sat "
    "down {spot} and felt {sad}. {meet} \"What are you doing?\" asked {friend}. \"I want to build {made},\" said "
    "{hero}, "
    "\"but I cannot do it alone.\" {help} They worked for {many} hours. When it was done, {hero} painted it {colour}. "
    "It "
    "was the best thing they had ever made. They were both {glad}, and {friend} {joy}.",
    // Afraid of the dark.
    "Every night, {hero} was afraid of the dark. One evening {he} heard a noise {spot}. \"Who is there?\" asked "
    "{hero}, and "
    "{his} voice was small. \"It is only me,\" said a voice. It was {friend}, the {friendkind}. \"I am {sad} because I "
    "lost "
    "my way in the dark.\" {hero} took {his} {colour} lantern and {walked} {where} with {friend}. The light was warm "
    "and "
    "bright, and {hero} was not afraid any more. {friend} found {fhis} house and was very {glad}. \"Thank you, "
    "{hero},\" "
    "said {friend}. \"You are so brave.\"",
    // A present.
    "It was the birthday of {friend}, the {friendkind}. {hero} wanted to give {fhim} a present, but {he} had no money, "
    "and "
    "so {he} was {sad}. {He} looked {search} and {search}. Then {he} had an idea. {He} made {a} {colour} {thing} and "
    "put it "
    "in a box. In the {time} {he} {walked} {where} to the house of {friend}. \"This is for you,\" said {hero}. "
    "{friend} "
    "opened the box and saw the {colour} {thing}. \"It is just what I wanted!\" said {friend}, and {fhe} {joy}. Then "
    "they "
    "ate some {food}, and {hero} was {glad}.",
};

using Alternatives = std::vector<std::string_view>;

Alternatives split(std::string_view text) {
    Alternatives parts;
    for (std::size_t bar; (bar = text.find('|')) != std::string_view::npos; text.remove_prefix(bar + 1))
        parts.push_back(text.substr(0, bar));
    parts.push_back(text);
    return parts;
}

const std::map<std::string_view, Alternatives>& grammar() {
    static const auto rules = [] {
        std::map<std::string_view, Alternatives> all;
        for (const auto& [name, text] : words) all.emplace(name, split(text));
        for (const auto& [name, text] : openings) all.emplace(name, split(text));
        return all;
    }();
    return rules;
}

std::string capitalised(std::string text) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    return text;
}

class Teller {
  public:
    Teller(std::uint64_t seed, std::uint64_t index) : stream_(index) {
        const std::uint64_t mixed = mix_bits(seed, 0x73746F7279); // "story": apart from other uses of the seed
        key_ = {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
    }

    std::string tell() {
        for (const char* name : settled) cast_[name] = draw(grammar().at(name));
        cast_["spot-"] = capitalised(cast_["spot"]);
        introduce("hero", "");
        do introduce("friend", "f");
        while (cast_["friend"] == cast_["hero"]);
        const std::string_view plot = draw(plots);
        for (std::string_view part : {std::string_view("{opening} "), plot, std::string_view(" {ending}")})
            expand(part);
        return std::move(out_);
    }

  private:
    std::string_view draw(std::span<const std::string_view> from) {
        const std::uint64_t bits = philox_draw(key_, stream_, next_++);
        return from[(bits * from.size()) >> 32];
    }

    // A name and its pronouns: {he} {his} {him}, or {fhe} {fhis} {fhim} for the friend.
    void introduce(const std::string& role, const std::string& prefix) {
        static constexpr std::array<std::string_view, 2> kinds = {"girl", "boy"};
        const std::string_view kind = draw(kinds);
        const bool girl = kind == "girl";
        cast_[role] = draw(grammar().at(kind));
        cast_[prefix + "he"] = girl ? "she" : "he";
        cast_[prefix + "his"] = girl ? "her" : "his";
        cast_[prefix + "him"] = girl ? "her" : "him";
        for (const char* pronoun : {"he", "his"})
            cast_[capitalised(prefix + pronoun)] = capitalised(cast_[prefix + pronoun]);
    }

    void expand(std::string_view pattern) {
        while (!pattern.empty()) {
            const std::size_t open = std::min(pattern.find('{'), pattern.size());
            append(pattern.substr(0, open));
            pattern.remove_prefix(open);
            if (pattern.empty()) break;
            const std::size_t close = pattern.find('}');
            const std::string_view name = pattern.substr(1, close - 1);
            pattern.remove_prefix(close + 1);
            if (name == "a")
                article_ = true;
            else if (const auto found = cast_.find(name); found != cast_.end())
                append(found->second);
            else
                expand(draw(grammar().at(name)));
        }
    }

    // An article waits for the word after it: "a fox", "an owl".
    void append(std::string_view text) {
        const std::size_t word = text.find_first_not_of(' ');
        if (article_ && word != std::string_view::npos) {
            const bool vowel = std::string_view("aeiou").find(text[word]) != std::string_view::npos;
            out_ += vowel ? "an " : "a ";
            text.remove_prefix(word);
            article_ = false;
        } else if (article_) {
            return;
        }
        out_ += text;
    }

    PhiloxKey key_;
    std::uint64_t stream_;
    std::uint64_t next_ = 0;
    std::map<std::string, std::string, std::less<>> cast_;
    std::string out_;
    bool article_ = false;
};

} // namespace

std::string story(std::uint64_t seed, std::uint64_t index) { return Teller(seed, index).tell(); }

std::string generate_stories(std::uint64_t seed, std::size_t bytes) {
    std::string text;
    text.reserve(bytes + 4096);
    for (std::uint64_t index = 0; text.size() < bytes; ++index) {
        text += story(seed, index);
        text += "\n\n";
    }
    return text;
}

} // namespace tutti::data
