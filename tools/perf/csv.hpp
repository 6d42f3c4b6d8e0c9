// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CSV lines by which collx and other libraries are compared: one writer, so that columns cannot drift apart.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include "operation.hpp"
#include "sampling.hpp"
#include "support/stats.hpp"

namespace collx::tools::perf {

inline std::string csv_header() {
    return "op,bytes,ranks,transport,peer,algo,median_us,p95_us,algbw_GBps,busbw_GBps,place,batch,samples,min_us,p25_"
           "us,"
           "line_at_start_ns,line_at_end_ns\n";
}

struct csv_row {
    operation op;
    std::size_t bytes;
    int ranks;
    std::string transport, peer, variant;
    bool in_place;
    timing t;
};

// A column without a value is empty.
inline std::string line_text(double ns) {
    char text[32] = "";
    if (!std::isnan(ns)) std::snprintf(text, sizeof text, "%.1f", ns);
    return text;
}

inline std::string csv_text(const csv_row& r) {
    const summary& us = r.t.us;
    const double algbw = static_cast<double>(r.bytes) / us.median / 1e3; // GB/s
    char numbers[256];
    std::snprintf(numbers, sizeof numbers, "%.3f,%.3f,%.4f,%.4f,%s,%d,%d,%.3f,%.3f,", us.median, us.p95, algbw,
                  algbw * bus_factor(r.op, r.ranks), r.in_place ? "in" : "out", r.t.batch, r.t.samples, us.min,
                  us.lower_quartile);
    return std::string(short_name(r.op)) + "," + std::to_string(r.bytes) + "," + std::to_string(r.ranks) + "," +
           r.transport + "," + r.peer + "," + r.variant + "," + numbers + line_text(r.t.line_at_start_ns) + "," +
           line_text(r.t.line_at_end_ns) + "\n";
}

} // namespace collx::tools::perf
