// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The costs of calls on a machine, as a file. collx_perf --fit writes it, explanations read it. Lines of words:
//
//   collx-machine 1
//   cpu AMD EPYC
//   cores 2
//   l2_bytes 1048576
//   last_bytes 33554432
//   line_ns 38
//   windows own points 37 residual 0.09 call_ns 120 round_ns 60 ...
//
// line_ns: the time of a cache line from core to core during the measurement, because virtual machines move their
// cores about. There is one line for each medium, for ranks with their own cores and for ranks that share cores. A
// cost that is not named is 0. Empty lines and lines that begin with # are ignored.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <collx/core/decimal.hpp>
#include <collx/core/error.hpp>
#include <collx/core/regular_file.hpp>
#include <collx/core/shared_cache.hpp>
#include <collx/sim/call_costs.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// The contents of a machine file: the costs of calls on a CPU, as collx_perf --fit has measured them.
struct machine_costs {
    std::string cpu; // its name
    cores on;
    costs of[medium_count][2]; // by medium; 1: where ranks share cores
    bool has[medium_count][2] = {};
    double line_ns = 0;               // of a cache line between two cores during the measurement; 0: not given
    int cpu_line = 0, cores_line = 0; // line numbers in the file

    const costs* find(medium by, bool shares_cores) const {
        return has[static_cast<int>(by)][shares_cores] ? &of[static_cast<int>(by)][shares_cores] : nullptr;
    }
};

// The size of the largest machine file.
inline constexpr std::size_t most_machine_bytes = 64 * 1024;

namespace detail {

class machine_reader {
public:
    explicit machine_reader(const std::string& file) : file_(file) {}

    machine_costs read(const std::string& text) {
        if (text.size() > most_machine_bytes) wrong("a file this long", "collx_perf --fit writes a few lines");
        bool is_first = true;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            std::string rest = text.substr(at, end - at);
            at = end + 1;
            ++line_;
            if (rest.empty() || rest[0] == '#') continue;
            if (is_first && rest != "collx-machine 1") wrong("not a machine file", "it begins with: collx-machine 1");
            if (!is_first) add(rest);
            is_first = false;
        }
        if (is_first) wrong("an empty file", "write one with collx_perf --fit FILE");
        if (m_.cpu.empty()) wrong("no line 'cpu'", "name the processor that was measured");
        if (m_.cores_line == 0) wrong("no line 'cores'", "say how many cores the ranks share");
        return m_;
    }

private:
    [[noreturn]] void wrong(const std::string& what, const char* remedy) const {
        fail(errc::invalid_argument, -1, -1, remedy, "%.150s:%d: %.150s", file_.c_str(), line_, what.c_str());
    }
    static std::string word(std::string& rest) {
        const std::size_t from = std::min(rest.find_first_not_of(' '), rest.size());
        const std::size_t to = std::min(rest.find(' ', from), rest.size());
        std::string w = rest.substr(from, to - from);
        rest.erase(0, to);
        return w;
    }
    double number(const std::string& key, const std::string& text, double least) const {
        double v = 0;
        if (!collx::detail::read_decimal(text, v) || !std::isfinite(v))
            wrong(key + " is no number: " + text, "give a number");
        if (v < least) wrong(key + " is " + text, least > 0 ? "give more than 0" : "give 0 or more");
        if (v > most_number) wrong(key + " is " + text, "give a number that a machine has");
        return v;
    }
    void add(std::string& rest) {
        const std::string key = word(rest);
        for (const char* once : {"cores", "l2_bytes", "last_bytes", "line_ns"})
            if (key == once && seen_.find(" " + key + " ") != std::string::npos)
                wrong(key + " comes twice", "leave one of the two");
        seen_ += " " + key + " ";
        if (key == "cpu") {
            if (!m_.cpu.empty()) wrong("cpu comes twice", "leave one of the two");
            m_.cpu = rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
            m_.cpu.erase(m_.cpu.find_last_not_of(' ') + 1);
            if (m_.cpu.empty()) wrong("cpu without a name", "name the processor that was measured");
            m_.cpu_line = line_;
        } else if (key == "cores") {
            m_.on.count = static_cast<int>(alone(key, rest, 1, 1 << 20));
            m_.cores_line = line_;
        } else if (key == "l2_bytes") {
            m_.on.l2_bytes = static_cast<std::size_t>(alone(key, rest, 1, 1e15));
        } else if (key == "line_ns") {
            m_.line_ns = number(key, word(rest), 0);
            if (!word(rest).empty()) wrong(key + " has more than a number", "write one number");
        } else if (key == "last_bytes") {
            m_.on.last_bytes = static_cast<std::size_t>(alone(key, rest, 1, 1e15));
        } else {
            add_costs(key, rest);
        }
    }
    double alone(const std::string& key, std::string& rest, double least, double most) const {
        const double v = number(key, word(rest), least);
        if (v > most || v != std::floor(v)) wrong(key + " is no such number", "give a whole number that a machine has");
        if (!word(rest).empty()) wrong(key + " has more than a number", "write one number");
        return v;
    }
    void add_costs(const std::string& key, std::string& rest) {
        int by = 0;
        while (by < medium_count && key != name_of(static_cast<medium>(by))) ++by;
        if (by == medium_count)
            wrong("unknown word '" + key + "'", "lines begin with cpu, cores, windows, channels, ...");
        const std::string whose = word(rest);
        if (whose != "own" && whose != "shared") wrong(key + " " + whose, "say own or shared: whose the cores are");
        costs& c = m_.of[by][whose == "shared"];
        bool& has = m_.has[by][whose == "shared"];
        if (has) wrong(key + " " + whose + " comes twice", "leave one of the two");
        has = true;
        bool seen[term_count] = {}, has_points = false, has_residual = false;
        const auto once = [&](bool& there, const std::string& name) {
            if (std::exchange(there, true)) wrong(name + " comes twice", "leave one of the two");
        };
        for (std::string name = word(rest); !name.empty(); name = word(rest)) {
            const double v = number(name, word(rest), 0);
            int t = 0;
            while (t < term_count && name != name_of(static_cast<term>(t))) ++t;
            if (name == "points") {
                once(has_points, name);
                c.points = static_cast<int>(std::min(v, 1e9));
            } else if (name == "residual") {
                once(has_residual, name);
                c.residual = v;
            } else if (t == term_count) wrong("unknown cost '" + name + "'", "call_ns, round_ns, byte_ns, ...");
            else {
                once(seen[t], name);
                c.of[t] = v;
            }
        }
        if (std::none_of(seen, seen + term_count, [](bool x) { return x; }))
            wrong(key + " " + whose + " names no cost", "call_ns, round_ns, byte_ns, ...");
    }

    static constexpr double most_number = 1e15;

    const std::string& file_;
    machine_costs m_;
    std::string seen_; // the first words of the lines so far
    int line_ = 0;
};

} // namespace detail

// Reads the text of a machine file. Errors: invalid_argument as "FILE:LINE: what (remedy)": another kind of file, an
// unknown or repeated word, a number that is negative, not finite or malformed.
inline machine_costs read_machine_costs(const std::string& text, const std::string& file = "machine") {
    return detail::machine_reader(file).read(text);
}

// Formats as printf's %.<digits>g in the C locale, whatever the program's locale is.
inline std::string number_text(double v, int digits) {
    char room[32];
    return std::string(room, std::to_chars(room, room + sizeof room, v, std::chars_format::general, digits).ptr);
}

// The text of a machine file.
inline std::string to_text(const machine_costs& m) {
    std::string text = "collx-machine 1\ncpu " + m.cpu + "\ncores " + std::to_string(m.on.count) + "\nl2_bytes " +
                       std::to_string(m.on.l2_bytes) + "\nlast_bytes " + std::to_string(m.on.last_bytes) + "\n";
    if (m.line_ns > 0) text += "line_ns " + number_text(m.line_ns, 6) + "\n";
    for (int by = 0; by < medium_count; ++by)
        for (const bool shared : {false, true}) {
            const costs* const c = m.find(static_cast<medium>(by), shared);
            if (c == nullptr) continue;
            text += std::string(name_of(static_cast<medium>(by))) + (shared ? " shared" : " own") + " points " +
                    std::to_string(c->points) + " residual " + number_text(c->residual, 3);
            for (int t = 0; t < term_count; ++t)
                text += std::string(" ") + name_of(static_cast<term>(t)) + " " + number_text(c->of[t], 6);
            text += "\n";
        }
    return text;
}

// Reads a machine file. Errors: environment if it cannot be read, else as read_machine_costs().
inline machine_costs read_machine_file(const std::string& file) {
    std::string text;
    if (const char* why = collx::detail::read_regular_file(file.c_str(), most_machine_bytes + 1, text))
        fail(errc::environment, -1, -1, "write one with collx_perf --fit FILE", "%.200s: %s", file.c_str(), why);
    return read_machine_costs(text, file);
}

// The processor's name as the system reports it, else "unknown".
inline std::string name_of_this_cpu() {
    std::FILE* const f = std::fopen("/proc/cpuinfo", "re");
    std::string name = "unknown";
    char line[512];
    while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr)
        if (std::strncmp(line, "model name", 10) == 0 && std::strchr(line, ':') != nullptr) {
            name = std::strchr(line, ':') + 1;
            name.erase(0, std::min(name.find_first_not_of(" \t"), name.size()));
            while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
            break;
        }
    if (f != nullptr) std::fclose(f);
    return name.empty() ? "unknown" : name;
}
inline cores these_cores(int count) {
    cores c{.count = count};
    if (const long l2 = ::sysconf(_SC_LEVEL2_CACHE_SIZE); l2 > 0) c.l2_bytes = static_cast<std::size_t>(l2);
    if (collx::detail::shared_cache_bytes != 0) c.last_bytes = collx::detail::shared_cache_bytes;
    return c;
}

// Errors: mismatch as "FILE:LINE: what (remedy)" if it was measured on another processor, or with other cores.
inline void require_this_machine(const machine_costs& m, const std::string& cpu, int core_count,
                                 const std::string& file = "machine") {
    constexpr const char* remedy = "run collx_perf --fit FILE on this machine";
    if (m.cpu != cpu)
        fail(errc::mismatch, -1, -1, remedy, "%.120s:%d: measured on '%.100s', and this is '%.100s'", file.c_str(),
             m.cpu_line, m.cpu.c_str(), cpu.c_str());
    if (m.on.count != core_count)
        fail(errc::mismatch, -1, -1, remedy, "%.120s:%d: measured with %d cores, and here are %d", file.c_str(),
             m.cores_line, m.on.count, core_count);
}

} // namespace sim
COLLX_END_NAMESPACE
