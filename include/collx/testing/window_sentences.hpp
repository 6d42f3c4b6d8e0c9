// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Describes a record of windows: both accesses of a race with ranks, bytes and lines of the program, and the signal
// that is missing.
#pragma once

#include <string>

#include <collx/testing/window_races.hpp>

COLLX_BEGIN_NAMESPACE
namespace testing {

namespace detail {

inline const char* word_of(window_use::kind k) {
    constexpr const char* words[] = {"load",   "store", "put",   "get",          "accumulate", "fetch",
                                     "signal", "wait",  "flush", "flush of all", "fence",      "meeting"};
    return words[static_cast<int>(k)];
}
inline std::string number(std::size_t n) { return std::to_string(n); }
inline std::string name_of_rank(int r) { return "rank " + std::to_string(r); }
// "rank 1's load of bytes 0 to 7 (halo.cpp:12)"
inline std::string use_text(const window_uses& uses, const window_use_at& which) {
    const window_use& u = uses.of(which.rank)[which.number];
    std::string text = name_of_rank(which.rank) + "'s " + (u.travels ? "put with its signal" : word_of(u.what));
    if (is_access(u.what)) text += " of bytes " + number(u.at) + " to " + number(u.at + u.bytes - 1);
    const std::string file = u.from.file;
    if (u.from.line != 0)
        text += " (" + file.substr(file.rfind('/') + 1) + ":" + std::to_string(u.from.line) + ")"; // npos + 1 is 0
    return text;
}
inline std::string starved_text(const window_uses& uses, const window_race& x) {
    const window_use& u = uses.of(x.second.rank)[x.second.number];
    if (u.what != window_use::kind::wait) return use_text(uses, x.second) + " is one that not all ranks come to";
    return use_text(uses, x.second) + " asks for more signals than " + name_of_rank(u.peer) +
           " gives before it waits itself, " + number(x.signal) + " in all";
}
// The remedy that would order the second use after the first.
inline std::string remedy_text(const window_uses& uses, const window_race& x) {
    const window_use& first = uses.of(x.first.rank)[x.first.number];
    const std::string a = name_of_rank(x.first.rank), b = name_of_rank(x.second.rank), part = name_of_rank(first.peer);
    switch (x.why) {
        case window_race::cause::unwaited:
            return a + " gives signal " + number(x.signal) + " to " + b + " after its " + word_of(first.what) + ": " +
                   b + " must wait for it first";
        case window_race::cause::unflushed:
            return b + " has heard of it, but the " + word_of(first.what) + " may be on its way to " + part +
                   ": a flush of " + a + " must come before its signal";
        case window_race::cause::travels:
            return "it is stored when " + part + " waits for its signal: until " + a + " or " + b +
                   " hears of that, no rank touches the place";
        case window_race::cause::operators:
            return "they are atomic to each other, but with two operators the result depends on which comes first: a "
                   "signal from " +
                   a + " to " + b + " must say";
        default:
            if (x.signal == 0)
                return a + " must give " + b + " a signal after its " + word_of(first.what) + ", and gives none";
            return a + " must give " + b + " a signal after its " + word_of(first.what) + ": its last to it, signal " +
                   number(x.signal) + ", comes before";
    }
}

} // namespace detail

// Describes one race.
inline std::string sentence(const window_uses& uses, const window_race& x) {
    const window_use& u = uses.of(x.second.rank)[x.second.number];
    if (x.why == window_race::cause::starved)
        return "window " + std::to_string(u.window) + ": " + detail::starved_text(uses, x);
    return "window " + std::to_string(u.window) + ", part of rank " + std::to_string(u.peer) + ": " +
           detail::use_text(uses, x.first) + " and " + detail::use_text(uses, x.second) + " are not ordered; " +
           detail::remedy_text(uses, x);
}
// Describes all races of a record, a line each; empty if there are none.
inline std::string sentences(const window_uses& uses) {
    std::string text;
    for (const window_race& x : races_of(uses)) text += sentence(uses, x) + '\n';
    return text;
}

} // namespace testing
COLLX_END_NAMESPACE
