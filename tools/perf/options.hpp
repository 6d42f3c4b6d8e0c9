// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of collx_perf as a plain value. Has the letters of nccl-tests; measures nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "operation.hpp"

namespace collx::tools::perf {

enum class pin_choice { automatic, yes, no };

struct options {
    std::vector<operation> operations;
    std::vector<std::size_t> sizes_bytes;
    bool is_comparison = false; // --ops: sizes are exact, CSV only, the comparison harness's rules
    bool out_of_place = true, in_place = true;

    element type = element::float32;
    reduction how = reduction::sum;
    int root = -1; // -1: a new one in every call

    double budget_ms = 150;
    double sample_us = 200;
    int min_samples = 7, max_samples = 200;
    int iterations = 0; // 0: from the budget
    int warmups = 0;    // 0: four batches and 2 ms
    bool check = true;

    int ranks = 0; // 0: as many as cores
    bool threads = false;
    bool sockets = false; // also between ranks that could share memory
    bool verbs = false;   // also between ranks that could share memory
    std::string algorithm;
    bool every_algorithm = false; // each in turn, after the library's choice
    std::size_t piece_bytes = 0;
    bool shared = false;
    bool attach = false;
    pin_choice pin = pin_choice::automatic;

    std::string predict;         // costs of this machine: what they predict is shown beside measured times
    std::string fit;             // write this machine's costs to this file instead
    bool fit_grid = false;       // and measure ten times as many points, to show the errors elsewhere
    std::string fit_transport;   // only this one; empty: shm and sockets
    std::string csv, json, html; // files; "-" is standard output, empty: none
    bool header = true;
    bool quiet = false;
    bool list = false;
};

// What main() does with the command line: run, or print `text` and exit.
struct parsed {
    options run;
    bool stop = false;
    int exit_code = 0;
    std::string text; // for standard output, or for standard error if exit_code is not 0
};

inline constexpr int exit_failed = 1, exit_usage = 2, exit_wrong = 3;

parsed parse_options(int argc, char** argv);

// Throws std::invalid_argument, whose message is for the user, if the root is none of the ranks. parse_options() cannot
// know their number where a launcher or the machine says it.
void require_root(const options& o, int ranks);

/// `default`, or what differs from it, as one word: the CSV column that distinguishes variants. `algorithm` is set
/// where algorithms are measured in turn.
std::string variant_of(const options& o, const std::string& algorithm = {});

} // namespace collx::tools::perf
