// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A table of texts, printed for a terminal, as Markdown or as CSV; html_report.hpp prints the same table for a browser.
// It holds texts only: numbers become texts in format.hpp, so every form of the table shows the same digits.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace collx::tools {

enum class align { left, right };

struct column {
    std::string title;
    align alignment = align::right; // most columns are numbers
};

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

namespace detail {

// Columns a terminal needs: code points, which is right for everything but wide and combining characters.
inline std::size_t text_width(std::string_view text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

inline std::string padded(std::string_view text, std::size_t width, align alignment) {
    const std::string blanks(width - std::min(width, text_width(text)), ' ');
    return alignment == align::left ? std::string(text) + blanks : blanks + std::string(text);
}

inline std::vector<std::size_t> column_widths(const table& t) {
    std::vector<std::size_t> widths;
    for (const auto& c : t.columns) widths.push_back(text_width(c.title));
    for (const auto& row : t.rows)
        for (std::size_t k = 0; k < row.size(); ++k) widths[k] = std::max(widths[k], text_width(row[k]));
    return widths;
}

inline std::string without_trailing_blanks(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

} // namespace detail

/// Columns two blanks apart, a rule below the titles, no blanks at line ends.
inline std::string to_text(const table& t) {
    const auto widths = detail::column_widths(t);
    const auto line = [&](auto&& cell) {
        std::string out;
        for (std::size_t k = 0; k < t.columns.size(); ++k) {
            if (k != 0) out += "  ";
            out += detail::padded(cell(k), widths[k], t.columns[k].alignment);
        }
        return detail::without_trailing_blanks(std::move(out)) + "\n";
    };
    std::string out = line([&](std::size_t k) { return t.columns[k].title; });
    out += line([&](std::size_t k) { return std::string(widths[k], '-'); });
    for (const auto& row : t.rows) out += line([&](std::size_t k) { return row[k]; });
    return out;
}

inline std::string to_markdown(const table& t) {
    const auto safe = [](std::string_view text) {
        std::string out;
        for (const char c : text) {
            if (c == '|') out += '\\';
            out += c == '\n' ? ' ' : c;
        }
        return out;
    };
    std::string out = "|";
    for (const auto& c : t.columns) out += " " + safe(c.title) + " |";
    out += "\n|";
    for (const auto& c : t.columns) out += c.alignment == align::right ? " ---: |" : " --- |";
    for (const auto& row : t.rows) {
        out += "\n|";
        for (const auto& cell : row) out += " " + safe(cell) + " |";
    }
    return out + "\n";
}

/// RFC 4180: a field with a comma, a quote or a line break is quoted, quotes are doubled.
inline std::string csv_field(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"') out += '"';
        out += c;
    }
    return out + "\"";
}

inline std::string to_csv(const table& t) {
    std::string out;
    const auto field = [&](std::size_t k, std::string_view text) {
        if (k != 0) out += ',';
        out += csv_field(text);
    };
    for (std::size_t k = 0; k < t.columns.size(); ++k) field(k, t.columns[k].title);
    out += '\n';
    for (const auto& row : t.rows) {
        for (std::size_t k = 0; k < row.size(); ++k) field(k, row[k]);
        out += '\n';
    }
    return out;
}

} // namespace collx::tools
