// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A report as one HTML file: headings, sentences, tables, charts. No script and nothing loaded from elsewhere, so it
// opens offline and can be kept beside the numbers. Follows the reader's light or dark mode and prints well.
#pragma once

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "markup.hpp"
#include "plot.hpp"

namespace collx::tools {

enum class align { left, right };

struct column {
    std::string title;
    align alignment = align::right; // most columns are numbers
};

/// A table of texts: numbers become texts in format.hpp.
struct table {
    std::vector<column> columns;
    std::vector<std::vector<std::string>> rows;

    /// Requires: one cell for each column. Errors: std::invalid_argument.
    void add(std::vector<std::string> cells) {
        if (cells.size() != columns.size())
            throw std::invalid_argument("A row of " + std::to_string(cells.size()) + " cells was added to a table of " +
                                        std::to_string(columns.size()) + " columns.");
        rows.push_back(std::move(cells));
    }
};

inline std::string to_html(const table& t) {
    const auto cell = [&](std::string_view tag, std::size_t k, std::string_view text) {
        const bool right = t.columns[k].alignment == align::right;
        const std::string name(tag);
        return "<" + name + (right ? " class=\"num\"" : "") + (tag == "th" ? " scope=\"col\"" : "") + ">" +
               escaped(text) + "</" + name + ">";
    };
    std::string out = "<div class=\"scroll\"><table>\n<thead><tr>";
    for (std::size_t k = 0; k < t.columns.size(); ++k) out += cell("th", k, t.columns[k].title);
    out += "</tr></thead>\n<tbody>\n";
    for (const auto& row : t.rows) {
        out += "<tr>";
        for (std::size_t k = 0; k < row.size(); ++k) out += cell("td", k, row[k]);
        out += "</tr>\n";
    }
    return out + "</tbody></table></div>\n";
}

inline std::string report_css() {
    return ":root{color-scheme:light dark;--page:#f6f6f3;--card:#fcfcfb;--ink:#14140f;--soft:#52514e;--rule:#e2e1db;"
           "--stripe:#f3f3ef;--accent:#2a78d6}\n"
           "@media (prefers-color-scheme:dark){:root{--page:#111110;--card:#1a1a19;--ink:#f4f4f2;--soft:#c3c2b7;"
           "--rule:#30302e;--stripe:#20201e;--accent:#5598e7}}\n"
           "*{box-sizing:border-box}\n"
           "body{margin:0;background:var(--page);color:var(--ink);line-height:1.5;"
           "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
           "main{max-width:860px;margin:0 auto;padding:32px 20px 64px}\n"
           "h1{font-size:26px;line-height:1.2;margin:0 0 4px}h2{font-size:19px;margin:40px 0 10px}p{margin:0 0 14px}\n"
           ".lead,footer{color:var(--soft)}footer{margin-top:48px;font-size:13px}\n"
           "nav{margin:18px 0 0}nav a{color:var(--accent);text-decoration:none;margin-right:16px}nav "
           "a:hover{text-decoration:underline}\n"
           "figure,.scroll,dl{background:var(--card);border:1px solid var(--rule);border-radius:8px;margin:0 0 "
           "18px}\n"
           "figure{padding:4px}figure svg{display:block;max-width:100%;height:auto}\n"
           "figcaption{color:var(--soft);font-size:13px;padding:0 12px 8px}\n"
           ".scroll{overflow-x:auto}\n"
           "table{border-collapse:collapse;width:100%;font-size:14px}\n"
           "th,td{padding:6px "
           "12px;text-align:left;white-space:nowrap}.num{text-align:right;font-variant-numeric:tabular-nums}\n"
           "th{color:var(--soft);font-weight:600;border-bottom:1px solid var(--rule)}tbody "
           "tr:nth-child(even){background:var(--stripe)}\n"
           "dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;padding:12px 14px}dt{color:var(--soft)}"
           "dd{margin:0;overflow-wrap:anywhere}\n"
           "@media print{body{background:none}figure,.scroll{break-inside:avoid}}\n";
}

class html_report {
public:
    explicit html_report(std::string title, std::string lead = {}) : title_(std::move(title)), lead_(std::move(lead)) {}

    /// Starts a section. Its heading also appears in the row of links on top.
    void section(std::string heading) {
        const std::string id = "s" + std::to_string(headings_.size() + 1);
        body_ += "<h2 id=\"" + id + "\">" + escaped(heading) + "</h2>\n";
        headings_.push_back(std::move(heading));
    }
    void paragraph(std::string_view text) { body_ += "<p>" + escaped(text) + "</p>\n"; }
    void add(const tools::table& t) { body_ += to_html(t); }
    void add(const line_chart& c, std::string_view caption = {}) { add_svg(to_inline_svg(c), caption); }

    /// Adds a picture made elsewhere. Requires: trusted markup, it is not escaped.
    void add_svg(std::string_view svg, std::string_view caption = {}) {
        body_ += "<figure>" + std::string(svg);
        if (!caption.empty()) body_ += "<figcaption>" + escaped(caption) + "</figcaption>";
        body_ += "</figure>\n";
    }
    /// Names and values, for example the machine and the settings of a run.
    void facts(const std::vector<std::pair<std::string, std::string>>& rows) {
        body_ += "<dl>";
        for (const auto& [name, value] : rows) body_ += "<dt>" + escaped(name) + "</dt><dd>" + escaped(value) + "</dd>";
        body_ += "</dl>\n";
    }
    void footer(std::string text) { footer_ = std::move(text); }

    [[nodiscard]] std::string str() const {
        std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
                          escaped(title_) + "</title>\n<style>\n" + report_css() + chart_css() +
                          "</style>\n</head>\n<body><main>\n<h1>" + escaped(title_) + "</h1>\n";
        if (!lead_.empty()) out += "<p class=\"lead\">" + escaped(lead_) + "</p>\n";
        if (headings_.size() > 1) out += links();
        out += body_;
        if (!footer_.empty()) out += "<footer>" + escaped(footer_) + "</footer>\n";
        return out + "</main></body>\n</html>\n";
    }

private:
    [[nodiscard]] std::string links() const {
        std::string out = "<nav>";
        for (std::size_t i = 0; i < headings_.size(); ++i)
            out += "<a href=\"#s" + std::to_string(i + 1) + "\">" + escaped(headings_[i]) + "</a> ";
        return out + "</nav>\n";
    }

    std::string title_, lead_, body_, footer_;
    std::vector<std::string> headings_;
};

/// Writes a file. Errors: std::system_error that names the file.
inline void write_text_file(const std::string& path, std::string_view text) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) throw std::system_error(errno, std::generic_category(), "cannot write '" + path + "'");
    bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    int error = errno;
    if (std::fclose(file) != 0 && good) {
        good = false;
        error = errno;
    }
    if (!good) throw std::system_error(error, std::generic_category(), "cannot write '" + path + "'");
}

} // namespace collx::tools
