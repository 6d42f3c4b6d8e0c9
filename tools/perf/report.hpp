// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Formats results: the table of nccl-tests (its columns, so that programs that read those can read this), CSV with the
// columns of the comparison harness, JSON with nccl-tests' keys, and a page with plots. Measures nothing.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "csv.hpp"
#include "measure.hpp"

namespace collx::tools::perf {

// One run: its options, where it ran, its results.
struct run_report {
    options run;
    int ranks = 0, cores = 0;
    bool pinned = false;
    bool across_hosts = false, by_verbs = false;
    std::vector<result> results;

    [[nodiscard]] const char* transport() const {
        return run.threads ? "memory" : by_verbs ? "verbs" : across_hosts ? "sockets" : "shm";
    }
};

std::string csv_line(const run_report& report, const result& r);

/// The lines before the first result, the line of a size (either place may be missing), the lines after all results.
std::string text_header(const run_report& report);
std::string text_line(const run_report& report, const result* out_of_place, const result* in_place);
std::string text_footer(const run_report& report);

/// Before the first point of --every-algo or --predict.
std::string choice_header(const run_report& report);
/// The line of a size: all algorithms, the fastest first, median us each. Requires: in_turn[0] is the library's choice.
std::string choice_line(const std::vector<result>& in_turn);
/// Says at how many points that choice was within 10 % of the fastest, and the errors of the predictions.
std::string choice_footer(const run_report& report, const std::vector<std::vector<result>>& points);

std::string json_text(const run_report& report);
std::string html_text(const run_report& report);

std::string list_text();

} // namespace collx::tools::perf
