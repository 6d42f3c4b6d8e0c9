// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_perf --fit: measures a few points of a grid over shared memory and sockets, fits the costs of this machine to
// them, shows how far they are off and writes the file that COLLX_MACHINE names.
#pragma once

#include <string>
#include <vector>

#include <collx/sim/machine_file.hpp>

#include "fit.hpp"
#include "options.hpp"

namespace collx::tools::perf {

struct fit_sample {
    operation op{};
    std::size_t bytes = 0;
    int ranks = 0;
    bool by_sockets = false;
    sim::medium by{};
    fitted_point at;
    double line_ns = 0;    // a cache line between two cores before and after; 0: no answer
    bool is_fitted = true; // else held out: measured to see how far the fit is off elsewhere
};

/// The lines of a CSV that collx_perf wrote, with what the library would choose there. Lines of operations that are not
/// predicted are left out. Errors: std::runtime_error for a line that is none.
std::vector<fit_sample> read_samples(const std::string& csv, bool by_sockets, const sim::cores& on);

/// Whether the point of this place in the list of sizes is one of the tenth that is fitted.
bool is_in_design(operation op, int size_at, int ranks);

sim::machine_costs fit_machine(const std::vector<fit_sample>& samples, const sim::cores& on, const std::string& cpu);

/// A line for each medium, and one for all.
std::string residuals_text(const std::vector<fit_sample>& samples, const sim::machine_costs& m);

/// Runs copies of this program, fits, prints, writes. Returns the exit code.
int run_fit(const options& o, int cores);

} // namespace collx::tools::perf
