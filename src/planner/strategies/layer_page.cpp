// One layer as a drawing: operators from top to bottom, on the left what goes to the next one, on the right in arcs
// what goes further.
#include "planner/strategies/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tutti::planner::strategies {
namespace {

constexpr int left = 330, width = 330, height = 62, pitch = 118, top = 80;

std::string escaped(std::string_view text) {
    std::string safe;
    for (char c : text) {
        switch (c) {
        case '<': safe += "&lt;"; break;
        case '>': safe += "&gt;"; break;
        case '&': safe += "&amp;"; break;
        case '"': safe += "&quot;"; break;
        default: safe += c;
        }
    }
    return safe;
}

// Told apart by hue and by the words beside; readable for colour-blind eyes.
struct Look {
    std::string_view colour, words;
};
Look look_of(AxisState kind) {
    switch (kind) {
    case partial: return {"#cc3311", "partial sums"};
    case replicated: return {"#777777", "whole on every rank"};
    case 0: return {"#009988", "split by samples"};
    case 1: return {"#0077bb", "split by sequence"};
    default: return {"#ee7733", "split by features or heads"};
    }
}

std::string text_at(int x, int y, std::string_view style, const std::string& words) {
    return fmt::format("<text x='{}' y='{}' {}>{}</text>\n", x, y, style, escaped(words));
}

class Drawing {
  public:
    Drawing(const StrategyModel& model, const Solution& solution)
        : operators_(describe_operators(model, solution)), flows_(describe_flows(model, solution)) {
        std::int64_t layers = 1;
        for (const OperatorText& text : operators_) layers = std::max(layers, text.times);
        for (const OperatorText& text : operators_)
            if (text.times == layers) rows_.emplace(text.group, static_cast<int>(rows_.size()));
    }

    std::string svg() {
        std::string body;
        std::vector<FlowText> drawn; // queries, keys and values often go alike
        for (const FlowText& flow : flows_) {
            if (std::ranges::find(drawn, flow) != drawn.end()) continue;
            drawn.push_back(flow);
            body += draw(flow, static_cast<int>(std::ranges::count(flows_, flow)));
        }
        for (const OperatorText& text : operators_)
            if (rows_.contains(text.group)) body += draw(text);
        const int down = top + pitch * static_cast<int>(rows_.size()) + 60;
        return fmt::format("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 1120 {}' width='1120' font-family="
                           "'sans-serif' font-size='13'>\n{}</svg>\n",
                           down, body);
    }

  private:
    int y_of(int group) const { return top + pitch * rows_.at(group); }

    std::string draw(const OperatorText& text) const {
        const int y = y_of(text.group);
        std::string box =
            fmt::format("<rect x='{}' y='{}' width='{}' height='{}' rx='6' fill='#f6f6f6' stroke='#333'/>\n", left, y,
                        width, height);
        const std::size_t star = text.name.rfind("*.");
        const std::string name = star == std::string::npos ? text.name : text.name.substr(star + 2);
        box += text_at(left + 10, y + 19, "font-weight='bold'", fmt::format("{}: {}", name, text.op));
        box += text_at(left + 10, y + 37, "", fmt::format("split {}", text.split));
        std::string notes;
        if (!text.weight.empty()) notes = "weight " + text.weight + (text.held ? ", sharded and gathered" : "");
        if (!text.gathered.empty()) notes += (notes.empty() ? "" : "; ") + ("input " + text.gathered);
        return box + text_at(left + 10, y + 54, "font-size='11' fill='#555'", notes);
    }

    std::string draw(const FlowText& flow, int count) {
        if (!rows_.contains(flow.from) || !rows_.contains(flow.to)) return {}; // embedding and head
        const Look look = look_of(flow.kind);
        std::string label =
            flow.resharding.empty() ? flow.taken : fmt::format("{} → {}: {}", flow.given, flow.taken, flow.resharding);
        if (count > 1) label = fmt::format("{} times {}", count, label);
        const int from = y_of(flow.from) + height, to = y_of(flow.to), middle = to + height / 2;
        const std::string stroke =
            fmt::format("fill='none' stroke='{}' stroke-width='{}'", look.colour, flow.kind == replicated ? 2 : 3);
        const std::string words = fmt::format("font-size='11' fill='{}'", look.colour);
        if (flow.next_layer) // to the next layer, and from the one before
            return fmt::format("<path d='M{} {} v40' {} stroke-dasharray='5 4'/>\n", left + 60, from, stroke) +
                   fmt::format("<path d='M10 {} H{}' {} stroke-dasharray='5 4'/>\n", middle, left, stroke) +
                   text_at(10, middle - 8, words, "from the layer before: " + label);
        if (rows_.at(flow.to) == rows_.at(flow.from) + 1)
            return fmt::format("<path d='M{} {} L{} {}' {}/>\n", left + 60, from, left + 60, to, stroke) +
                   text_at(left + 74, from + 25 + 14 * beside_[flow.from]++, words, label);
        const int reach = 40 + 26 * (arcs_++ % 8), right = left + width;
        return fmt::format("<path d='M{} {} C{} {} {} {} {} {}' {}/>\n", right, from - 16, right + 2 * reach, from - 16,
                           right + 2 * reach, to + 16, right, to + 16, stroke) +
               text_at(right + reach + 40, (from + to) / 2 + 14 * (arcs_ % 3), words, label);
    }

    std::vector<OperatorText> operators_;
    std::vector<FlowText> flows_;
    std::map<int, int> rows_; // of a group of the layer: its place from the top
    std::map<int, int> beside_;
    int arcs_ = 0;
};

} // namespace

std::string layer_page(const StrategyModel& model, const Solution& solution, const std::string& title) {
    std::string legend;
    for (const AxisState kind : {0, 1, 2, replicated, partial})
        legend += fmt::format("<span style='color:{}'>&#9632; {}</span>&nbsp;&nbsp; ", look_of(kind).colour,
                              look_of(kind).words);
    std::string rows;
    for (const OperatorText& text : describe_operators(model, solution))
        rows +=
            fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td>{}</td></tr>\n",
                        escaped(text.name), escaped(text.op), text.times, escaped(text.split), escaped(text.gives),
                        escaped(text.weight), text.held ? ", sharded" : "", text.gathered);
    return fmt::format(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{0}</title>\n<style>body{{font-family:"
        "sans-serif;margin:24px;color:#222}}table{{border-collapse:collapse;font-size:13px}}td,th{{text-align:left;"
        "padding:3px 14px 3px 0;border-bottom:1px solid #ddd}}</style></head>\n<body><h1 "
        "style='font-size:20px'>{0}</h1>"
        "\n<p>{1}</p>\n{2}<h2 style='font-size:16px'>Every "
        "operator</h2>\n<table><tr><th>operator</th><th></th><th>times"
        "</th><th>split</th><th>result</th><th>weight</th><th>gathered inputs</th></tr>\n{3}</table></body></html>\n",
        escaped(title), legend, Drawing(model, solution).svg(), rows);
}

} // namespace tutti::planner::strategies
