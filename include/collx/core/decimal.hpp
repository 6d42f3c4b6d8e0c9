// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers with a decimal point as text, for files. strtod() and printf() follow the locale of the program, in which the
// point may be a comma.
#pragma once

#include <charconv>
#include <string>
#if !defined(__cpp_lib_to_chars)
#include <ios>
#include <locale>
#endif

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// As %.*g, in the C locale.
inline std::string decimal(double x, int digits) {
    char text[40];
    const auto end = std::to_chars(text, text + sizeof text, x, std::chars_format::general, digits).ptr;
    return {text, end};
}
// As %.*f, in the C locale.
inline std::string decimal_fixed(double x, int places) {
    char text[400]; // the largest double has 309 digits before the point
    const auto end = std::to_chars(text, text + sizeof text, x, std::chars_format::fixed, places).ptr;
    return {text, end};
}
// Whether the whole text is a number; then it is stored in x.
inline bool read_decimal(const std::string& text, double& x) {
    const char* const end = text.data() + text.size();
#if defined(__cpp_lib_to_chars)
    const auto [stop, what] = std::from_chars(text.data(), end, x);
    return what == std::errc() && stop == end;
#else // libc++ before its version 20
    struct reader final : std::num_get<char, const char*> {}; // its own destructor is protected
    const reader numbers;
    std::ios form(nullptr);
    form.imbue(std::locale::classic());
    std::ios_base::iostate state{};
    double read = 0;
    if (text.starts_with('+') || text.find_first_of("xX") != text.npos) return false;
    if (numbers.get(text.data(), end, form, state, read) != end || (state & std::ios_base::failbit) != 0) return false;
    x = read;
    return true;
#endif
}

} // namespace detail
COLLX_END_NAMESPACE
