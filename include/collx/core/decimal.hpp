// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers with a decimal point as text, for files. strtod() and printf() follow the locale of the program, in which the
// point may be a comma.
#pragma once

#include <locale.h>
#include <stdlib.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <string>

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
    static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
    // What strtod() takes and from_chars() does not: spaces, a plus sign, numbers of base 16.
    if (text.empty() || text.find_first_of(" \t\n\v\f\r+") == 0 || text.find_first_of("xX") != text.npos) return false;
    char* stop = nullptr;
    errno = 0;
    const double read = ::strtod_l(text.c_str(), &stop, plain);
    if (stop != end || (errno == ERANGE && (read == 0 || std::isinf(read)))) return false;
    x = read;
    return true;
#endif
}

} // namespace detail
COLLX_END_NAMESPACE
