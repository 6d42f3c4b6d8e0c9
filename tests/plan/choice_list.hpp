// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The choices as text, for each collective, venue, kind of call and number of ranks: the names and the size up to
// which each is chosen, on a grid of sizes on and off the powers of two.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <collx/plan/choose.hpp>

namespace collx_test {

inline std::vector<std::size_t> sizes() {
    std::vector<std::size_t> all{0, 1};
    for (std::size_t b = 2; b <= std::size_t{64} << 20; b *= 2)
        for (const std::size_t near : {b - 1, b, b + 1, b + b / 3})
            if (near > all.back()) all.push_back(near);
    return all;
}

// "one_shot 16384 two_shot": one_shot up to 16384 bytes, then two_shot.
template <class NameAt>
std::string by_size(const NameAt& name_at) {
    std::string text, last;
    std::size_t before = 0;
    for (const std::size_t bytes : sizes()) {
        const std::string name = name_at(bytes);
        if (name != last) text += (text.empty() ? "" : " " + std::to_string(before) + " ") + name;
        last = name;
        before = bytes;
    }
    return text;
}

inline std::string in_words(collx::choices::venue p, const collx::choices::situation& s) {
    namespace choices = collx::choices;
    std::string text = p == choices::memory ? "memory" : p == choices::channels ? "channels" : "hosts";
    if (p == choices::memory) text += s.zero_copy ? " zero_copy" : "";
    if (p == choices::memory) text += s.oversubscribed ? " oversubscribed" : "";
    if (p == choices::memory) text += s.may_copy_once ? " single_copies" : "";
    text += s.serial ? " serial" : s.ordered ? " ordered" : "";
    if (p == choices::hosts) text += " " + std::to_string(s.hosts) + " of up to " + std::to_string(s.largest_host);
    return text;
}

// Calls f(venue, situation without its bytes) for each situation.
template <class F>
void for_each_situation(collx::collective c, F&& f) {
    namespace choices = collx::choices;
    for (const bool zero_copy : {false, true})
        for (const bool oversubscribed : {false, true})
            for (const bool single_copies : {false, true})
                for (int n = 1; n <= 64; ++n)
                    f(choices::memory, choices::situation{.ranks = n,
                                                          .zero_copy = zero_copy,
                                                          .oversubscribed = oversubscribed,
                                                          .may_copy_once = single_copies});
    for (const int order : {0, 1, 2}) {
        if (order > 0 && !collx::reduces(c)) continue;
        const choices::situation of{.ordered = order > 0, .serial = order == 2};
        for (int n = 1; n <= 64; ++n) {
            choices::situation s = of;
            s.ranks = n;
            f(choices::channels, s);
        }
        for (const int on_each : {2, 5})
            for (const int hosts : {2, 8, 9}) {
                choices::situation s = of;
                s.ranks = on_each * hosts;
                s.hosts = hosts;
                s.largest_host = on_each;
                f(choices::hosts, s);
            }
    }
}

// Consecutive numbers of ranks with the same choices share a line.
template <class NameAt>
std::string list_choices(collx::collective c, const NameAt& name_at) {
    std::string text, line;
    int from = 0, to = 0;
    const auto flush = [&] {
        if (line.empty()) return;
        const auto bar = line.find('|');
        text += line.substr(0, bar) + ", " + std::to_string(from) +
                (to > from ? " to " + std::to_string(to) : std::string()) + " ranks: " + line.substr(bar + 1) + "\n";
    };
    for_each_situation(c, [&](collx::choices::venue p, collx::choices::situation s) {
        const std::string now = std::string(name_of(c)) + " " + in_words(p, s) + "|" + by_size([&](std::size_t bytes) {
                                    s.bytes = bytes;
                                    return name_at(p, s);
                                });
        if (now != line || s.ranks != to + 1) {
            flush();
            line = now;
            from = s.ranks;
        }
        to = s.ranks;
    });
    flush();
    return text;
}

} // namespace collx_test
