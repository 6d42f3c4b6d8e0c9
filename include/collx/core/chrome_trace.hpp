// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chrome's trace events (chrome://tracing, Perfetto) as text: a process for each communicator, a line in it for each
// rank. What the simulator predicts (sim/traces.hpp) and what a run recorded (job/recorded_calls.hpp) are both written
// here, so that they can be laid over each other: process 0 is the simulated machine, others are communicators.
#pragma once

#include <cstdio>
#include <string>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

class chrome_trace {
public:
    static constexpr int simulated = 0; // the process of what was predicted

    void name_process(int pid, const std::string& name) {
        add("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":", pid);
        text_ += quoted(name) + "}}";
    }
    void name_rank(int pid, int rank) {
        add("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"rank %d\"}}", pid, rank,
            rank);
    }
    // From begin_ns on, for `ns`. arguments: the inside of a JSON object.
    void event(int pid, int rank, const std::string& name, double begin_ns, double ns, const std::string& arguments) {
        add("{\"ph\":\"X\",\"name\":");
        finish(name, pid, rank, begin_ns, arguments, ",\"dur\":%.6f", ns / 1e3);
    }
    // The same for what overlaps other events of its line. id: its own among those of the process.
    void overlapping(int pid, int rank, unsigned long long id, const std::string& name, double begin_ns, double ns,
                     const std::string& arguments) {
        constexpr const char* format = ",\"cat\":\"async\",\"id\":\"%llx\"";
        add("{\"ph\":\"b\",\"name\":");
        finish(name, pid, rank, begin_ns, arguments, format, id);
        add("{\"ph\":\"e\",\"name\":");
        finish(name, pid, rank, begin_ns + ns, "", format, id);
    }
    std::string text() const { return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + text_ + "\n]}\n"; }

    // A JSON string. Other than printable ASCII becomes a question mark.
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
    template <class Value>
    void finish(const std::string& name, int pid, int rank, double begin_ns, const std::string& arguments,
                const char* format, Value value) {
        text_ += quoted(name);
        put(",\"pid\":%d,\"tid\":%d,\"ts\":%.6f", pid, rank, begin_ns / 1e3);
        put(format, value);
        text_ += ",\"args\":{" + arguments + "}}";
    }
    std::string text_;
};

COLLX_END_NAMESPACE
