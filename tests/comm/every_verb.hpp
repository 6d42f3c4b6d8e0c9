// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One correct call of every verb in every mode, with its name: for tests of what no call may do.
#pragma once

#include <cstring>
#include <vector>

#include <collx/call/verb_table.hpp>

#include "support.hpp"

namespace collx_test {

// Calls visit(name, call) for each. Every call would be correct on n ranks with these numbers of elements. Returns
// the number of calls; throws if a row of the table of verbs has none.
template <class Visit>
int with_every_verb(collx::communicator& w, int n, Visit&& visit) {
    int calls = 0;
    bool has_call[collx::detail::verb_count] = {};
    const auto f = [&](const char* name, auto&& call) {
        for (const auto& row : collx::detail::verb_rows)
            if (std::strcmp(row.name, name) == 0) has_call[static_cast<int>(row.what)] = true;
        ++calls;
        visit(name, call);
    };
    const auto u = static_cast<std::size_t>(n);
    std::vector<int> all(2 * u, 1), all_out(2 * u), part(2, 1), part_out(2);
    const std::vector<int> counts(u, 2);
    f("all_reduce", [&] { collx::all_reduce(w, all); });
    f("reduce", [&] { collx::reduce(w, all, all_out); });
    f("broadcast", [&] { collx::broadcast(w, all); });
    f("all_gather", [&] { collx::all_gather(w, part, all_out); });
    f("all_gather_v", [&] { collx::all_gather_v(w, part, all_out, counts); });
    f("reduce_scatter", [&] { collx::reduce_scatter(w, all, part_out); });
    f("reduce_scatter_v", [&] { collx::reduce_scatter_v(w, all, part_out, counts); });
    f("gather", [&] { collx::gather(w, part, all_out); });
    f("gather_v", [&] { collx::gather_v(w, part, all_out, counts); });
    f("scatter", [&] { collx::scatter(w, all, part_out); });
    f("scatter_v", [&] { collx::scatter_v(w, all, part_out, counts); });
    f("all_to_all", [&] { collx::all_to_all(w, all, all_out); });
    f("all_to_all_v", [&] { collx::all_to_all_v(w, all, counts, all_out, counts); });
    f("all_to_all in place", [&] { collx::all_to_all(w, all); });
    f("all_to_all_v in place", [&] { collx::all_to_all_v(w, all, counts); });
    f("reduce_scatter_v in place", [&] { collx::reduce_scatter_v(w, all, counts); });
    f("scan", [&] { collx::scan(w, all); });
    f("exclusive_scan", [&] { collx::exclusive_scan(w, all, all_out); });
    f("barrier", [&] { collx::barrier(w); });
    f("send", [&] { collx::send(w, part, 0); });
    f("recv", [&] { collx::recv(w, part, 0); });
    f("sendrecv", [&] { collx::sendrecv(w, part, 0, part_out, 0); });
    // Every rank is its own neighbour.
    const auto self = [&] { return collx::neighbors{{w.rank()}, {w.rank()}}; };
    const std::vector<int> two{2};
    f("neighbor_all_gather", [&] { collx::neighbor_all_gather(w, self(), part, part_out); });
    f("neighbor_all_gather_v", [&] { collx::neighbor_all_gather_v(w, self(), part, part_out, two); });
    f("neighbor_all_to_all", [&] { collx::neighbor_all_to_all(w, self(), part, part_out); });
    f("neighbor_all_to_all_v", [&] { collx::neighbor_all_to_all_v(w, self(), part, two, part_out, two); });
    f("async::all_reduce", [&] { collx::async::all_reduce(w, all).wait(); });
    f("async::recv", [&] { collx::async::recv(w, part, 0).wait(); });
    f("try_::all_reduce", [&] { collx::try_::all_reduce(w, all).value(); });
    f("group", [&] {
        collx::group g(w);
        g.all_reduce(all);
        g.launch();
    });
    f("split", [&] { (void)w.split(0); });
    for (const auto& row : collx::detail::verb_rows)
        expect(has_call[static_cast<int>(row.what)], __FILE__, __LINE__, row.name, w.is_empty() ? -1 : w.rank());
    return calls;
}

} // namespace collx_test
