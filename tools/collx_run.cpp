// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_run -n 4 ./app: starts the ranks of a job on this machine. For several machines use mpirun, srun or an
// orchestrator: this program never opens a network connection. Everything but the command line is in launcher.hpp.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "support/call_records.hpp"
#include "support/command_line.hpp"
#include "support/format.hpp"
#include "support/launcher.hpp"
#include "support/standard_output.hpp"

namespace {

using collx::tools::launch_options;

constexpr int status_usage = 2;

constexpr const char* footer =
    R"(Each rank finds COLLX_RANK, COLLX_SIZE, COLLX_LOCAL_RANK, COLLX_LOCAL_SIZE and COLLX_JOB in its environment.
The exit status is that of the rank that failed first (128 + number for a signal), 124 after the time limit,
126 or 127 if the program cannot be run, 2 for a wrong command line.
Standard input goes to rank 0. Signals are passed on to all ranks. When SIGINT, SIGTERM or SIGHUP comes again, ranks
that still run get the time of --grace, then SIGKILL. If a rank fails, the others are ended; with --keep-going they go
on, and the status is 0 if at least one ends well.)";

std::pair<std::string, std::string> parse_assignment(const std::string& text) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
        throw std::invalid_argument("--env " + text + ": write NAME=VALUE.");
    auto name = text.substr(0, equals);
    for (const char* own : {"COLLX_RANK", "COLLX_SIZE", "COLLX_LOCAL_RANK", "COLLX_LOCAL_SIZE", "COLLX_JOB",
                            "COLLX_STORE", "COLLX_HOST_ID"})
        if (name == own) throw std::invalid_argument("--env " + text + ": this variable is set by collx_run itself.");
    if (name == "COLLX_KEY")
        throw std::invalid_argument("--env COLLX_KEY: every user of this machine can read the words of a command. "
                                    "Export COLLX_KEY, or name a file in COLLX_KEY_FILE.");
    return {std::move(name), text.substr(equals + 1)};
}

std::int64_t parse_seconds(const std::string& text) {
    const auto ns = collx::tools::parse_duration_ns(text, 1'000'000'000);
    if (ns == 0 || ns > 31'536'000'000'000'000)
        throw std::invalid_argument("'" + text + "' must be above 0 and at most a year.");
    return static_cast<std::int64_t>(ns);
}

// --hosts 3,1,2: that many ranks on each host. --hosts 3: that many hosts, with shares as equal as possible.
std::vector<int> parse_hosts(const std::string& text, int ranks) {
    std::vector<int> numbers;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        int number = 0;
        const auto [stop, bad] = std::from_chars(text.data() + at, text.data() + end, number);
        if (bad != std::errc() || stop != text.data() + end || number < 1 || number > collx::tools::launch::most_ranks)
            throw std::invalid_argument("--hosts " + text +
                                        ": write the number of hosts, or the ranks of each: 3,1,2.");
        numbers.push_back(number);
        at = end + 1;
    }
    if (numbers.size() > 1) return numbers;
    const int hosts = numbers.front();
    if (hosts > ranks)
        throw std::invalid_argument("--hosts " + text + ": each host has at least one rank, and there are " +
                                    std::to_string(ranks) + ".");
    std::vector<int> of_each(static_cast<std::size_t>(hosts));
    for (int rank = 0; rank < ranks; ++rank) ++of_each[static_cast<std::size_t>(rank) * of_each.size() / ranks];
    return of_each;
}

struct arguments {
    launch_options launch;
    std::vector<std::string> assignments;
    std::string hosts, grace = "2", bind = "none", trace;
    std::optional<std::string> timeout;
    bool no_prefix = false;
};

void declare(CLI::App& app, arguments& a) {
    app.footer(footer);
    app.prefix_command(); // options end at the program's name, `--` is allowed but not needed
    app.add_option("-n,--ranks", a.launch.ranks, "number of processes, 1 to 1024; -np is the same")
        ->required()
        ->transform(collx::tools::decimal())
        ->type_name("N");
    app.add_option("--timeout", a.timeout, "end everything after this time (10, 500ms, 2min) and say who still ran")
        ->type_name("S");
    app.add_option("--grace", a.grace, "time between SIGTERM and SIGKILL, 2 s if not given")->type_name("S");
    app.add_flag("--keep-going", a.launch.keep_going, "do not end the others when a rank fails: they may shrink()");
    app.add_flag("--no-prefix", a.no_prefix,
                 "do not put [rank] before lines; ranks write to our descriptors themselves");
    app.add_option("--bind", a.bind, "none, or core: one processor for each rank, of different cores first")
        ->check(CLI::IsMember({"none", "core"}))
        ->type_name("WHAT");
    app.add_option("--hosts", a.hosts,
                   "let the ranks take themselves for so many hosts, which talk over sockets on this machine; 3,1,2: "
                   "with so many ranks on each")
        ->type_name("H");
    app.add_option("--trace", a.trace, "record the calls of all ranks and write them for chrome://tracing and Perfetto")
        ->type_name("FILE");
    app.add_option("--env", a.assignments, "set a variable for the ranks; may be repeated")
        ->type_name("NAME=VALUE")
        ->allow_extra_args(false);
}

launch_options options_from(arguments a, std::vector<std::string> command) {
    if (!command.empty() && command.front() == "--") command.erase(command.begin());
    else if (!command.empty() && command.front().starts_with('-'))
        throw std::invalid_argument("there is no option " + command.front() + "; collx_run --help lists them");
    if (command.empty()) throw std::invalid_argument("no program was given; for example: collx_run -n 4 ./app");
    a.launch.command = std::move(command);
    a.launch.prefix = !a.no_prefix;
    a.launch.bind_cores = a.bind == "core";
    if (a.timeout) a.launch.timeout_ns = parse_seconds(*a.timeout);
    a.launch.grace_ns = parse_seconds(a.grace);
    if (!a.hosts.empty()) a.launch.hosts = parse_hosts(a.hosts, a.launch.ranks);
    for (const auto& text : a.assignments) a.launch.environment.push_back(parse_assignment(text));
    return a.launch;
}

// Returns the value of a variable as the ranks will find it, or an empty string.
std::string value_for_ranks(const launch_options& o, const std::string& name) {
    for (auto i = o.environment.rbegin(); i != o.environment.rend(); ++i)
        if (i->first == name) return i->second;
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? value : "";
}

// The file of --trace. Throws before any rank runs if it cannot be written. What was made for that and got no trace is
// removed.
class trace_file {
public:
    explicit trace_file(std::string path) : path_(std::move(path)) {
        if (path_.empty()) return;
        is_new_ = ::access(path_.c_str(), F_OK) != 0;
        if (!std::ofstream(path_, std::ios::app))
            throw std::invalid_argument("--trace " + path_ + ": this file cannot be written.");
    }
    trace_file(const trace_file&) = delete;
    ~trace_file() {
        if (is_new_) ::unlink(path_.c_str());
    }
    void write(const std::vector<collx::recorded_calls>& all) {
        collx::tools::write_trace(all, path_);
        is_new_ = false;
    }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
    bool is_new_ = false;
};

// Throws before any rank runs if there will be no records.
void require_records(const launch_options& o) {
    if (const std::string directory = value_for_ranks(o, "COLLX_RECORD_DIR"); !directory.empty())
        throw std::invalid_argument("--trace keeps its records in a directory of its own, and COLLX_RECORD_DIR is " +
                                    directory + ": leave one out (collx_calls --trace reads a directory).");
    if (value_for_ranks(o, "COLLX_RECORD") == "0")
        throw std::invalid_argument("--trace needs records of calls, and COLLX_RECORD is 0.");
}

// What the ranks of this job have recorded: where they were if one has failed, and the trace. Errors: std::exception.
void show_records(const std::string& directory, const collx::tools::record_file_list& of_earlier_jobs,
                  collx::tools::job_end end, trace_file& trace) {
    if (!trace.path().empty() && !collx::tools::has_call_records(directory))
        throw std::runtime_error("no rank has recorded a call, so " + trace.path() +
                                 " is not written: only calls of collx are recorded.");
    const auto all = collx::tools::read_call_records(directory, "collx_run", of_earlier_jobs);
    if (end.has_failed) std::fputs(collx::compare_places(all).c_str(), stderr);
    if (trace.path().empty()) return;
    trace.write(all);
    if (end.status != 0) // the ranks have named the directory
        std::fprintf(stderr, "collx_run: the calls that the ranks recorded are in %s; their directory is removed\n",
                     trace.path().c_str());
}

// If the ranks record their calls, a failure is followed by a comparison of where they were.
int run_and_compare(launch_options o, const std::string& to) {
    collx::tools::launch::signal_queue signals; // until the trace is written and the directory removed
    if (!to.empty()) require_records(o);
    trace_file trace(to);
    const collx::tools::launch::meeting_place own(!to.empty());
    if (!to.empty()) {
        o.directories.push_back(own.path());
        o.environment.emplace_back("COLLX_RECORD_DIR", own.path());
        if (value_for_ranks(o, "COLLX_RECORD").empty()) o.environment.emplace_back("COLLX_RECORD", "16384");
    }
    const std::string directory = value_for_ranks(o, "COLLX_RECORD_DIR");
    const auto of_earlier_jobs = collx::tools::record_files(directory);
    const collx::tools::job_end end = collx::tools::run_ranks(o, signals);
    if (directory.empty() || (!end.has_failed && to.empty())) return end.status;
    try {
        show_records(directory, of_earlier_jobs, end, trace);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "collx_run: %s\n", error.what());
        // With --keep-going the job has gone well all the same.
        return end.status != 0 || to.empty() ? end.status : status_usage;
    }
    return end.status;
}

// -np is mpirun's name for -n. CLI11 would read it as `-n p`. Arguments behind the program's name are not ours.
void accept_np(const CLI::App& app, int argc, char** argv) {
    static char number[] = "-n";
    for (int i = 1; i < argc && argv[i][0] == '-';) {
        if (std::string_view(argv[i]) == "-np") argv[i] = number;
        const auto* option = app.get_option_no_throw(argv[i]); // none: its value is attached, or it is unknown
        i += option != nullptr && option->get_expected_max() > 0 ? 2 : 1;
    }
}

} // namespace

int main(int argc, char** argv) {
    collx::tools::open_missing_standard_descriptors(O_RDWR); // a job runs without a reader of its output, too
    CLI::App app("Run a program as several ranks on this machine: collx_run -n 4 [options] [--] ./app arguments",
                 "collx_run");
    arguments given;
    declare(app, given);
    collx::tools::require_values(app);
    accept_np(app, argc, argv);
    try {
        app.parse(argc, argv);
        return run_and_compare(options_from(given, app.remaining()), given.trace);
    } catch (const CLI::Success& help) {
        return collx::tools::ended("collx_run", app.exit(help));
    } catch (const collx::tools::launch::refused& why) {
        std::fprintf(stderr, "collx_run: %s\n", why.what());
        return collx::tools::launch::status_cannot_run;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "collx_run: %s\n", error.what());
        return status_usage;
    }
}
