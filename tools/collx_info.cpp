// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_info: reports what collx finds on this machine and in this environment, what works, and one remedy for each
// problem. Run it where ranks run: under the launcher, in the container, with the limits of the job.
#include <signal.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <string>

#include "info/facts.hpp"
#include "info/gpus.hpp"
#include "info/job.hpp"
#include "info/machine.hpp"
#include "support/command_line.hpp"
#include "support/standard_output.hpp"

int main(int argc, char** argv) {
    collx::tools::open_missing_standard_descriptors();
    ::signal(SIGCHLD, SIG_DFL); // inherited as ignored, it would hide how the processes that try something end
    using namespace collx::tools::info;
    bool as_json = false, all_variables = false, is_quick = false;
    CLI::App app("Shows what collx finds here: machine, limits, kernel, job, settings and which transports work.",
                 "collx_info");
    app.footer("Exit codes: 0 collx can be used here, 1 it cannot (the ERROR lines say why), 2 wrong use.");
    app.add_flag("--json", as_json, "JSON instead of text");
    app.add_flag("--env", all_variables, "all COLLX_* variables with value, origin and meaning");
    app.add_flag("--quick", is_quick, "do not try the transports");
    if (const auto ended = collx::tools::exit_of_parsing(app, "collx_info", argc, argv)) return *ended;
    try {
        findings found;
        found.sections.push_back(version_section());
        found.sections.push_back(machine_section(found));
        found.sections.push_back(topology_section());
        found.sections.push_back(limits_section(found));
        found.sections.push_back(kernel_section(found));
        found.sections.push_back(job_section(found));
        found.sections.push_back(variables_section(all_variables));
        const gpus_found gpus = ask_for_gpus(find_gpu_driver());
        found.sections.push_back(gpus_section(gpus));
        if (!is_quick) found.sections.push_back(transports_section(found, gpus));
        std::fputs((as_json ? to_json(found) : to_text(found)).c_str(), stdout);
        return collx::tools::ended("collx_info", found.is_usable() ? 0 : 1);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "collx_info: %s\n", e.what());
        return 1;
    }
}
