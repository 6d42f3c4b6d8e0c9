// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of docs/verbs.md, made from the table of verbs by which calls are checked.
#pragma once

#include <string>

#include <collx/call/verb_table.hpp>

namespace collx::tools {

inline std::string shape_in_words(collx::detail::extent e) {
    switch (e) {
        case collx::detail::extent::none: return "–";
        case collx::detail::extent::whole: return "m";
        case collx::detail::extent::part: return "one part, m";
        case collx::detail::extent::parts: return "a part for each rank, n m";
        case collx::detail::extent::sources: return "a part for each source";
        case collx::detail::extent::destinations: return "a part for each destination";
    }
    return {};
}
inline std::string in_place_in_words(const collx::detail::verb_row& r) {
    const std::string one = r.takes_two ? "one buffer or two" : "one buffer";
    if (r.place == collx::detail::in_place::never)
        return r.takes_two ? "two buffers" : r.takes_one ? "one buffer" : "–";
    if (!r.takes_one) return "two buffers; the part may lie at its place in the other";
    if (r.place == collx::detail::in_place::own_part) return one + ", the part at this rank's place";
    if (r.place == collx::detail::in_place::copied) return "one buffer, whose contents are copied first, or two";
    return one;
}
inline std::string counts_in_words(const collx::detail::verb_row& r) {
    switch (r.counts) {
        case collx::detail::counts_known_by::none:
            return r.in == collx::detail::extent::none && r.out == r.in ? "–" : "m";
        case collx::detail::counts_known_by::alike: return "one for each rank, the same table on all";
        case collx::detail::counts_known_by::root: return "one for each rank, the root's table";
        case collx::detail::counts_known_by::own:
            return r.out == collx::detail::extent::sources ? "one for each neighbour"
                                                           : "one for each rank, a rank's own";
    }
    return {};
}
inline std::string agreed_in_words(const collx::detail::verb_row& r) {
    const bool has_edges = r.out == collx::detail::extent::sources;
    if (has_edges) return "the call, the element type; of an edge both ends the count";
    if (r.is_message()) return "the two ranks: element type, count";
    std::string s = "the call";
    if (r.in == collx::detail::extent::none) return s;
    s += ", the element type";
    if (r.reduces()) s += ", the operator";
    if (r.is_rooted()) s += ", the root";
    if (r.counts == collx::detail::counts_known_by::none) s += ", m";
    else if (r.counts == collx::detail::counts_known_by::alike) s += ", the table";
    else s += "; of two ranks the count between them";
    return s;
}
inline std::string buffer_in_words(const collx::detail::verb_row& r, bool output) {
    const std::string s = shape_in_words(output ? r.out : r.in);
    return s + (r.root_only == (output ? collx::detail::at_root::output : collx::detail::at_root::input)
                    ? "; the root's"
                    : "");
}

inline std::string verbs_table() {
    std::string t = "| verb | input | output | buffers | counts | order of operands | alike on all ranks |\n"
                    "|---|---|---|---|---|---|---|\n";
    for (const collx::detail::verb_row& r : collx::detail::verb_rows)
        t += "| `" + std::string(r.name) + "` | " + buffer_in_words(r, false) + " | " + buffer_in_words(r, true) +
             " | " + in_place_in_words(r) + " | " + counts_in_words(r) + " | " + (r.reduces() ? "rank order" : "–") +
             " | " + agreed_in_words(r) + " |\n";
    return t;
}

} // namespace collx::tools
