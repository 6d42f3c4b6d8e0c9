// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A separate file, because explain() records every algorithm of each collective.
#include "predict.hpp"

#include <cmath>
#include <stdexcept>

#include <collx/collx.hpp>
#include <collx/comm/explain.hpp>

namespace collx::tools::perf {

std::map<std::string, double> predicted_us(communicator& world, operation op, std::size_t bytes, bool shared,
                                           const std::string& file) {
    std::map<std::string, double> us;
    const auto ask = [&](const auto& verb) {
        const explanation e = explain(world, verb, bytes, {.shared_buffers = shared, .machine = file.c_str()});
        const bool is_known = !std::isnan(e.chosen().predicted_ns);
        if (!is_known && !e.no_times.empty() && e.no_times.find(file) != std::string::npos)
            throw std::runtime_error(e.no_times);
        for (const explanation::candidate& k : e.candidates)
            if (!std::isnan(k.predicted_ns)) us[k.name] = k.predicted_ns / 1e3;
        if (is_known) us[""] = e.chosen().predicted_ns / 1e3;
    };
    switch (op) {
        case operation::all_reduce: ask(all_reduce); break;
        case operation::reduce_scatter: ask(reduce_scatter); break;
        case operation::all_gather: ask(all_gather); break;
        case operation::broadcast: ask(broadcast); break;
        case operation::reduce: ask(reduce); break;
        case operation::all_to_all: ask(all_to_all); break;
        case operation::barrier: ask(barrier); break;
        case operation::gather: ask(gather); break;
        case operation::scatter: ask(scatter); break;
        case operation::scan: ask(scan); break;
        default: break; // one way only, and not fitted
    }
    return us;
}

} // namespace collx::tools::perf
