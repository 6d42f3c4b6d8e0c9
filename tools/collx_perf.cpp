// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_perf: measures how long collective operations take, and checks their results. Has the letters and columns of
// nccl-tests, and can be one side of a comparison with other libraries (--ops). Its parts are in tools/perf/.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>

#include <collx/bootstrap/environment.hpp>
#include <collx/collx.hpp>
#if COLLX_HAS_SODIUM
#include <collx/interop/sodium.hpp>
#endif
#if COLLX_HAS_OPENSSL
#include <collx/interop/openssl.hpp>
#endif
#if COLLX_HAS_VERBS
#include <collx/interop/libibverbs.hpp>
#endif

#include "perf/fit_run.hpp"
#include "perf/launch.hpp"
#include "perf/measure.hpp"
#include "perf/options.hpp"
#include "perf/predict.hpp"
#include "perf/report.hpp"
#include "support/format.hpp"
#include "support/html_report.hpp"
#include "support/progress.hpp"
#include "support/standard_output.hpp"

namespace {

using namespace collx::tools;
using namespace collx::tools::perf;

void print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
}

// Binds rank r to the r-th core that this process may use, after the communicator was made, which counts those cores.
bool pin_rank(const options& o, int rank, int ranks, const cpu_set_t& allowed) {
    const int cores = CPU_COUNT(&allowed);
    if (o.pin == pin_choice::no || (o.pin == pin_choice::automatic && ranks > cores)) return false;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ != rank % cores) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return ::sched_setaffinity(0, sizeof one, &one) == 0;
    }
    return false;
}

// The same for ranks that act as several hosts (collx_run --hosts): a file that all of them can map, because they are
// on one machine. Between machines there is no common clock to measure with.
void* meeting_file(collx::communicator& world) {
    const std::size_t bytes = harness::bytes(world.size());
    std::array<char, 64> path{"/dev/shm/collx_perf-XXXXXX"};
    int fd = -1;
    if (world.rank() == 0 && (fd = ::mkstemp(path.data())) >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
        path = {};
    collx::broadcast(world, path);
    if (world.rank() != 0) fd = ::open(path.data(), O_RDWR | O_CLOEXEC);
    void* at = fd < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) ::close(fd);
    int missing = at == MAP_FAILED ? 1 : 0;
    collx::all_reduce(world, collx::value(missing));
    if (world.rank() == 0) ::unlink(path.data());
    if (missing != 0) throw std::runtime_error("The ranks are on several machines; collx_perf measures on one.");
    return at;
}

// Returns the harness's block: memory that collx shares between ranks. Using it takes none of collx's calls.
void* meeting_memory(collx::communicator& world) {
    if (!world.internals().net.is_one_host()) return meeting_file(world);
    collx::shared_allocator<std::byte> allocator(world);
    const std::size_t bytes = harness::bytes(world.size());
    std::uint64_t offset = 0;
    if (world.rank() == 0) {
        std::byte* at = allocator.allocate(bytes);
        std::memset(at, 0, bytes);
        offset = allocator.memory()->offset_of(at);
    }
    collx::broadcast(world, collx::value(offset));
    return allocator.memory()->at(offset);
}

bool compares_choices(const options& o) { return o.every_algorithm || !o.predict.empty(); }

struct printer {
    explicit printer(run_report& r) : report(r), line(points(r), !r.run.quiet) {}

    // Only one of CSV, JSON and the table goes to standard output.
    [[nodiscard]] bool prints_table() const {
        return report.run.csv != "-" && report.run.json != "-" && !report.run.is_comparison;
    }
    [[nodiscard]] bool prints_csv() const { return report.run.csv == "-"; }

    void begin() {
        if (prints_table()) print(compares_choices(report.run) ? choice_header(report) : text_header(report));
        if (prints_csv() && report.run.header) print(csv_names());
    }
    void coming(operation op, std::size_t bytes) {
        line.update(done++, std::string(long_name(op)) + " " + size_text(static_cast<double>(bytes)));
    }
    void size_done(const result* out, const result* in) {
        line.erase();
        if (prints_table() && (out != nullptr || in != nullptr)) print(text_line(report, out, in));
        for (const result* r : {out, in}) {
            if (r == nullptr) continue;
            report.results.push_back(*r);
            if (prints_csv()) print(csv_line(report, *r));
        }
    }
    // Prints one size of --every-algo or --predict.
    void choices_done(std::vector<result> in_turn) {
        line.erase();
        if (prints_table()) print(choice_line(in_turn));
        for (const result& r : in_turn) {
            report.results.push_back(r);
            if (prints_csv()) print(csv_line(report, r));
        }
        choices.push_back(std::move(in_turn));
    }
    // In a comparison of many operations, pingpong is left out silently.
    void skipped(operation op, int ranks) {
        line.erase();
        const std::string why = std::string(long_name(op)) + ": not measured, it is between 2 ranks and there are " +
                                std::to_string(ranks) + "\n";
        if (prints_table()) print("# " + why);
        else if (!report.run.is_comparison) std::fprintf(stderr, "collx_perf: %s", why.c_str());
    }
    void end() {
        if (prints_table()) print(compares_choices(report.run) ? choice_footer(report, choices) : text_footer(report));
        if (!report.run.csv.empty() && report.run.csv != "-") {
            std::string text = report.run.header ? csv_names() : "";
            for (const auto& r : report.results) text += csv_line(report, r);
            write_text_file(report.run.csv, text);
        }
        if (report.run.json == "-") print(json_text(report));
        else if (!report.run.json.empty()) write_text_file(report.run.json, json_text(report));
        if (!report.run.html.empty()) write_text_file(report.run.html, html_text(report));
    }

    [[nodiscard]] std::string csv_names() const {
        std::string names = csv_header();
        if (!report.run.predict.empty()) names.insert(names.size() - 1, ",predicted_us");
        return names;
    }
    static std::size_t points(const run_report& r) { return r.run.operations.size() * r.run.sizes_bytes.size(); }
    run_report& report;
    progress_line line;
    std::size_t done = 0;
    std::vector<std::vector<result>> choices;
};

// Measures the library's choice and, on request, all algorithms that can run here.
void measure_choices(meter& m, const options& o, operation op, collx::communicator& world, printer* out) {
    const bool in_memory = world.internals().net.remote() == nullptr;
    const std::vector<std::string> known = usable_algorithms(op, in_memory, o.shared);
    if (known.empty()) return; // one way only
    std::vector<std::string> names{""};
    if (o.every_algorithm) names.insert(names.end(), known.begin(), known.end());
    for (const std::size_t bytes : rounded_sizes(op, o.sizes_bytes, bytes_of(o.type), world.size())) {
        if (out != nullptr) out->coming(op, bytes);
        std::vector<result> in_turn = m.measure_in_turn(op, bytes, o.in_place && has_in_place(op), names);
        if (out == nullptr) continue;
        if (!o.predict.empty()) {
            const auto us = predicted_us(world, op, bytes, o.shared, o.predict);
            for (result& r : in_turn)
                if (const auto at = us.find(r.algorithm); at != us.end()) r.predicted_us = at->second;
        }
        out->choices_done(std::move(in_turn));
    }
}

bool has_algorithm(operation op, const std::string& name) {
    if (name.empty()) return true;
    for (const auto& known : algorithm_names(op))
        if (known == name) return true;
    return false;
}

void measure_operation(meter& m, const options& o, operation op, int ranks, printer* out) {
    if (!has_algorithm(op, o.algorithm)) return;
    if (!is_possible(op, ranks) && out != nullptr) out->skipped(op, ranks);
    for (const std::size_t bytes : rounded_sizes(op, o.sizes_bytes, bytes_of(o.type), ranks)) {
        if (out != nullptr) out->coming(op, bytes);
        result outside, inside;
        // Broadcast and similar operations have one way only; a run in place skips them.
        const bool runs_out = o.out_of_place, runs_in = o.in_place && has_in_place(op);
        if (runs_out) outside = m.measure(op, bytes, false);
        if (runs_in) inside = m.measure(op, bytes, true);
        if (out != nullptr) out->size_done(runs_out ? &outside : nullptr, runs_in ? &inside : nullptr);
    }
}

// How many cores the ranks may use: a launcher may have bound each rank to one. Of several hosts those of this rank.
int cores_of_all(collx::communicator& world, cpu_set_t of_all) {
    if (world.internals().net.is_one_host())
        collx::all_reduce(world, collx::view(of_all.__bits, std::size(of_all.__bits)), collx::bit_or{});
    return CPU_COUNT(&of_all);
}

// Before hours are spent: files that cannot be written, by the process that will write them or starts those that do.
void require_outputs(const options& o) {
    for (const std::string& file : {o.csv, o.json, o.html}) {
        if (file.empty() || file == "-") continue;
        if (std::FILE* f = std::fopen(file.c_str(), "a"); f != nullptr) std::fclose(f);
        else throw std::system_error(errno, std::generic_category(), "cannot write '" + file + "'");
    }
}

// Runs one rank's part. Returns its exit code.
int run_rank(collx::communicator& world, const options& o, const cpu_set_t& allowed) {
    const int n = world.size(), cores = cores_of_all(world, allowed);
    if (o.root >= n)
        throw std::invalid_argument("-r " + std::to_string(o.root) + " is no rank: there are " + std::to_string(n) +
                                    ".");
    if (world.rank() == 0) require_outputs(o);
    harness meeting(meeting_memory(world), world.rank(), n, cores);
    const collx::remote_ranks* const far = world.internals().net.remote();
    run_report report{.run = o,
                      .ranks = n,
                      .cores = cores,
                      .pinned = pin_rank(o, world.rank(), n, allowed),
                      .across_hosts = far != nullptr,
                      .by_verbs = far != nullptr && far->has_verbs(),
                      .results = {}};
    try {
        buffers memory(world, o.shared, largest_rounded(o.operations, o.sizes_bytes, bytes_of(o.type), n));
        meter m(world, meeting, memory, o);
        std::unique_ptr<printer> out;
        if (world.rank() == 0) out = std::make_unique<printer>(report);
        if (out != nullptr) out->begin();
        meeting.barrier();
        for (operation op : o.operations)
            if (compares_choices(o)) measure_choices(m, o, op, world, out.get());
            else measure_operation(m, o, op, n, out.get());
        meeting.barrier();
        if (out != nullptr) out->end();
        return meeting.wrong().load() == 0 ? 0 : exit_wrong;
    } catch (...) {
        meeting.give_up();
        throw;
    }
}

collx::transports transports_of(const options& o) {
    if (o.sockets) return collx::per_peer{collx::sockets{}};
    if (o.verbs) return collx::per_peer{collx::verbs{}};
    return {};
}

int run_threads(const options& o, const cpu_set_t& allowed) {
    std::atomic<int> code{0};
    collx::run_threads(transports_of(o), o.ranks, [&](collx::communicator& world) {
        if (const int c = run_rank(world, o, allowed); c != 0) code = c;
    });
    return code;
}

int run_process(const options& o, const cpu_set_t& allowed) {
    collx::communicator world(transports_of(o));
    if (o.ranks != 0 && o.ranks != world.size())
        throw std::invalid_argument("--ranks " + std::to_string(o.ranks) + ", but the launcher started " +
                                    std::to_string(world.size()) + ": leave it out.");
    require_root(o, world.size());
    return run_rank(world, o, allowed);
}

int run(options o, char** argv) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ::sched_getaffinity(0, sizeof allowed, &allowed);
    const bool is_rank = std::getenv("COLLX_RANK") != nullptr || collx::describe_job().size > 1;
    if (o.threads && is_rank)
        throw std::invalid_argument("Ranks are processes here, because a launcher started this one: leave --threads "
                                    "and --transport memory out.");
    if (!o.fit.empty()) {
        if (is_rank) throw std::invalid_argument("--fit starts its ranks itself: run it without a launcher.");
        return run_fit(o, CPU_COUNT(&allowed));
    }
    if (!is_rank) require_outputs(o);
    if (o.threads) return ::run_threads(o, allowed);
    if (is_rank) return run_process(o, allowed);
    if (o.ranks == 0) o.ranks = std::max(2, CPU_COUNT(&allowed));
    require_root(o, o.ranks);
    return run_ranks(o.ranks, argv, exit_wrong);
}

} // namespace

int main(int argc, char** argv) {
    open_missing_standard_descriptors();
    const parsed p = parse_options(argc, argv);
    if (p.stop) {
        std::fputs(p.text.c_str(), p.exit_code == 0 ? stdout : stderr);
        return ended("collx_perf", p.exit_code);
    }
    if (p.run.list) {
        print(list_text());
        return ended("collx_perf", 0);
    }
    try {
        return ended("collx_perf", run(p.run, argv));
    } catch (const std::invalid_argument& e) { // of the command line; errors of collx are none
        std::fprintf(stderr, "collx_perf: %s\n", e.what());
        return exit_usage;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "collx_perf: %s\n", e.what());
        return exit_failed;
    }
}
