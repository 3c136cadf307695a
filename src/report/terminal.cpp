#include "report/terminal.h"

#include "base/counted.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace tutti::report {
namespace {

struct Colour {
    int background, text;
};

constexpr int black = 16, white = 231, grey = 244;

// Two shades in turn, so that neighbouring micro-batches differ; the second pair for other stages or replicas.
// Blue, purple, orange, green, vermilion: hues that stay apart for colour-blind readers, too.
Colour colour_of(BoxKind kind, bool other, bool odd) {
    static constexpr Colour colours[box_kinds][4] = {
        {{25, white}, {32, white}, {117, black}, {74, black}},     // forward
        {{133, white}, {97, white}, {182, black}, {183, black}},   // recompute
        {{178, black}, {214, black}, {222, black}, {229, black}},  // input gradient
        {{29, white}, {35, black}, {115, black}, {79, black}},     // weight gradient
        {{166, white}, {130, white}, {216, black}, {215, black}},  // backward
        {{240, white}, {240, white}, {240, white}, {240, white}}}; // update
    return colours[static_cast<std::size_t>(kind)][(other ? 2 : 0) + (odd ? 1 : 0)];
}

std::string painted(const Colour& colour, const std::string& text) {
    return fmt::format("\x1b[48;5;{};38;5;{}m{}\x1b[0m", colour.background, colour.text, text);
}

std::string dimmed(const std::string& text, bool colours) {
    return colours ? fmt::format("\x1b[38;5;{}m{}\x1b[0m", grey, text) : text;
}

bool is_other(const Box& box) { return (box.turn + box.replica) % 2 == 1; }

// What of the step a character shows.
struct Scale {
    double per_cell = 1;
    std::size_t cell(double time) const { return static_cast<std::size_t>(std::lround(time / per_cell)); }
};

// Where every box begins and ends on multiples of one length, a whole number of characters for it; else all the room.
Scale scale_for(std::span<const Timeline> timelines, std::size_t columns) {
    double time = 0, shortest = 0;
    for (const Timeline& timeline : timelines) {
        time = std::max(time, timeline.time);
        for (const TimelineRow& row : timeline.rows)
            for (const Box& box : row.boxes)
                if (box.end > box.start && (shortest == 0 || box.end - box.start < shortest))
                    shortest = box.end - box.start;
    }
    if (time <= 0 || shortest <= 0) return {};
    for (const int parts : {1, 2, 3, 4, 5}) {
        const double unit = shortest / parts;
        auto fits = [&](double at) { return std::abs(at / unit - std::round(at / unit)) < 1e-6; };
        const bool all = std::ranges::all_of(timelines, [&](const Timeline& timeline) {
            return std::ranges::all_of(timeline.rows, [&](const TimelineRow& row) {
                return std::ranges::all_of(row.boxes, [&](const Box& box) {
                    return fits(box.start) && fits(box.end) && fits(box.compute_start());
                });
            });
        });
        if (!all) continue;
        const double cells = std::floor(static_cast<double>(columns) / std::round(time / unit));
        // Even boxes are easier to read, but not if they leave half of the room.
        const double used = cells * std::round(time / unit) / static_cast<double>(columns);
        if (cells >= 1 && (used > 0.6 || cells > 4)) return {unit / std::min(cells, 12.0)};
    }
    return {time / static_cast<double>(columns)};
}

class Painter {
  public:
    Painter(const Timeline& timeline, const Scale& scale, bool colours)
        : split_(timeline.has(BoxKind::backward)), model_replicas_(std::max(timeline.model_replicas, 1)), scale_(scale),
          colours_(colours) {}

    char letter(BoxKind kind) const {
        // A backward is B where that is not the input gradient alone.
        return kind == BoxKind::full_backward ? (split_ ? 'D' : 'B') : name_of(kind)[0];
    }

    std::string row(const TimelineRow& row) {
        line_.clear();
        at_ = 0;
        std::size_t i = 0, j = 0;
        while (i < row.boxes.size() || j < row.idle.size()) {
            if (j == row.idle.size() || (i < row.boxes.size() && row.boxes[i].start < row.idle[j].end))
                paint(row.boxes[i++]);
            else
                paint(row.idle[j++]);
        }
        return line_;
    }

    std::string sample(BoxKind kind) const {
        const std::string name(1, letter(kind));
        return colours_ ? painted(colour_of(kind, false, false), " " + name + " ") : name;
    }

  private:
    std::size_t advance(double end) {
        const std::size_t to = std::max(at_, scale_.cell(end));
        return to - std::exchange(at_, to);
    }
    void paint(const Idle& idle) {
        const std::size_t width = advance(idle.end);
        if (width > 0)
            line_ += dimmed(std::string(width, idle.cause == IdleCause::communication ? '~' : '.'), colours_);
    }
    void paint(const Box& box) {
        if (box.recomputing > 0) paint(box, BoxKind::recompute, box.compute_start());
        paint(box, box.kind, box.end);
    }
    void paint(const Box& box, BoxKind kind, double end) {
        const std::size_t width = advance(end);
        if (width == 0) return;
        const std::string number = box.kind == BoxKind::update ? "" : std::to_string(box.micro_batch);
        std::string text(width, colours_ ? ' ' : '-');
        if (colours_) {
            if (number.size() <= width) text.replace((width - number.size()) / 2, number.size(), number);
            line_ += painted(colour_of(kind, is_other(box), box.micro_batch / model_replicas_ % 2 == 1), text);
            return;
        }
        text[0] = is_other(box) ? static_cast<char>(letter(kind) - 'A' + 'a') : letter(kind);
        if (number.size() < width) text.replace(1, number.size(), number);
        line_ += text;
    }

    bool split_;
    int model_replicas_;
    Scale scale_;
    bool colours_;
    std::string line_;
    std::size_t at_ = 0;
};

// Numbers along the time, at a distance of 1, 2 or 5 times a power of ten.
std::string axis(double time, const Scale& scale) {
    const std::size_t cells = scale.cell(time);
    double step = std::pow(10, std::floor(std::log10(scale.per_cell * 8)));
    for (int i = 0; step / scale.per_cell < 8; ++i) step *= i % 3 == 1 ? 2.5 : 2;
    std::string line(cells + 8, ' ');
    for (int i = 0; i * step <= time * (1 + 1e-9); ++i) {
        const std::string number = plain_number(i * step);
        const std::size_t at = scale.cell(i * step);
        if (at + number.size() <= line.size()) line.replace(at, number.size(), number);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

std::string legend(std::span<const Timeline> timelines, const Scale& scale, bool colours) {
    std::string text;
    auto any = [&](auto what) {
        return std::ranges::any_of(timelines, [&](const Timeline& t) { return t.has(what); });
    };
    for (std::size_t k = 0; k < box_kinds; ++k) {
        const auto kind = static_cast<BoxKind>(k);
        const auto with = std::ranges::find_if(timelines, [&](const Timeline& t) {
            return t.has(kind) || (kind == BoxKind::recompute && t.recomputes());
        });
        if (with == timelines.end()) continue;
        text += fmt::format("{}{} {}", text.empty() ? "" : "   ", Painter(*with, scale, colours).sample(kind),
                            description_of(kind));
    }
    text += fmt::format("   {} waiting", dimmed(".", colours));
    if (any(IdleCause::communication)) text += fmt::format("   {} communication", dimmed("~", colours));
    std::string other;
    if (std::ranges::any_of(timelines, [](const Timeline& t) { return t.turns > 1; })) other = "a rank's second stage";
    if (std::ranges::any_of(timelines, [](const Timeline& t) { return t.model_replicas > 1; }))
        other += other.empty() ? "the second replica" : " or replica";
    if (!other.empty()) text += fmt::format("   {}: {}", colours ? "paler" : "small letter", other);
    return text;
}

} // namespace

std::string terminal_picture(std::span<const Timeline> timelines, const TerminalStyle& style) {
    // A timeline of a run does not know what is held.
    const bool peaks = std::ranges::any_of(timelines, [](const Timeline& timeline) { return timeline.peak > 0; });
    std::size_t label = 0, right = 0;
    for (const Timeline& timeline : timelines) {
        label = std::max(label, fmt::format("rank {}", timeline.rows.size() - 1).size());
        for (const TimelineRow& row : timeline.rows) right = std::max(right, plain_number(row.peak).size());
    }
    right = peaks ? std::max<std::size_t>(right, 4) : 0; // "peak"
    const std::size_t around = 2 + label + 2 + (peaks ? 2 + right : 0);
    const std::size_t room = std::max<std::size_t>(style.columns, around + 20) - around;
    const Scale scale = scale_for(timelines, room);
    double longest = 0;
    for (const Timeline& timeline : timelines) longest = std::max(longest, timeline.time);
    const std::size_t width = scale.cell(longest);
    std::string text;
    for (const Timeline& timeline : timelines) {
        std::string facts;
        for (const auto& [name, value] : timeline.facts)
            facts += fmt::format("{}{} {}", facts.empty() ? "" : ", ", name, value);
        text += fmt::format("{}: {}\ntime {}, bubble {:.1f}%", timeline.title, facts, plain_number(timeline.time),
                            100 * timeline.bubble);
        if (peaks) text += ", peak activations " + plain_number(timeline.peak);
        text += "\n\n";
        if (peaks)
            text += dimmed(fmt::format("  {:{}}  {:{}}  {:>{}}", "", label, "", width, "peak", right), style.colours) +
                    '\n';
        Painter painter(timeline, scale, style.colours);
        for (std::size_t r = 0; r < timeline.rows.size(); ++r) {
            const std::size_t missing = width - scale.cell(timeline.time);
            text += fmt::format("  {:<{}}  {}", fmt::format("rank {}", r), label, painter.row(timeline.rows[r]));
            if (peaks) text += fmt::format("{:{}}  {:>{}}", "", missing, plain_number(timeline.rows[r].peak), right);
            text += '\n';
        }
        text += dimmed(fmt::format("  {:{}}  {}", "", label, axis(timeline.time, scale)), style.colours) + "\n\n";
    }
    return text + "  " + legend(timelines, scale, style.colours) + '\n';
}

} // namespace tutti::report
