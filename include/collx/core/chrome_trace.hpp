// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes Chrome's trace events (chrome://tracing, Perfetto): a process for each communicator, in it a line for each
// rank. The simulator's predictions (sim/traces.hpp) and recorded runs (job/recorded_calls.hpp) both use this class, so
// that one view can show both: process 0 is the simulated machine, the others are communicators.
#pragma once

#include <cstdio>
#include <string>

#include <collx/core/decimal.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

class chrome_trace {
public:
    static constexpr int simulated = 0; // the process of predicted calls

    void name_process(int pid, const std::string& name) {
        add("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":", pid);
        text_ += quoted(name) + "}}";
    }
    void name_rank(int pid, int rank) {
        add("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"rank %d\"}}", pid, rank,
            rank);
    }
    // Adds an event that begins at begin_ns and lasts `ns`. arguments: the inside of a JSON object.
    void event(int pid, int rank, const std::string& name, double begin_ns, double ns, const std::string& arguments) {
        add("{\"ph\":\"X\",\"name\":");
        finish(name, pid, rank, begin_ns, arguments, ",\"dur\":" + detail::decimal_fixed(ns / 1e3, 6));
    }
    // The same for an event that may overlap others of its line. id: unique among those of the process.
    void overlapping(int pid, int rank, unsigned long long id, const std::string& name, double begin_ns, double ns,
                     const std::string& arguments) {
        char more[64];
        std::snprintf(more, sizeof more, ",\"cat\":\"async\",\"id\":\"%llx\"", id);
        add("{\"ph\":\"b\",\"name\":");
        finish(name, pid, rank, begin_ns, arguments, more);
        add("{\"ph\":\"e\",\"name\":");
        finish(name, pid, rank, begin_ns + ns, "", more);
    }
    std::string text() const { return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + text_ + "\n]}\n"; }

    // Quotes s as a JSON string. Characters other than printable ASCII become question marks.
    static std::string quoted(const std::string& s) {
        std::string out = "\"";
        for (const char c : s) {
            if (c == '"' || c == '\\') out += '\\';
            out += c >= ' ' && c <= '~' ? c : '?';
        }
        return out + '"';
    }

private:
    template <class... Values>
    void put(const char* format, Values... values) {
        char line[256];
        std::snprintf(line, sizeof line, format, values...);
        text_ += line;
    }
    void put(const char* plain) { text_ += plain; }
    template <class... Values>
    void add(const char* format, Values... values) {
        text_ += text_.empty() ? "\n" : ",\n";
        put(format, values...);
    }
    void finish(const std::string& name, int pid, int rank, double begin_ns, const std::string& arguments,
                const std::string& more) {
        text_ += quoted(name);
        put(",\"pid\":%d,\"tid\":%d,\"ts\":", pid, rank);
        text_ += detail::decimal_fixed(begin_ns / 1e3, 6) + more + ",\"args\":{" + arguments + "}}";
    }
    std::string text_;
};

COLLX_END_NAMESPACE
