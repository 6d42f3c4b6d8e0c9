// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the command line with CLI11. Every mistake becomes one sentence.
#include "options.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "calls.hpp"
#include "support/command_line.hpp"
#include "support/format.hpp"

namespace collx::tools::perf {

namespace {

// The options as they are on the command line.
struct words {
    std::string collective, ops, sizes, place, type = "float", how = "sum", transport, pin = "auto", piece;
    std::string first = "8", last = "4M", step;
    double factor = 2;
    int ranks = 0, threads = 0, devices = 0, root = -1, in_place_only = 0, check = 1, iterations = 0, warmups = 0;
};

template <class List>
std::size_t place_in(const List& names, const std::string& word, const char* what) {
    std::string all;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (word == names[i]) return i;
        all += (i != 0 ? ", " : "") + std::string(names[i]);
    }
    throw std::invalid_argument("'" + word + "' is not a" + what + "; there are " + all + ".");
}

operation operation_named(const std::string& word) {
    if (const auto op = parse_operation(word)) return *op;
    std::string all;
    for (int k = 0; k < operation_count; ++k) all += (k != 0 ? ", " : "") + std::string(long_name(operation(k)));
    throw std::invalid_argument("'" + word + "' is not an operation; there are " + all + ".");
}

void read_operations(const words& w, options& o) {
    if (!w.ops.empty() && !w.collective.empty())
        throw std::invalid_argument("Name the operation either alone (" + w.collective + ") or in --ops, not both.");
    o.is_comparison = !w.ops.empty();
    if (!w.collective.empty()) o.operations.push_back(operation_named(w.collective));
    for (const auto& word : split_list(w.ops)) {
        if (word != "all") o.operations.push_back(operation_named(word));
        else
            for (int k = 0; k < compared_operations; ++k) o.operations.push_back(operation(k));
    }
    if (o.operations.empty() && !o.list && o.fit.empty())
        throw std::invalid_argument("Name an operation, for example: collx_perf all_reduce. --list names all of them.");
}

constexpr std::size_t most_sizes = 100'000, most_bytes = std::size_t{1} << 46;

void read_sizes(const CLI::App& app, const words& w, options& o) {
    const bool has_range = app.count("-b") + app.count("-e") + app.count("-f") + app.count("-i") != 0;
    if (!w.sizes.empty()) {
        for (const auto& word : split_list(w.sizes)) o.sizes_bytes.push_back(parse_size(word));
    } else if (o.is_comparison && !has_range) {
        o.sizes_bytes = {8, 4096, std::size_t{1} << 20};
    } else {
        const std::size_t first = parse_size(w.first), last = parse_size(w.last);
        const std::size_t step = w.step.empty() ? 0 : parse_size(w.step);
        if (first > last)
            throw std::invalid_argument("-b " + w.first + " is larger than -e " + w.last +
                                        ": the sizes run from -b to -e.");
        if (step != 0 && app.count("-f") != 0 && w.factor > 1)
            throw std::invalid_argument("-i adds to a size and -f multiplies it: give one of them.");
        if (step == 0 && !(w.factor > 1))
            throw std::invalid_argument("-f must be above 1: sizes are multiplied by it.");
        for (std::size_t s = first == 0 ? 1 : first; s <= last;) {
            o.sizes_bytes.push_back(s);
            if (o.sizes_bytes.size() > most_sizes)
                throw std::invalid_argument("From " + w.first + " to " + w.last + " these are more than " +
                                            std::to_string(most_sizes) + " sizes; use a larger -i or -f.");
            const double larger = std::ceil(static_cast<double>(s) * w.factor);
            if (step == 0 && !(larger < 0x1p63)) break; // no number of bytes
            const std::size_t next = step != 0 ? s + step : static_cast<std::size_t>(larger);
            if (next <= s) break;
            s = next;
        }
    }
    if (o.sizes_bytes.empty()) throw std::invalid_argument("No size is left: give -e 8 or more, or --sizes 8,1M.");
    for (const std::size_t s : o.sizes_bytes)
        if (s > most_bytes) // a rank has three times as much, which must be a number
            throw std::invalid_argument(std::to_string(s) + " bytes are more than any rank has; sizes go up to 64T.");
}

void read_ranks(const words& w, options& o) {
    if (w.ranks > 0 && (w.threads > 0 || w.devices > 0))
        throw std::invalid_argument("--ranks starts processes, --threads (-t) and -g start threads: give one of them.");
    if (w.ranks < 0 || w.threads < 0 || w.devices < 0 || w.ranks > 1024 || w.threads > 1024 || w.devices > 1024)
        throw std::invalid_argument("The number of ranks must be from 1 to 1024.");
    // As in nccl-tests: -t threads, each with -g devices. Each device is one rank, which is a thread here.
    const int threads = w.threads > 0 || w.devices > 0 ? std::max(w.threads, 1) * std::max(w.devices, 1) : 0;
    if (threads > 1024) throw std::invalid_argument("The number of ranks must be from 1 to 1024.");
    o.threads = threads > 0;
    o.ranks = w.ranks + threads;
    if (w.transport.empty()) return;
    if (w.transport == "memory") {
        if (o.ranks == 0)
            throw std::invalid_argument(
                "--transport memory runs ranks as threads: say how many with --ranks or --threads.");
        o.threads = true;
    } else if (w.transport == "sockets") {
        o.sockets = true;
    } else if (w.transport == "verbs") {
        o.verbs = true;
    } else if (w.transport == "shm") {
        if (threads > 0)
            throw std::invalid_argument("--transport shm runs ranks as processes and --threads as threads: use "
                                        "--ranks, or --transport memory.");
    } else {
        throw std::invalid_argument(
            "This version has no transport '" + w.transport +
            "'; there are shm (ranks are processes of one host), memory (threads of one process), verbs and sockets.");
    }
}

void require_algorithm(const options& o) {
    std::string known;
    for (operation op : o.operations) {
        for (const auto& name : algorithm_names(op)) {
            if (name == o.algorithm) return;
            known += (known.empty() ? "" : ", ") + name;
        }
    }
    throw std::invalid_argument("None of these operations has an algorithm '" + o.algorithm + "'; they have " +
                                (known.empty() ? "none to choose from" : known) + ".");
}

void require_attach(const options& o) {
    if (o.shared || !o.algorithm.empty() || o.piece_bytes != 0)
        throw std::invalid_argument("--attach goes alone: leave --shared, --algo and --piece out.");
    for (const operation op : o.operations)
        if (!has_attach(op))
            throw std::invalid_argument("--attach is for broadcast, all_gather and all_to_all: leave it out for " +
                                        std::string(long_name(op)) + ".");
}

// --every-algo and --predict: one place, and an output that distinguishes algorithms.
void read_choices(const words& w, options& o) {
    const std::string name = o.every_algorithm ? "--every-algo" : "--predict";
    if (!o.algorithm.empty() || o.attach || o.piece_bytes != 0)
        throw std::invalid_argument(name +
                                    " is about what the library chooses: leave --algo, --piece and --attach out.");
    if (!o.json.empty() || !o.html.empty())
        throw std::invalid_argument(name + " prints a table of its own or CSV: leave --json and --html out.");
    if (w.place.empty() && w.in_place_only == 0) o.in_place = false;
    if (o.in_place && o.out_of_place)
        throw std::invalid_argument(name + " compares in one place: give --place in or out.");
    for (operation op : o.operations)
        if (!o.is_comparison && algorithm_names(op).empty())
            throw std::invalid_argument(std::string(long_name(op)) +
                                        " has one way only, there is nothing to compare (--list).");
}

void read_rest(const words& w, options& o) {
    o.type = element(place_in(element_names, w.type, "n element type"));
    o.how = reduction(place_in(reduction_names, w.how, " reduction"));
    std::string place = w.place.empty() ? (o.is_comparison ? "out" : "both") : w.place;
    if (w.in_place_only != 0 && !w.place.empty() && place != "in")
        throw std::invalid_argument("--in-place is --place in, not --place " + place + ": give one of them.");
    if (w.in_place_only != 0) place = "in";
    if (place != "out" && place != "in" && place != "both")
        throw std::invalid_argument("'" + place + "' is no place; there are out, in and both.");
    o.out_of_place = place != "in";
    o.in_place = place != "out";
    if (!o.out_of_place && !o.operations.empty() &&
        std::none_of(o.operations.begin(), o.operations.end(), has_in_place))
        throw std::invalid_argument(std::string(long_name(o.operations.front())) +
                                    " is not measured in place; all_reduce, reduce_scatter and all_gather are. Leave "
                                    "--in-place out.");
    o.root = w.root;
    if (w.root < -1) throw std::invalid_argument("-r must be a rank, or -1 for a new root in every call.");
    o.iterations = w.iterations;
    o.warmups = w.warmups;
    if (w.iterations < 0 || w.warmups < 0) throw std::invalid_argument("-n and -w must not be negative.");
    o.check = w.check != 0;
    if (!w.piece.empty()) o.piece_bytes = parse_size(w.piece);
    if (!w.piece.empty() && o.piece_bytes == 0) throw std::invalid_argument("A --piece must have a byte or more.");
    if (w.pin != "auto" && w.pin != "yes" && w.pin != "no")
        throw std::invalid_argument("'" + w.pin + "' is no choice for --pin; there are auto, yes and no.");
    o.pin = w.pin == "auto" ? pin_choice::automatic : w.pin == "yes" ? pin_choice::yes : pin_choice::no;
    if (o.is_comparison && o.csv.empty() && o.json.empty() && o.html.empty()) o.csv = "-";
    if (o.csv == "-" && o.json == "-")
        throw std::invalid_argument("--csv and --json cannot both be written to standard output.");
    if (!(o.budget_ms > 0) || !(o.sample_us > 0))
        throw std::invalid_argument("--budget-ms and --sample-us must be above 0.");
    if (o.min_samples < 1 || o.max_samples < o.min_samples || o.max_samples > 4096)
        throw std::invalid_argument(
            "--min-samples and --max-samples must be from 1 to 4096, the first not above the second.");
    if (o.attach) require_attach(o);
    if (!o.algorithm.empty()) require_algorithm(o);
    if (o.every_algorithm || !o.predict.empty()) read_choices(w, o);
    const bool varied = o.shared || o.attach || o.piece_bytes != 0 || !o.algorithm.empty() || o.every_algorithm;
    const bool reduces_otherwise =
        o.how != reduction::sum && std::any_of(o.operations.begin(), o.operations.end(), reduces);
    if (varied && (o.type != element::float32 || reduces_otherwise))
        throw std::invalid_argument(
            "--algo, --every-algo, --piece, --shared and --attach are built for float and sum; leave -d and -o out.");
    if (o.ranks > 0) require_root(o, o.ranks);
}

// --fit measures its own points.
void read_fit(const CLI::App& app, const words& w, options& o) {
    if (o.fit_grid && o.fit.empty()) throw std::invalid_argument("--fit-grid says how --fit FILE measures: add it.");
    if (o.fit.empty()) return;
    for (const CLI::Option* given : app.get_options()) {
        const std::string name = given->get_name();
        const bool is_known = name == "--fit" || name == "--fit-grid" || name == "--budget-ms" || name == "--transport";
        if (given->count() != 0 && !is_known)
            throw std::invalid_argument("--fit measures points of its own: leave " + name + " out.");
    }
    if (!w.transport.empty() && w.transport != "shm" && w.transport != "sockets")
        throw std::invalid_argument("--fit measures shm and sockets, or one of them.");
    o.fit_transport = w.transport;
    if (app.count("--budget-ms") == 0) o.budget_ms = 12;
}

void add_flags(CLI::App& app, words& w, options& o) {
    app.add_option("collective", w.collective, "all_reduce, reduce_scatter, all_gather, broadcast, ... (--list)");
    app.add_option("-b,--minbytes", w.first, "smallest size (8)")->group("Sizes");
    app.add_option("-e,--maxbytes", w.last, "largest size (4M)")->group("Sizes");
    app.add_option("-f,--stepfactor", w.factor, "each size is the one before times this (2)")->group("Sizes");
    app.add_option("-i,--stepbytes", w.step, "or: each size is the one before plus this")->group("Sizes");
    app.add_option("--sizes", w.sizes, "exactly these, for example 8,4K,1M")->group("Sizes");
    app.add_option("-d,--datatype", w.type, "int8 uint8 int32 uint32 int64 uint64 half bfloat16 float double (float)")
        ->group("What");
    app.add_option("-o,--op", w.how, "sum prod min max avg (sum)")->group("What");
    app.add_option("-r,--root", w.root, "of rooted operations; -1: another one in every call (-1)")->group("What");
    app.add_option("--algo", o.algorithm, "this algorithm instead of the library's choice (--list)")->group("What");
    app.add_flag("--every-algo", o.every_algorithm,
                 "each algorithm in turn beside the library's choice, and how far that is from the fastest")
        ->group("What");
    app.add_option("--piece", w.piece, "bytes of a chunk that travel at once, instead of the library's choice")
        ->group("What");
    app.add_flag("--shared", o.shared, "buffers from collx's shared allocator (zero copy)")->group("What");
    app.add_flag("--attach", o.attach,
                 "read peers' private memory through the kernel (broadcast, all_gather, all_to_all)")
        ->group("What");
    app.add_option("--place", w.place, "out, in or both (both)")->group("What");
    app.add_flag("--in-place", w.in_place_only, "the same as --place in")->group("What");
    app.add_option("--ranks", w.ranks, "start this many processes")->group("Ranks");
    app.add_option("-t,--nthreads,--threads", w.threads, "or this many threads of one process")->group("Ranks");
    app.add_option("-g,--ngpus", w.devices, "ranks of each thread of -t (1): -t 2 -g 4 is 8 ranks, each a thread here")
        ->group("Ranks");
    app.add_option("--transport", w.transport,
                   "shm (processes), memory (threads), verbs or sockets (even inside a host)")
        ->group("Ranks");
    app.add_option("--pin", w.pin, "each rank on a core of its own: auto (if there are enough), yes, no")
        ->group("Ranks");
    app.add_option("-n,--iters", w.iterations, "timed calls (0: as many as fit --budget-ms)")->group("Measuring");
    app.add_option("-w,--warmup_iters", w.warmups, "untimed calls (0: 4 batches and 2 ms)")->group("Measuring");
    app.add_option("-c,--check", w.check, "1: check every element of every rank first; 0: do not (1)")
        ->group("Measuring");
    app.add_option("--budget-ms", o.budget_ms, "timed part of one point (150)")->group("Measuring");
    app.add_option("--sample-us", o.sample_us, "a sample lasts at least this long (200)")->group("Measuring");
    app.add_option("--min-samples", o.min_samples, "at least so many (7)")->group("Measuring");
    app.add_option("--max-samples", o.max_samples, "at most so many (200)")->group("Measuring");
    app.add_option("--ops", w.ops, "several operations, or all: prints CSV for comparisons with other libraries")
        ->group("Output");
    app.add_option("--csv", o.csv, "write CSV to a file, or - for standard output")->group("Output");
    app.add_option("-J,--json", o.json, "write JSON to a file, or - for standard output")->group("Output");
    app.add_option("--html", o.html, "write a page with plots")->group("Output");
    app.add_flag("!--no-header", o.header, "CSV without the line of names")->group("Output");
    app.add_flag("-q,--quiet", o.quiet, "no progress line")->group("Output");
    app.add_option("--predict", o.predict,
                   "a file that --fit wrote: what it predicts beside what is measured, and the errors")
        ->group("Output");
    app.add_option("--fit", o.fit, "measure what calls cost on this machine and write it for COLLX_MACHINE")
        ->group("Output");
    app.add_flag("--fit-grid", o.fit_grid,
                 "with --fit: measure ten times the points, and show the errors on the others")
        ->group("Output");
    app.add_flag("--list", o.list, "print the operations and their algorithms")->group("Output");
}

} // namespace

void require_root(const options& o, int ranks) {
    if (o.root >= ranks)
        throw std::invalid_argument("-r " + std::to_string(o.root) + " is no rank: there are " + std::to_string(ranks) +
                                    ".");
}

parsed parse_options(int argc, char** argv) {
    CLI::App app(
        "Measures and checks collx's collective operations. Sizes are the larger of a rank's buffers; K is 1024.",
        "collx_perf");
    app.footer("Times are medians over samples; a sample is a batch of calls between two barriers, from the first "
               "rank's start to\n"
               "the last rank's end. GB/s is 1e9 bytes per second. Exit codes: 0 good, 1 a rank failed, 2 wrong use, 3 "
               "wrong results.");
    words w;
    parsed p;
    add_flags(app, w, p.run);
    require_values(app);
    try {
        app.parse(argc, argv);
        read_fit(app, w, p.run);
        read_operations(w, p.run);
        read_sizes(app, w, p.run);
        read_ranks(w, p.run);
        read_rest(w, p.run);
    } catch (const CLI::CallForHelp&) {
        p.stop = true;
        p.text = app.help();
    } catch (const CLI::ParseError& e) {
        p.stop = true;
        p.exit_code = exit_usage;
        p.text = std::string("collx_perf: ") + e.what() + " (collx_perf --help)\n";
    } catch (const std::invalid_argument& e) {
        p.stop = true;
        p.exit_code = exit_usage;
        p.text = std::string("collx_perf: ") + e.what() + "\n";
    }
    return p;
}

std::string variant_of(const options& o, const std::string& algorithm) {
    std::string text = !algorithm.empty() ? algorithm : !o.algorithm.empty() ? o.algorithm : "default";
    if (o.shared) text += "+shared";
    if (o.attach) text += "+attach";
    if (o.piece_bytes != 0) text += "+piece" + size_option(o.piece_bytes);
    if (o.type != element::float32) text += std::string("+") + name_of(o.type);
    if (o.how != reduction::sum) text += std::string("+") + name_of(o.how);
    if (o.root >= 0) text += "+root" + std::to_string(o.root);
    return text;
}

} // namespace collx::tools::perf
