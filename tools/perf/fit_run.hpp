// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_perf --fit: measures a few points of a grid over shared memory, sockets and both together, fits the costs of
// this machine to them, shows the errors and writes the file that COLLX_MACHINE names.
#pragma once

#include <string>
#include <vector>

#include <collx/sim/machine_file.hpp>

#include "fit.hpp"
#include "options.hpp"

namespace collx::tools::perf {

// How the ranks of a point are placed: on one host, each on its own, or several on each of `hosts`.
struct placement {
    int ranks = 0, hosts = 1;
    [[nodiscard]] bool is_alone() const { return hosts == ranks && ranks > 1; }
    [[nodiscard]] bool is_crowded() const { return hosts > 1 && !is_alone(); }
};

struct fit_sample {
    operation op{};
    std::size_t bytes = 0;
    placement where;
    sim::medium by{};
    fitted_point at;
    sim::work between;     // of crowded hosts: the work that goes by sockets
    double line_ns = 0;    // a cache line between two cores before and after; 0: no answer
    bool is_fitted = true; // else held out: measured to see the errors of the fit elsewhere
};

/// Reads the lines of a CSV that collx_perf wrote, with what the library would choose there. Leaves out operations that
/// are not predicted. Errors: std::runtime_error for a line of another form.
std::vector<fit_sample> read_samples(const std::string& csv, int hosts, const sim::cores& on);

/// Whether the size at this place of the list is in the tenth of the points that is fitted.
bool is_in_design(operation op, int size_at, int ranks);

/// Fits the costs. For crowded hosts, sets the part of `samples` that the costs of sockets explain.
sim::machine_costs fit_machine(std::vector<fit_sample>& samples, const sim::cores& on, const std::string& cpu);

/// Returns a line for each medium, and one for all.
std::string residuals_text(const std::vector<fit_sample>& samples, const sim::machine_costs& m);

/// Runs copies of this program, fits, prints, writes. Returns the exit code.
int run_fit(const options& o, int cores);

} // namespace collx::tools::perf
