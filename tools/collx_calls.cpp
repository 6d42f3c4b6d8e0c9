// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_calls DIR: says which rank of a job is in which call, from the records that COLLX_RECORD_DIR=DIR made, also
// while the job hangs. Writes all calls as one trace.
#include <cstdio>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>

#include "support/call_records.hpp"
#include "support/command_line.hpp"
#include "support/standard_output.hpp"

int main(int argc, char** argv) {
    collx::tools::open_missing_standard_descriptors();
    CLI::App app("Say which rank of a job is in which call: collx_calls DIR, the directory that COLLX_RECORD_DIR named",
                 "collx_calls");
    std::string directory, trace, beside;
    app.add_option("directory", directory, "with the files of records")->required()->type_name("DIR");
    app.add_option("--trace", trace, "write all recorded calls for chrome://tracing and Perfetto")->type_name("FILE");
    app.add_option("--beside", beside, "in the trace also what is in this one, of collx_sim --trace")
        ->type_name("FILE");
    collx::tools::require_values(app);
    try {
        app.parse(argc, argv);
        if (!beside.empty() && trace.empty()) throw std::invalid_argument("--beside needs --trace.");
        const auto all = collx::tools::read_call_records(directory, "collx_calls");
        std::fputs(collx::compare_places(all).c_str(), stdout);
        if (!trace.empty()) collx::tools::write_trace(all, trace, beside);
        return collx::tools::ended("collx_calls", 0);
    } catch (const CLI::Success& help) {
        return collx::tools::ended("collx_calls", app.exit(help));
    } catch (const collx::tools::unwritable& error) {
        std::fprintf(stderr, "collx_calls: %s\n", error.what());
        return 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "collx_calls: %s\n", error.what());
        return 2;
    }
}
