// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Draws a schedule as a picture (SVG) or as a table for terminals, time from left to right or downwards, one lane per
// strand. For learning an algorithm or finding a mistake: a refuted schedule is drawn as far as it gets, with the
// faulty step marked. Legible for up to about 8 ranks. The picture is one self-contained file that follows the reader's
// light or dark scheme.
#pragma once

#include <string>
#include <vector>

#include <collx/core/markup.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/timeline.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// Writes a schedule as a picture; callers use to_svg().
class svg_writer {
public:
    svg_writer(const schedule& s, const verdict& v) : s_(s), v_(v), t_(timeline_of(s)) {
        std::vector<int> longest(static_cast<std::size_t>(t_.columns) + 1,
                                 0); // one column more, for a step that was never reached
        for (const timed_step& t : t_.steps) {
            const int length = static_cast<int>(describe(step_of(t), s.chunks).size());
            int& most = longest[static_cast<std::size_t>(column_of(t))];
            if ((t.column >= 0 || is_guilty(t)) && length > most) most = length;
        }
        x_of_.push_back(left);
        for (int length : longest) x_of_.push_back(x_of_.back() + (length == 0 ? 0 : length * glyph + 2 * pad + gap));
        int y = top;
        for (const program& p : s.programs) {
            lane_of_.push_back(y);
            y += static_cast<int>(p.strands.size()) * lane + rank_gap;
        }
        height_ = y + (v.ok() ? 0 : footer);
        width_ = x_of_.back() + pad;
    }

    std::string write(const std::string& title) {
        head(title);
        for (std::size_t r = 0; r < s_.programs.size(); ++r) rank(static_cast<int>(r));
        for (const link& l : t_.links) arrow(l);
        for (const timed_step& t : t_.steps) box(t);
        if (!v_.ok()) text(pad, height_ - 12, "bad", blame());
        out_ += "</svg>\n";
        return static_cast<std::string&&>(out_);
    }

private:
    static constexpr int glyph = 7, pad = 6, gap = 26, lane = 34, box_height = 22, rank_gap = 12, left = 64, top = 40,
                         footer = 30;

    const step& step_of(const timed_step& t) const { return *find_step(s_, t.rank, t.strand, t.index); }
    int column_of(const timed_step& t) const { return t.column >= 0 ? t.column : next_column(t); }
    int x_of(const timed_step& t) const { return x_of_[static_cast<unsigned>(column_of(t))]; }
    int end_of(const timed_step& t) const { return x_of_[static_cast<unsigned>(column_of(t)) + 1] - gap; }
    int y_of(const timed_step& t) const { return lane_of_[static_cast<unsigned>(t.rank)] + t.strand * lane; }
    bool is_guilty(const timed_step& t) const {
        if (v_.ok()) return false;
        if (t.rank == v_.rank && t.strand == v_.strand && t.index == v_.step) return true;
        for (int i = 0; i < v_.waiting_count && i < 8; ++i)
            if (t.rank == v_.waits[i].rank && t.strand == v_.waits[i].strand && t.index == v_.waits[i].step)
                return true;
        return false;
    }
    // The CSS class of a chunk, which gives it its hue; steps that move no chunk are grey.
    std::string class_of(int chunk) const { return chunk < 0 || s_.chunks == 0 ? "dim" : "c" + n(chunk); }

    // A colour of the wheel as #rrggbb, its darkest channel `low`, its lightest `high`.
    static std::string hue(int degrees, int low, int high) {
        std::string s = "#";
        for (int turn : {0, 240, 120}) {
            int d = (degrees + turn) % 360; // distance from this channel's peak
            d = d > 180 ? 360 - d : d;
            const int level = d <= 60 ? high : d >= 120 ? low : high - (high - low) * (d - 60) / 60;
            s += "0123456789abcdef"[level / 16];
            s += "0123456789abcdef"[level % 16];
        }
        return s;
    }
    std::string chunk_colours(int low, int high) const {
        std::string s;
        for (int c = 0; c < s_.chunks; ++c) s += ".c" + n(c) + "{stroke:" + hue(c * 360 / s_.chunks, low, high) + "}";
        return s + "\n";
    }
    static std::string n(int i) { return std::to_string(i); }
    void text(int x, int y, const char* kind, const std::string& words) {
        out_ += "<text class=\"" + std::string(kind) + "\" x=\"" + n(x) + "\" y=\"" + n(y) + "\">" +
                collx::detail::marked_up(words) + "</text>\n";
    }

    std::string blame() const {
        const std::string words = explain(s_, v_);
        return words.substr(0, words.find('\n'));
    }

    void head(const std::string& title) {
        const std::size_t words = v_.ok() || title.size() > blame().size() ? title.size() : blame().size();
        const int least = static_cast<int>(words) * 9 + 2 * pad;
        const int width = width_ < least ? least : width_;
        out_ += "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + n(width) + " " + n(height_) +
                "\" width=\"" + n(width) + "\" height=\"" + n(height_) + "\" role=\"img\">\n<title>" +
                collx::detail::marked_up(title) + "</title>\n";
        out_ += "<style>\n"
                "text{font:11px "
                "ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24}.title{font-size:14px;font-weight:bold}\n"
                ".rank,.bad{font-weight:bold}path{fill:none;stroke-width:1.5}.box{fill:#f6f8fa;stroke-width:1.5}.paper{"
                "fill:#fff}\n"
                ".dim{stroke:#8b949e}.guilty{stroke:#cf222e;stroke-width:3}.bad{fill:#cf222e}.strand{fill:#6e7781}\n"
                ".notice{stroke-width:.75;stroke-dasharray:3 3}.lane{stroke:#8b949e;stroke-width:.5;stroke-dasharray:2 "
                "4}\n" +
                chunk_colours(20, 190) +
                "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}.box{fill:#161b22}.strand{"
                "fill:#8b949e}\n"
                ".bad{fill:#ff7b72}.guilty{stroke:#ff7b72}\n" +
                chunk_colours(90, 250) + "}\n</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n";
        text(pad, 20, "title", title);
    }

    void rank(int r) {
        const int y = lane_of_[static_cast<unsigned>(r)];
        const auto strands = static_cast<int>(s_.programs[static_cast<unsigned>(r)].strands.size());
        text(pad, y + box_height - 7, "rank", "rank " + n(r));
        for (int k = 0; k < strands; ++k) {
            const int middle = y + k * lane + box_height / 2;
            if (k > 0) text(pad, middle + 4, "strand", "strand " + n(k));
            out_ += "<line class=\"lane\" x1=\"" + n(left) + "\" y1=\"" + n(middle) + "\" x2=\"" + n(width_ - pad) +
                    "\" y2=\"" + n(middle) + "\"/>\n";
        }
    }

    void box(const timed_step& t) {
        if (t.column < 0 && !is_guilty(t)) return;
        const step& st = step_of(t);
        const std::string words = describe(st, s_.chunks);
        const bool moves = (st.what & (signal | wait)) == 0;
        const chunk_set& c = st.src.where != place::none ? st.src.chunks : st.dst.chunks;
        const std::string colour =
            is_guilty(t) ? "guilty" : class_of(moves && c.count > 0 && s_.chunks > 0 ? c.at(0, s_.chunks) : -1);
        out_ += "<g><title>" +
                collx::detail::marked_up("rank " + n(t.rank) + ", strand " + n(t.strand) + ", step " + n(t.index) +
                                         ": " + words) +
                "</title>";
        out_ += "<rect class=\"box " + colour + "\" x=\"" + n(x_of(t)) + "\" y=\"" + n(y_of(t)) + "\" width=\"" +
                n(end_of(t) - x_of(t)) + "\" height=\"" + n(box_height) + "\" rx=\"" + (moves ? "3" : "11") + "\"/>";
        text(x_of(t) + pad, y_of(t) + 15, is_guilty(t) ? "bad" : "step", words);
        out_ += "</g>\n";
    }

    // The column that a step that was never reached would have been in.
    int next_column(const timed_step& t) const {
        int column = 0;
        for (const timed_step& other : t_.steps)
            if (other.rank == t.rank && other.strand == t.strand && other.column >= column) column = other.column + 1;
        return column;
    }

    void arrow(const link& l) {
        const timed_step& a = t_.steps[static_cast<unsigned>(l.from)];
        const timed_step& b = t_.steps[static_cast<unsigned>(l.to)];
        if (l.is_signal && a.rank == b.rank && a.strand == b.strand) return;
        const int x1 = end_of(a), y1 = y_of(a) + box_height / 2, x2 = x_of(b), y2 = y_of(b) + box_height / 2;
        const std::string kind = l.is_signal ? "notice dim" : class_of(l.chunk);
        out_ += "<path class=\"" + kind + "\" d=\"M" + n(x1) + " " + n(y1) + " C" + n(x1 + gap) + " " + n(y1) + " " +
                n(x2 - gap) + " " + n(y2) + " " + n(x2) + " " + n(y2) + (l.is_signal ? "" : "m-6 -4l6 4l-6 4") +
                "\"/>\n";
    }

    const schedule& s_;
    const verdict& v_;
    timeline t_;
    int width_ = 0, height_ = 0;
    std::vector<int> x_of_;    // left of each column, and of one past the last
    std::vector<int> lane_of_; // top of each rank
    std::string out_;
};

// A picture of the first iteration. The steps that the verdict blames are marked.
inline std::string to_svg(const schedule& s, const std::string& title, const verdict& v = {}) {
    return svg_writer(s, v).write(title);
}

// A table of the first iteration: a line for each unit of time, a column for each strand. "!" marks the blamed step.
inline std::string to_table(const schedule& s, const verdict& v = {}) {
    const timeline t = timeline_of(s);
    std::vector<std::string> heads;
    std::vector<std::vector<std::string>> columns; // by strand, then time
    std::vector<std::size_t> widths;
    for (const timed_step& st : t.steps) {
        if (st.index == 0) {
            const bool alone = s.programs[static_cast<unsigned>(st.rank)].strands.size() == 1;
            heads.push_back("rank " + std::to_string(st.rank) + (alone ? "" : "." + std::to_string(st.strand)));
            columns.emplace_back(static_cast<std::size_t>(t.columns) + 1);
            widths.push_back(heads.back().size());
        }
        const bool guilty = !v.ok() && st.rank == v.rank && st.strand == v.strand && st.index == v.step;
        if (st.column < 0 && !guilty) continue;
        std::string& cell = columns.back()[static_cast<std::size_t>(st.column < 0 ? t.columns : st.column)];
        cell = (guilty ? "! " : "") + describe(*find_step(s, st.rank, st.strand, st.index), s.chunks);
        if (cell.size() > widths.back()) widths.back() = cell.size();
    }
    std::string text = "time";
    const auto line = [&](auto&& cell) {
        for (std::size_t k = 0; k < columns.size(); ++k) {
            const std::string c = cell(k);
            text += "  " + c + (k + 1 < columns.size() ? std::string(widths[k] - c.size(), ' ') : "");
        }
        while (text.back() == ' ') text.pop_back();
        text += "\n";
    };
    line([&](std::size_t k) { return heads[k]; });
    for (std::size_t i = 0; i <= static_cast<std::size_t>(t.columns); ++i) {
        bool any = false;
        for (const auto& c : columns) any = any || !c[i].empty();
        if (!any) continue;
        const std::string number = std::to_string(i + 1);
        text += std::string(4 - (number.size() < 4 ? number.size() : 4), ' ') + number;
        line([&](std::size_t k) { return columns[k][i]; });
    }
    if (!v.ok()) text += explain(s, v) + "\n";
    return text;
}

} // namespace sched
COLLX_END_NAMESPACE
