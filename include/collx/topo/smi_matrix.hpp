// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The matrix of `nvidia-smi topo -m`: read from the program's output, and printed for any machine. It has classes and
// numbers of NVLinks, but neither rates nor switches; code that makes a machine of it must add these.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <collx/topo/path.hpp>
#include <collx/topo/xml.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

struct smi_matrix {
    std::vector<std::string> names;              // GPU0, ..., NIC0, ... in the order of the columns
    std::vector<std::vector<std::string>> cells; // X, NV12, PIX, PXB, PHB, NODE, SYS
    std::vector<std::string> cpus;               // CPU affinity of each, empty: not known
    std::vector<int> numa;                       // NUMA node of each, -1: not known
};

namespace detail {

// Splits a line at tabs and spaces; leaves out escape codes of a terminal.
inline std::vector<std::string> words_of(const std::string& line) {
    std::vector<std::string> words(1);
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '\033') {
            while (i < line.size() && line[i] != 'm') ++i;
        } else if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') words.back() += line[i];
        else if (!words.back().empty()) words.emplace_back();
    }
    if (words.back().empty()) words.pop_back();
    return words;
}
inline bool is_cell(const std::string& word) {
    for (const char* known : {"X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"})
        if (word == known) return true;
    return word.size() > 2 && word.size() < 6 && word.compare(0, 2, "NV") == 0 && word[2] != '0' &&
           word.find_first_not_of("0123456789", 2) == word.npos;
}

// The names in a header's words: those before "CPU Affinity".
inline std::vector<std::string> columns_of(const std::vector<std::string>& words, const std::string& file, int line) {
    std::vector<std::string> names;
    for (const std::string& w : words)
        if (w == "CPU" || w == "NUMA" || w == "GPU") break;
        else names.push_back(w);
    if (names.empty() || names[0].compare(0, 3, "GPU") != 0 || names.size() > 1024)
        fail_at(file, line, "give all that `nvidia-smi topo -m` printed", "no header with GPU0");
    std::set<std::string> seen;
    for (const std::string& name : names)
        if (!seen.insert(name).second)
            fail_at(file, line, "each column has its own name", "'" + name + "' comes twice");
    return names;
}

} // namespace detail

// Reads the matrix. Errors: invalid_argument as "FILE:LINE: what (remedy)" for a missing header, a row that is missing,
// short, of another name or more than there are columns, two columns of one name, an unknown cell, or two halves that
// contradict.
inline smi_matrix read_smi_matrix(const std::string& text, const std::string& file = "matrix") {
    smi_matrix m;
    int line = 0;
    std::vector<int> lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::vector<std::string> words = detail::words_of(text.substr(at, end - at));
        at = end + 1;
        ++line;
        if (words.empty()) continue;
        if (m.names.empty()) {
            m.names = detail::columns_of(words, file, line);
            continue;
        }
        if (words[0] == "Legend:") break;
        const std::size_t row = m.cells.size(), n = m.names.size();
        if (row == n && words.size() > 1 && detail::is_cell(words[1]))
            detail::fail_at(file, line, "copy the whole header", "a row of '" + words[0] + "', which has no column");
        if (row == n) continue;
        if (words[0] != m.names[row])
            detail::fail_at(file, line, "keep the rows in the order of the columns",
                            "the row of '" + words[0] + "' where '" + m.names[row] + "' is due");
        if (words.size() < n + 1)
            detail::fail_at(file, line, "copy the whole line",
                            "a row of " + std::to_string(words.size() - 1) + " cells of " + std::to_string(n));
        m.cells.emplace_back();
        for (std::size_t k = 0; k < n; ++k) {
            const std::string cell = words[k + 1] == "SOC" ? "SYS" : words[k + 1];
            if (!detail::is_cell(cell) || (cell == "X") != (k == row))
                detail::fail_at(file, line, "cells are X (itself), NV<n>, PIX, PXB, PHB, NODE, SYS",
                                "the cell '" + cell + "'");
            if (k < row && m.cells[k][row] != cell)
                detail::fail_at(file, line, "one of them is wrong",
                                m.names[row] + " to " + m.names[k] + " is " + cell + ", the other way " +
                                    m.cells[k][row]);
            m.cells[row].push_back(cell);
        }
        const auto more = words.begin() + static_cast<std::ptrdiff_t>(n) + 1;
        m.cpus.push_back(words.size() > n + 1 ? *more : "");
        m.numa.push_back(words.size() > n + 2 && (more + 1)->size() < 5 &&
                                 (more + 1)->find_first_not_of("0123456789") == text.npos
                             ? std::atoi((more + 1)->c_str())
                             : -1);
    }
    if (m.cells.size() != m.names.size() || m.names.empty())
        detail::fail_at(file, line, "copy all rows",
                        std::to_string(m.cells.size()) + " rows of " + std::to_string(m.names.size()));
    return m;
}

// The GPUs and cards of one host. A path by NVLink is shown as NV and the number of links, however many hops it has.
inline smi_matrix smi_matrix_of(const graph& g, int host = 0) {
    smi_matrix m;
    std::vector<int> sites = g.all(site_type::gpu, host);
    const std::vector<int> cards = g.all(site_type::nic, host);
    sites.insert(sites.end(), cards.begin(), cards.end());
    for (const int a : sites) {
        m.names.push_back(g.name(a));
        m.cpus.emplace_back();
        m.numa.push_back(g.at(a).type == site_type::gpu ? g.at(a).numa : -1);
        m.cells.emplace_back();
        for (const int b : sites) {
            const path p = find_path(g, a, b);
            std::string cell = name_of(p.type);
            if (p.type == path_class::loc) cell = "X";
            if (p.type == path_class::nvl) {
                int lanes = g.arc_at(p.arcs[0]).lanes;
                for (const int i : p.arcs) lanes = std::min(lanes, g.arc_at(i).lanes);
                cell = "NV" + std::to_string(lanes);
            } else if (p.type == path_class::nvb || p.type == path_class::p2c || p.type == path_class::c2c) {
                detail::way_search by_pcie(g, a, b); // nvidia-smi does not know these classes
                cell = name_of(detail::measured(g, by_pcie.best(path_class::phb)).arcs.empty() ? path_class::sys
                                                                                               : path_class::phb);
            }
            m.cells.back().push_back(cell);
        }
    }
    return m;
}

// Writes the matrix as nvidia-smi prints it, with tabs.
inline std::string to_text(const smi_matrix& m) {
    std::string text;
    for (const std::string& name : m.names) text += "\t" + name;
    text += "\tCPU Affinity\tNUMA Affinity\n";
    for (std::size_t row = 0; row < m.names.size(); ++row) {
        text += m.names[row];
        for (const std::string& cell : m.cells[row]) text += "\t" + (cell == "X" ? " X " : cell);
        if (m.numa[row] >= 0)
            text += "\t" + (m.cpus[row].empty() ? "N/A" : m.cpus[row]) + "\t" + std::to_string(m.numa[row]);
        text += "\n";
    }
    return text;
}

} // namespace topo
COLLX_END_NAMESPACE
