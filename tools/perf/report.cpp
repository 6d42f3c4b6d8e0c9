// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text, CSV, JSON and HTML of a run.
#include "report.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <limits>
#include <map>

#include "support/format.hpp"
#include "support/html_report.hpp"

namespace collx::tools::perf {

namespace {

[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

const char* operator_name(const run_report& report, operation op) {
    return reduces(op) ? name_of(report.run.how) : "none";
}

double average_bus_bandwidth(const run_report& report) {
    double sum = 0;
    for (const auto& r : report.results) sum += r.busbw;
    return report.results.empty() ? 0 : sum / static_cast<double>(report.results.size());
}
std::uint64_t wrong_elements(const run_report& report) {
    std::uint64_t sum = 0;
    for (const auto& r : report.results) sum += r.wrong;
    return sum;
}
// The measured times of a cache line, from the nearest cores to the farthest.
std::string line_range_text(const run_report& report) {
    double least = std::numeric_limits<double>::quiet_NaN(), most = least;
    for (const auto& r : report.results)
        for (const double ns : {r.t.line_at_start_ns, r.t.line_at_end_ns}) {
            least = std::fmin(least, ns);
            most = std::fmax(most, ns);
        }
    return report.results.empty() ? "not measured"
           : std::isnan(least)    ? "not measured, no two ranks had cores of their own"
                                  : formatted("%.0f to %.0f ns", least, most);
}
// A barrier has nothing to check, whatever -c says.
bool is_checked(const run_report& report) {
    return std::any_of(report.results.begin(), report.results.end(), [](const result& r) { return r.checked; });
}

std::string ranks_text(const run_report& report) {
    std::string text = std::to_string(report.ranks) + (report.run.threads ? " threads (" : " processes (") +
                       report.transport() + ") on " + std::to_string(report.cores) +
                       (report.cores == 1 ? " core" : " cores");
    if (report.ranks > report.cores) text += ", more ranks than cores";
    else if (report.pinned) text += ", each on a core of its own";
    return text;
}

// 12.34 below a thousand, then fewer decimals, so that the column keeps its width.
std::string time_text(double us) {
    return us < 1000 ? fixed_text(us, 2) : us < 100'000 ? fixed_text(us, 1) : fixed_text(us, 0);
}

std::string half_line(const result* r) {
    if (r == nullptr) return formatted("  %8s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
    const std::string wrong = r->checked ? std::to_string(r->wrong) : "N/A";
    return formatted("  %8s %7.2f %7.2f %6s", time_text(r->t.us.median).c_str(), r->algbw, r->busbw, wrong.c_str());
}

} // namespace

std::string csv_line(const run_report& report, const result& r) {
    std::string line = csv_text({.op = r.op,
                                 .bytes = r.bytes,
                                 .ranks = report.ranks,
                                 .transport = report.transport(),
                                 .peer = "collx",
                                 .variant = variant_of(report.run, r.algorithm),
                                 .in_place = r.in_place,
                                 .t = r.t});
    if (report.run.predict.empty()) return line;
    line.pop_back();
    return line + "," + (std::isnan(r.predicted_us) ? "" : fixed_text(r.predicted_us, 3)) + "\n";
}

std::string text_header(const run_report& report) {
    const operation op = report.run.operations.front();
    std::string out =
        "# collx " COLLX_VERSION_STRING " " + std::string(long_name(op)) + ": " + ranks_text(report) + "\n";
    out += "# " + variant_of(report.run) + "; time is the median of samples of at least " +
           number_text(report.run.sample_us) + " us; GB/s is 1e9 bytes/s";
    if (is_rooted(op) && report.run.root < 0) out += "; root -1: another one in every call";
    out += "\n";
#ifndef NDEBUG
    out += "# This is a debug build: its times say nothing about collx.\n";
#endif
    out += "#\n";
    out += formatted("# %10s  %12s  %8s  %6s  %6s  %31s  %31s\n", "", "", "", "", "", "out-of-place          ",
                     "in-place            ");
    out += formatted("# %10s  %12s  %8s  %6s  %6s  %8s %7s %7s %6s  %8s %7s %7s %6s\n", "size", "count", "type",
                     "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    out += formatted("# %10s  %12s  %8s  %6s  %6s  %8s %7s %7s %6s  %8s %7s %7s %6s\n", "(B)", "(elements)", "", "", "",
                     "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
    return out;
}

std::string text_line(const run_report& report, const result* out_of_place, const result* in_place) {
    const result& any = out_of_place != nullptr ? *out_of_place : *in_place;
    const int root = is_rooted(any.op) ? report.run.root : -1;
    return formatted("%12zu  %12zu  %8s  %6s  %6d", any.bytes, any.count, name_of(report.run.type),
                     operator_name(report, any.op), root) +
           half_line(out_of_place) + half_line(in_place) + "\n";
}

std::string text_footer(const run_report& report) {
    const auto wrong = wrong_elements(report);
    std::string out = "# Cache line, one way  : " + line_range_text(report) + "\n";
    out += is_checked(report) ? formatted("# Out of bounds values : %llu %s\n", static_cast<unsigned long long>(wrong),
                                          wrong == 0 ? "OK" : "FAILED")
                              : std::string("# Out of bounds values : not checked\n");
    return out + formatted("# Avg bus bandwidth    : %.4f\n#\n", average_bus_bandwidth(report));
}

std::string choice_header(const run_report& report) {
    return "# collx " COLLX_VERSION_STRING " choices: " + ranks_text(report) +
           "\n# median us of each algorithm, the fastest first; default is what the library chooses" +
           (report.run.predict.empty() ? "\n" : "; in brackets what was predicted\n");
}

std::string choice_line(const std::vector<result>& in_turn) {
    std::vector<const result*> by_time;
    for (const result& r : in_turn) by_time.push_back(&r);
    std::stable_sort(by_time.begin(), by_time.end(),
                     [](const result* a, const result* b) { return a->t.us.median < b->t.us.median; });
    const result& any = in_turn.front();
    std::string out = formatted("%-15s %10s ", long_name(any.op), size_text(static_cast<double>(any.bytes)).c_str());
    for (const result* r : by_time) {
        out += "  " + (r->algorithm.empty() ? std::string("default") : r->algorithm) + " " + time_text(r->t.us.median);
        if (!std::isnan(r->predicted_us)) out += " (" + time_text(r->predicted_us) + ")";
    }
    return out + "\n";
}

std::string choice_footer(const run_report& report, const std::vector<std::vector<result>>& points) {
    std::size_t near = 0;
    std::vector<double> errors; // of choices
    for (const auto& in_turn : points) {
        const result& choice = in_turn.front();
        double fastest = choice.t.us.median;
        for (const result& r : in_turn) fastest = std::min(fastest, r.t.us.median);
        near += choice.t.us.median <= 1.1 * fastest;
        if (!std::isnan(choice.predicted_us)) errors.push_back(std::fabs(choice.predicted_us / choice.t.us.median - 1));
    }
    std::string out;
    if (report.run.every_algorithm)
        out +=
            formatted("# The library's choice took at most 1.10 times the fastest one's time at %zu of %zu points.\n",
                      near, points.size());
    if (report.run.predict.empty()) return out;
    std::sort(errors.begin(), errors.end());
    if (!errors.empty())
        out += formatted("# Predictions of the choice: median error %.1f %%, nine of ten within %.1f %%.\n",
                         100 * median_of_sorted(errors), 100 * percentile_of_sorted(errors, 0.9));
    return out + formatted("# Not predicted: %zu of %zu points.\n", points.size() - errors.size(), points.size());
}

std::string json_text(const run_report& report) {
    using json = nlohmann::ordered_json;
    json config = {{"ranks", report.ranks},
                   {"transport", report.transport()},
                   {"cores", report.cores},
                   {"pinned", report.pinned},
                   {"algo", variant_of(report.run)},
                   {"sample_us", report.run.sample_us},
                   {"budget_ms", report.run.budget_ms}};
    std::map<std::pair<int, std::size_t>, std::size_t> line_of;
    json lines = json::array();
    for (const auto& r : report.results) {
        const auto [at, is_new] = line_of.try_emplace({static_cast<int>(r.op), r.bytes}, lines.size());
        if (is_new)
            lines.push_back({{"op", long_name(r.op)},
                             {"size", r.bytes},
                             {"count", r.count},
                             {"type", name_of(report.run.type)},
                             {"redop", operator_name(report, r.op)},
                             {"root", is_rooted(r.op) ? report.run.root : -1}});
        json place = {{"time", r.t.us.median},
                      {"alg_bw", r.algbw},
                      {"bus_bw", r.busbw},
                      {"nwrong", r.checked ? json(r.wrong) : json(nullptr)}};
        place["collx"] = {{"min", r.t.us.min},
                          {"p25", r.t.us.lower_quartile},
                          {"p95", r.t.us.p95},
                          {"p99", r.t.us.p99},
                          {"max", r.t.us.max},
                          {"mean", r.t.us.mean},
                          {"cv", r.t.us.cv},
                          {"batch", r.t.batch},
                          {"samples", r.t.samples},
                          {"line_at_start_ns", r.t.line_at_start_ns},
                          {"line_at_end_ns", r.t.line_at_end_ns}};
        lines[at->second][r.in_place ? "in_place" : "out_of_place"] = place;
    }
    const auto wrong = wrong_elements(report);
    const json all = {{"tool", "collx_perf"},
                      {"version", COLLX_VERSION_STRING},
                      {"config", config},
                      {"results", lines},
                      {"out_of_bounds",
                       {{"count", is_checked(report) ? json(wrong) : json(nullptr)},
                        {"okay", is_checked(report) ? json(wrong == 0) : json(nullptr)}}},
                      {"average_bus_bandwidth", {{"bandwidth", average_bus_bandwidth(report)}}}};
    return all.dump(2) + "\n";
}

namespace {

void add_operation(html_report& page, const run_report& report, operation op) {
    series time[2] = {{"out of place"}, {"in place", {}, true}}, bus[2] = {{"out of place"}, {"in place", {}, true}};
    table numbers{{{"size"},
                   {"place", align::left},
                   {"median"},
                   {"p95"},
                   {"least"},
                   {"noise"},
                   {"algbw GB/s"},
                   {"busbw GB/s"},
                   {"wrong"}},
                  {}};
    for (const auto& r : report.results) {
        if (r.op != op) continue;
        const auto bytes = static_cast<double>(r.bytes);
        time[r.in_place].points.push_back({bytes, r.t.us.median});
        bus[r.in_place].points.push_back({bytes, r.busbw});
        numbers.add({size_text(bytes), r.in_place ? "in" : "out", duration_text(r.t.us.median * 1e3),
                     duration_text(r.t.us.p95 * 1e3), duration_text(r.t.us.min * 1e3),
                     number_text(r.t.us.cv * 100) + " %", fixed_text(r.algbw, 3), fixed_text(r.busbw, 3),
                     r.checked ? std::to_string(r.wrong) : "-"});
    }
    page.section(long_name(op));
    if (op != operation::barrier) {
        auto times = size_chart(std::string(long_name(op)) + ": time of a call", "median time of a call",
                                axis_unit::microseconds);
        auto rates = size_chart(std::string(long_name(op)) + ": bus bandwidth", "bus bandwidth",
                                axis_unit::gigabytes_per_second);
        for (int k = 0; k < 2; ++k) {
            if (time[k].points.empty()) continue;
            times.lines.push_back(time[k]);
            rates.lines.push_back(bus[k]);
        }
        page.add(times);
        page.add(rates);
    }
    page.add(numbers);
}

} // namespace

std::string html_text(const run_report& report) {
    html_report page("collx_perf", ranks_text(report));
    page.facts({{"version", COLLX_VERSION_STRING},
                {"ranks", ranks_text(report)},
                {"variant", variant_of(report.run)},
                {"element", name_of(report.run.type)},
                {"operator", name_of(report.run.how)},
                {"checked", is_checked(report) ? "every element of every rank" : "no"},
                {"sample", "at least " + number_text(report.run.sample_us) +
                               " us between two barriers, latest end less earliest start"}});
    std::vector<operation> shown;
    for (const auto& r : report.results)
        if (std::find(shown.begin(), shown.end(), r.op) == shown.end()) shown.push_back(r.op);
    for (operation op : shown) add_operation(page, report, op);
    page.footer("Bus bandwidth is algorithm bandwidth times the factor of nccl-tests; GB/s is 1e9 bytes per second.");
    return page.str();
}

std::string list_text() {
    std::string out;
    for (int k = 0; k < operation_count; ++k) {
        const auto op = operation(k);
        std::string line = formatted("%-15s", long_name(op));
        for (const auto& name : algorithm_names(op)) line += " " + name;
        out += line + "\n";
    }
    return out + "\nThe words after an operation are its algorithms, for --algo (float, sum). Without it the library "
                 "chooses.\n";
}

} // namespace collx::tools::perf
