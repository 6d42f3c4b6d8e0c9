// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The points of --fit, their measurement by copies of this program, and the report of the fit.
#include "fit_run.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <collx/algo/algorithms.hpp>
#include <collx/plan/call_shape.hpp>
#include <collx/plan/choice_words.hpp>
#include <collx/plan/host_selector.hpp>
#include <collx/plan/row_of_call.hpp>

#include "support/html_report.hpp"
#include "support/launcher.hpp"

namespace collx::tools::perf {

namespace {

constexpr std::array fitted_operations{
    operation::all_reduce, operation::reduce_scatter, operation::all_gather, operation::broadcast, operation::reduce,
    operation::all_to_all, operation::gather,         operation::scatter,    operation::scan,      operation::barrier};
// Sizes on and off the powers of two.
constexpr std::array<std::size_t, 21> grid_sizes{8,       100,     1024,    3000,    8192,    12'000,  16'384,
                                                 20'000,  32'768,  50'000,  65'536,  100'000, 200'000, 262'144,
                                                 393'216, 640'000, 1048576, 1500000, 3145728, 4194304, 8388608};
// No point of six ranks is fitted.
constexpr std::array<placement, 4> design_memory{{{2}, {3}, {4}, {8}}};
constexpr std::array<placement, 4> design_sockets{{{2, 2}, {3, 3}, {4, 4}, {8, 8}}};
constexpr std::array<placement, 3> design_hosts{{{4, 2}, {8, 2}, {8, 4}}};
constexpr std::array<placement, 4> more_for_grid{{{6}, {6, 6}, {6, 2}, {6, 3}}};

template <collective C, class F>
bool with_algorithm(const choices::row& row, F&& f) {
    bool is_found = false;
    algo::algorithms<C>::for_each([&](auto a) {
        if (!is_found && std::string(a.name) == choices::name_of(row.use)) {
            f(a);
            is_found = true;
        }
    });
    return is_found;
}

// Describes what the library would run if several hosts have several ranks each.
template <collective C>
bool describe_crowded(fit_sample& s, problem p, const sim::cores& on) {
    const node_map map = node_map::blocks(s.where.ranks, s.where.ranks / s.where.hosts);
    const auto layout = links_layout::across_hosts(s.where.ranks / s.where.hosts, s.where.ranks, true);
    p.hosts = &map;
    const auto describe = [&](const auto& a) {
        const auto work = collx::detail::predict_among_hosts(a, p, layout.channel.slot_bytes, on);
        s.by = sim::medium::mixed;
        s.at.is = work.inside;
        s.between = work.between;
    };
    bool is_found = false;
    choices::with_choice<choices::hosts, C>(collx::detail::situation_on(map.view(), p), [&](auto chosen) {
        if constexpr (chosen.use != choices::none) {
            describe(collx::detail::algorithm_among_hosts<chosen.use, C>(map.view()));
            is_found = true;
        }
    });
    return is_found || with_algorithm<C>(*collx::detail::row_of_call(C, p).row, describe);
}

// Describes what the library would run there.
bool describe(fit_sample& s, const sim::cores& on) {
    const bool is_one_host = s.where.hosts == 1;
    const problem p{.bytes = s.bytes,
                    .ranks = s.where.ranks,
                    .oversubscribed = is_one_host && s.where.ranks > on.count,
                    .windows = is_one_host};
    const auto layout =
        is_one_host ? links_layout::for_ranks(s.where.ranks) : links_layout::across_hosts(1, s.where.ranks, false);
    bool is_found = false;
    with_collective(s.op, [&]<collective C>() {
        if (s.where.is_crowded()) is_found = describe_crowded<C>(s, p, on);
        else
            is_found = with_algorithm<C>(*collx::detail::row_of_call(C, p).row, [&](const auto& a) {
                const auto call = collx::detail::predict_call(a, p, layout.channel.slot_bytes, on);
                s.by = call.by;
                s.at.is = call.is;
            });
    });
    return is_found;
}

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const auto& w : words) text += (text.empty() ? "" : ",") + w;
    return text;
}

// Measures operations at sizes. Returns the samples as CSV.
std::string measure(const options& o, const std::vector<std::string>& operations, const std::vector<std::string>& sizes,
                    placement where) {
    char file[] = "/tmp/collx_fit-XXXXXX";
    const int fd = ::mkstemp(file);
    if (fd < 0) throw std::runtime_error("No file can be made in /tmp: " + std::string(std::strerror(errno)));
    ::close(fd);
    launch_options ranks{.launcher = "collx_perf", .ranks = where.ranks, .prefix = false};
    if (where.is_crowded()) ranks.hosts.assign(static_cast<std::size_t>(where.hosts), where.ranks / where.hosts);
    ranks.command = {"/proc/self/exe",
                     "--ops",
                     joined(operations),
                     "--sizes",
                     joined(sizes),
                     "--budget-ms",
                     std::to_string(o.budget_ms),
                     "--min-samples",
                     "5",
                     "--max-samples",
                     "60",
                     "-c",
                     "0",
                     "-q",
                     "--csv",
                     file};
    if (where.is_alone()) ranks.command.insert(ranks.command.end(), {"--transport", "sockets"});
    tools::launch::signal_queue signals;
    const int code = tools::run_ranks(ranks, signals).status;
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    ::unlink(file);
    if (code != 0)
        throw std::runtime_error("Measuring " + std::to_string(where.ranks) + " ranks on " +
                                 std::to_string(where.hosts) + (where.hosts == 1 ? " host" : " hosts") +
                                 " failed; nothing was written.");
    return text.str();
}

// Measures the points of one placement: three runs, in which each third of the operations has its own sizes, or one run
// with all of them (--fit-grid).
void add_points(std::vector<fit_sample>& all, const options& o, placement where, bool in_design, const sim::cores& on) {
    for (std::size_t third = 0; third < (o.fit_grid ? 1 : 3); ++third) {
        std::vector<std::string> operations, sizes;
        for (std::size_t k = third; k < fitted_operations.size(); k += o.fit_grid ? 1 : 3)
            operations.emplace_back(short_name(fitted_operations[k]));
        const operation first = fitted_operations[third];
        for (std::size_t k = 0; k < grid_sizes.size(); ++k)
            if (o.fit_grid || is_in_design(first, static_cast<int>(k), where.ranks))
                sizes.push_back(std::to_string(grid_sizes[k]));
        for (fit_sample& s : read_samples(measure(o, operations, sizes, where), where.hosts, on)) {
            for (std::size_t k = 0; k < grid_sizes.size(); ++k) { // a size that was rounded down is still that size
                const std::size_t next = k + 1 < grid_sizes.size() ? grid_sizes[k + 1] : SIZE_MAX;
                if (s.bytes + 64 >= grid_sizes[k] && s.bytes + 64 < next)
                    s.is_fitted = in_design && is_in_design(s.op, static_cast<int>(k), where.ranks);
            }
            if (s.op == operation::barrier) s.is_fitted = in_design;
            all.push_back(s);
        }
    }
}

bool is_asked_for(const options& o, placement where) {
    return o.fit_transport.empty() || o.fit_transport == (where.hosts == 1 ? "shm" : "sockets");
}

// Called before a minute of measuring. Leaves nothing behind.
void require_writable(const std::string& file) {
    const bool was_there = ::access(file.c_str(), F_OK) == 0;
    if (!std::ofstream(file, std::ios::app))
        throw std::runtime_error("cannot write '" + file + "': " + std::strerror(errno));
    if (!was_there) ::unlink(file.c_str());
}

// The time of a cache line from core to core over the samples: 5 %, median, 95 %; zeros if there were no answers.
std::array<double, 3> line_times(const std::vector<fit_sample>& samples) {
    std::vector<double> ns;
    for (const fit_sample& s : samples)
        if (s.line_ns > 0) ns.push_back(s.line_ns);
    std::sort(ns.begin(), ns.end());
    if (ns.empty()) return {};
    return {ns[ns.size() / 20], ns[ns.size() / 2], ns[ns.size() * 19 / 20]};
}

std::string line_of(const std::string& name, const std::vector<double>& fitted, const std::vector<double>& held_out) {
    const auto part = [](std::vector<double> errors) {
        char text[64] = "                          ";
        if (errors.empty()) return std::string(text);
        std::sort(errors.begin(), errors.end());
        std::snprintf(text, sizeof text, "%6zu %8.1f %% %7.1f %%", errors.size(), 100 * median_of_sorted(errors),
                      100 * percentile_of_sorted(errors, 0.9));
        return std::string(text);
    };
    char text[160];
    std::snprintf(text, sizeof text, "%-16s %s   %s\n", name.c_str(), part(fitted).c_str(), part(held_out).c_str());
    return text;
}

} // namespace

bool is_in_design(operation op, int size_at, int ranks) {
    const auto at =
        static_cast<int>(std::find(fitted_operations.begin(), fitted_operations.end(), op) - fitted_operations.begin());
    const int place = (size_at + 7 * (at % 3) + 3 * ranks) % 10;
    return place == 0 || (ranks == 2 && place == 5);
}

std::vector<fit_sample> read_samples(const std::string& csv, int hosts, const sim::cores& on) {
    std::vector<fit_sample> all;
    std::stringstream lines(csv);
    for (std::string line; std::getline(lines, line);) {
        std::vector<std::string> words;
        std::stringstream rest(line);
        for (std::string word; std::getline(rest, word, ',');) words.push_back(word);
        if (words.size() < 7) throw std::runtime_error("'" + line + "' is no line of collx_perf --csv.");
        const auto op = parse_operation(words[0]);
        if (!op) continue; // the line of names
        fit_sample s;
        s.op = *op;
        s.bytes = std::strtoull(words[1].c_str(), nullptr, 10);
        s.where = {std::atoi(words[2].c_str()), hosts};
        s.at.measured_ns = std::strtod(words[6].c_str(), nullptr) * 1e3;
        if (s.where.ranks < 1 || !(s.at.measured_ns > 0))
            throw std::runtime_error("'" + line + "' has no number of ranks or no time.");
        for (std::size_t k = 15; k < std::min<std::size_t>(words.size(), 17); ++k)
            s.line_ns = std::max(s.line_ns, std::strtod(words[k].c_str(), nullptr));
        if (describe(s, on)) all.push_back(s);
    }
    return all;
}

sim::machine_costs fit_machine(std::vector<fit_sample>& samples, const sim::cores& on, const std::string& cpu) {
    sim::machine_costs m;
    m.cpu = cpu;
    m.on = on;
    m.line_ns = std::round(line_times(samples)[1]);
    for (int by = 0; by < sim::medium_count; ++by)
        for (const bool shared : {false, true}) {
            const sim::costs* const sockets = m.find(sim::medium::sockets, shared);
            if (static_cast<sim::medium>(by) == sim::medium::mixed && sockets == nullptr) continue;
            std::vector<fitted_point> points;
            for (fit_sample& s : samples) {
                if (static_cast<int>(s.by) != by || (s.where.ranks > on.count) != shared) continue;
                if (s.where.is_crowded()) s.at.known_ns = sim::predicted_ns(s.between, *sockets);
                if (s.is_fitted) points.push_back(s.at);
            }
            if (points.size() < sim::term_count) continue; // fewer points than costs
            m.of[by][shared] = fit(points);
            m.has[by][shared] = true;
        }
    return m;
}

std::string residuals_text(const std::vector<fit_sample>& samples, const sim::machine_costs& m) {
    std::string text = "error of              fitted points                   held out\n"
                       "predictions      points   median    90 %     points   median    90 %\n";
    std::vector<double> all[2];
    for (int by = 0; by < sim::medium_count; ++by)
        for (const bool shared : {false, true}) {
            const sim::costs* const c = m.find(static_cast<sim::medium>(by), shared);
            std::vector<double> errors[2];
            for (const fit_sample& s : samples)
                if (c != nullptr && static_cast<int>(s.by) == by && (s.where.ranks > m.on.count) == shared)
                    errors[!s.is_fitted].push_back(error_of(s.at, *c));
            for (int k = 0; k < 2; ++k) all[k].insert(all[k].end(), errors[k].begin(), errors[k].end());
            if (c != nullptr)
                text += line_of(std::string(name_of(static_cast<sim::medium>(by))) + (shared ? ", shared" : ", own"),
                                errors[0], errors[1]);
        }
    return text + line_of("all", all[0], all[1]);
}

int run_fit(const options& o, int cores) {
    require_writable(o.fit);
    const sim::cores on = sim::these_cores(cores);
    std::vector<fit_sample> all;
    const auto add = [&](const auto& places, bool in_design) {
        for (const placement& where : places)
            if (is_asked_for(o, where)) add_points(all, o, where, in_design, on);
    };
    add(design_memory, true);
    add(design_sockets, true);
    add(design_hosts, true);
    if (o.fit_grid) add(more_for_grid, false);
    const sim::machine_costs m = fit_machine(all, on, sim::name_of_this_cpu());
    std::fputs(residuals_text(all, m).c_str(), stdout);
    const auto [least, usual, most] = line_times(all);
    std::printf("a cache line took %.0f to %.0f ns from core to core, half of the time up to %.0f%s\n", least, most,
                usual, most > 2 * least ? ": the machine changed meanwhile, so better fit again" : "");
    write_text_file(o.fit, to_text(m));
    std::printf("%s: written; COLLX_MACHINE=%s lets collx::explain predict times\n", o.fit.c_str(), o.fit.c_str());
    return 0;
}

} // namespace collx::tools::perf
