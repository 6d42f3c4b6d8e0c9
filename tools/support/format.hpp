// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers as people write and read them: sizes (64 KiB), durations (10 us), rates, rank lists. Printing never depends
// on the locale, so that reports and CSV files are the same everywhere. Independent of files, charts and ranks.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace collx::tools {

namespace detail {

struct unit {
    std::string_view name;
    std::uint64_t scale;
};

inline std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A decimal number taken apart so that 1.5M is computed without rounding.
struct decimal {
    std::uint64_t whole = 0;
    std::uint64_t fraction = 0;       // digits after the point
    std::uint64_t fraction_scale = 1; // 10 to the number of those digits
    std::string_view rest;            // what follows the number
};

inline decimal read_decimal(std::string_view text, std::string_view what) {
    const auto fail = [&](std::string_view why) {
        return std::invalid_argument(quoted(text) + " is not a " + std::string(what) + ": " + std::string(why));
    };
    if (text.empty()) throw fail("it is empty.");
    if (text.front() == '-') throw fail("it must not be negative.");
    if (!is_digit(text.front())) throw fail("it must begin with a digit.");
    decimal d;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), d.whole);
    if (error != std::errc{}) throw fail("the number is too large.");
    d.rest = text.substr(static_cast<std::size_t>(end - text.data()));
    if (!d.rest.starts_with('.')) return d;
    d.rest.remove_prefix(1);
    if (d.rest.empty() || !is_digit(d.rest.front())) throw fail("digits must follow the point.");
    for (int digits = 0; !d.rest.empty() && is_digit(d.rest.front()); ++digits, d.rest.remove_prefix(1)) {
        if (digits == 9) throw fail("at most nine digits may follow the point.");
        d.fraction = d.fraction * 10 + static_cast<std::uint64_t>(d.rest.front() - '0');
        d.fraction_scale *= 10;
    }
    return d;
}

// whole.fraction * scale, which must be a whole number that fits.
inline std::uint64_t scaled(const decimal& d, std::uint64_t scale, std::string_view text, std::string_view what,
                            std::string_view smallest) {
    using wide = unsigned __int128;
    const wide part = wide{d.fraction} * scale;
    if (part % d.fraction_scale != 0)
        throw std::invalid_argument(quoted(text) + " is not a " + std::string(what) + ": it is not a whole number of " +
                                    std::string(smallest) + ".");
    const wide value = wide{d.whole} * scale + part / d.fraction_scale;
    if (value > std::numeric_limits<std::uint64_t>::max())
        throw std::invalid_argument(quoted(text) + " is not a " + std::string(what) + ": the number is too large.");
    return static_cast<std::uint64_t>(value);
}

inline constexpr std::uint64_t ki = 1024;

} // namespace detail

// ---------------------------------------------------------------------------------------------- plain numbers

/// The shortest text with at most `digits` significant digits: 0.25, 12.5, 1500, 1.2e+09.
inline std::string number_text(double value, int digits = 3) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    if (value == 0) return "0"; // also for -0
    std::array<char, 64> text{};
    const double size = std::fabs(value);
    // Whole parts are kept in full up to a million, because 1.24e+04 is harder to read than 12400.
    if (size >= 1e-4 && size < 1e6) {
        const int before = size < 1 ? 0 : static_cast<int>(std::floor(std::log10(size))) + 1;
        const int after = size < 1 ? digits - 1 - static_cast<int>(std::floor(std::log10(size))) : digits - before;
        const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed,
                                       after > 0 ? after : 0)
                             .ptr;
        std::string out(text.data(), end);
        if (out.find('.') != std::string::npos) {
            out.erase(out.find_last_not_of('0') + 1);
            if (out.back() == '.') out.pop_back();
        }
        return out;
    }
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits).ptr;
    return {text.data(), end};
}

/// Exactly `decimals` digits after the point: columns of numbers line up.
inline std::string fixed_text(double value, int decimals) {
    if (!std::isfinite(value)) return number_text(value);
    std::array<char, 400> text{};
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals).ptr;
    return {text.data(), end};
}

// ---------------------------------------------------------------------------------------------- sizes

/// Bytes from 8, 8B, 4K, 4k, 64KiB, 1M, 1.5M, 2G, 1T. K is 1024 as in nccl-tests.
/// Errors: std::invalid_argument with a sentence.
inline std::uint64_t parse_size(std::string_view text) {
    static constexpr std::array<detail::unit, 14> units{{{"", 1},
                                                         {"b", 1},
                                                         {"k", detail::ki},
                                                         {"ki", detail::ki},
                                                         {"kib", detail::ki},
                                                         {"m", detail::ki << 10},
                                                         {"mi", detail::ki << 10},
                                                         {"mib", detail::ki << 10},
                                                         {"g", detail::ki << 20},
                                                         {"gi", detail::ki << 20},
                                                         {"gib", detail::ki << 20},
                                                         {"t", detail::ki << 30},
                                                         {"ti", detail::ki << 30},
                                                         {"tib", detail::ki << 30}}};
    const auto number = detail::read_decimal(text, "size");
    std::string name(number.rest);
    if (name.starts_with(' ')) name.erase(0, 1);
    for (char& c : name)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    for (const auto& u : units)
        if (name == u.name) return detail::scaled(number, u.scale, text, "size", "bytes");
    if (name == "kb" || name == "mb" || name == "gb" || name == "tb")
        throw std::invalid_argument(detail::quoted(text) +
                                    " is not a size: decimal units are not accepted; K or KiB is 1024 bytes.");
    throw std::invalid_argument(detail::quoted(text) + " is not a size: the unit must be B, K, M, G, T or KiB, MiB, "
                                                       "GiB, TiB.");
}

/// 8 B, 64 KiB, 1.5 MiB: exact where two decimals suffice, otherwise three significant digits.
inline std::string size_text(double bytes) {
    static constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t k = 0;
    while (bytes >= 1024 && k + 1 < names.size()) {
        bytes /= 1024;
        ++k;
    }
    const bool two_decimals = bytes * 100 == std::floor(bytes * 100);
    return number_text(bytes, two_decimals ? 6 : 3) + " " + std::string(names[k]);
}

/// The shortest text that parse_size turns back into the same number: 8, 64K, 1M, 1000.
inline std::string size_option(std::uint64_t bytes) {
    static constexpr std::string_view letters = "KMGT";
    std::size_t k = 0;
    while (k < letters.size() && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        ++k;
    }
    return std::to_string(bytes) + (k == 0 ? std::string() : std::string(1, letters[k - 1]));
}

// ---------------------------------------------------------------------------------------------- durations

/// Nanoseconds from 500ns, 10us, 1.5ms, 2s, 1min, 1h. A bare number has the unit `bare_unit_ns`; 0 refuses it.
/// Errors: std::invalid_argument with a sentence.
inline std::uint64_t parse_duration_ns(std::string_view text, std::uint64_t bare_unit_ns = 0) {
    static constexpr std::array<detail::unit, 7> units{{{"ns", 1},
                                                        {"us", 1'000},
                                                        {"ms", 1'000'000},
                                                        {"s", 1'000'000'000},
                                                        {"m", 60'000'000'000},
                                                        {"min", 60'000'000'000},
                                                        {"h", 3'600'000'000'000}}};
    const auto number = detail::read_decimal(text, "duration");
    std::string_view name = number.rest;
    if (name.starts_with(' ')) name.remove_prefix(1);
    if (name.empty() && bare_unit_ns != 0) return detail::scaled(number, bare_unit_ns, text, "duration", "nanoseconds");
    for (const auto& u : units)
        if (name == u.name) return detail::scaled(number, u.scale, text, "duration", "nanoseconds");
    throw std::invalid_argument(detail::quoted(text) + " is not a duration: the unit must be ns, us, ms, s, min or h.");
}

/// 350 ns, 10 us, 1.25 ms, 2.5 s, 3 min 20 s, 1 h 5 min.
inline std::string duration_text(double ns) {
    if (!std::isfinite(ns)) return number_text(ns);
    if (ns < 0) return "-" + duration_text(-ns);
    // Compared after rounding to three digits, so that 999.9 us is printed as 1 ms and not as 1000 us.
    if (ns < 999.5) return number_text(ns) + " ns";
    if (ns < 999.5e3) return number_text(ns / 1e3) + " us";
    if (ns < 999.5e6) return number_text(ns / 1e6) + " ms";
    if (ns < 59.95e9) return number_text(ns / 1e9) + " s";
    if (ns > 3.6e18) return number_text(ns / 3.6e12) + " h"; // centuries: past the integers below
    const bool hours = ns >= 3599.5e9;
    const auto small = static_cast<std::int64_t>(hours ? std::llround(ns / 60e9) : std::llround(ns / 1e9));
    std::string out = std::to_string(small / 60) + (hours ? " h" : " min");
    if (small % 60 != 0) out += " " + std::to_string(small % 60) + (hours ? " min" : " s");
    return out;
}

// ---------------------------------------------------------------------------------------------- lists

/// The words between commas and blanks: "8,4K, 1M" gives three.
inline std::vector<std::string> split_list(std::string_view text) {
    std::vector<std::string> words;
    while (!text.empty()) {
        const auto end = text.find_first_of(", ");
        if (const auto word = text.substr(0, end); !word.empty()) words.emplace_back(word);
        if (end == std::string_view::npos) break;
        text.remove_prefix(end + 1);
    }
    return words;
}

/// Ascending ranks as people say them: {0,1,2,5} is "0-2, 5".
inline std::string rank_list_text(std::span<const int> ranks) {
    std::string out;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        if (!out.empty()) out += ", ";
        out += std::to_string(ranks[i]);
        if (last > i) out += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
        i = last + 1;
    }
    return out;
}

} // namespace collx::tools
