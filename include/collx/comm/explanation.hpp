// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithm of a call, its row in the table of choices, and the times of the alternatives: as a value and as text.
// comm/explain.hpp fills it for a communicator, comm/explain_devices.hpp for devices of a machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include <collx/plan/choice_words.hpp>
#include <collx/plan/row_of_call.hpp>

COLLX_BEGIN_NAMESPACE

// The algorithm of a call, the reason for it, and the times of the alternatives. Times are predicted, in nanoseconds.
struct explanation {
    // One algorithm that could run the call.
    struct candidate {
        std::string name;                                               // of the algorithm, as in docs/algorithms.md
        double predicted_ns = std::numeric_limits<double>::quiet_NaN(); // not a number: not known
        bool is_chosen = false;                                         // this one runs
    };
    collective what;                   // of the call
    std::size_t bytes = 0;             // of the whole buffer
    int ranks = 0;                     // of the communicator
    std::string venue;                 // where the call runs
    std::string row;                   // the conditions of the row there that the call takes
    std::string because;               // the row's reason
    std::vector<candidate> candidates; // the chosen one first, the others by time
    double line_ns = 0;                // time of a cache line between cores when the costs were measured; 0: not known
    double residual = 0;               // median error of the costs on the points that they were fitted to
    std::string basis;                 // where the costs come from; empty: they were fitted on this machine
    std::string no_times;              // why times are not known; empty: they are

    // The algorithm that runs. Requires: candidates is not empty, as after explain().
    const candidate& chosen() const { return candidates.front(); }
};

namespace detail {

// Whether a row names this algorithm. A row's algorithm that is none of algo::algorithms is made of others.
inline bool is_that_of(const choices::row& r, const char* name) { return std::string(choices::name_of(r.use)) == name; }

inline void sort_candidates(explanation& e, const choice_made& made) {
    using candidate = explanation::candidate;
    const bool is_listed =
        std::any_of(e.candidates.begin(), e.candidates.end(), [](const candidate& k) { return k.is_chosen; });
    if (!is_listed)
        e.candidates.push_back({.name = std::string(choices::name_of(made.row->use)) +
                                        choices::variant_of(made.row->use) +
                                        (made.where == choices::links ? " of the machine" : ""),
                                .is_chosen = true});
    const auto key = [](const candidate& k) {
        return k.is_chosen                  ? -1.0
               : std::isnan(k.predicted_ns) ? std::numeric_limits<double>::infinity()
                                            : k.predicted_ns;
    };
    std::stable_sort(e.candidates.begin(), e.candidates.end(),
                     [&](const candidate& a, const candidate& b) { return key(a) < key(b); });
}

} // namespace detail

// The explanation as text for people.
inline std::string to_text(const explanation& e) {
    char line[256];
    std::string text = std::string(name_of(e.what)) + " of " + detail::bytes_in_words(e.bytes) + ", " +
                       std::to_string(e.ranks) + " ranks: " + e.chosen().name + "\n  because: " + e.because +
                       "\n  by the row: " + e.venue + " | " + e.row + "\n";
    std::size_t width = 20;
    for (const explanation::candidate& k : e.candidates) width = std::max(width, k.name.size());
    const int columns = static_cast<int>(width);
    for (const explanation::candidate& k : e.candidates) {
        if (std::isnan(k.predicted_ns)) std::snprintf(line, sizeof line, "  %-*s        ?", columns, k.name.c_str());
        else std::snprintf(line, sizeof line, "  %-*s %9.1f us", columns, k.name.c_str(), k.predicted_ns / 1e3);
        text += std::string(line) + (k.is_chosen ? "  <- runs\n" : "\n");
    }
    if (!e.no_times.empty()) return text + "  no times: " + e.no_times + "\n";
    if (!e.basis.empty()) return text + "  times are predicted: " + e.basis + "\n";
    std::snprintf(line, sizeof line, "  times are predicted; half of the fitted ones were within %.0f %%\n",
                  100 * e.residual);
    text += line;
    std::snprintf(line, sizeof line, "  measured while a cache line took %.0f ns from core to core\n", e.line_ns);
    return e.line_ns > 0 ? text + line : text;
}

COLLX_END_NAMESPACE
