// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What all tools ask of the values on their command lines: none is empty, as of a shell variable that is not set, and
// numbers are decimal. Also how a tool ends that was asked for help or cannot read its command line.
#pragma once

#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "standard_output.hpp"

namespace collx::tools {

inline constexpr const char* empty_value =
    "an empty value, as of a shell variable that is not set; give one, or leave the option out";

namespace detail {

inline bool is_digit_at(const std::string& text, std::size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

} // namespace detail

/// CLI11 reads 010 as 8, and refuses 08: leading zeros, as of a script's counter, are removed. 0x10 is refused.
inline CLI::Validator decimal() {
    return {[](std::string& text) -> std::string {
                const std::size_t first = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
                if (text.size() > first + 2 && text[first] == '0' && (text[first + 1] == 'x' || text[first + 1] == 'X'))
                    return "'" + text + "' is not decimal; write the number with the digits 0 to 9";
                while (text.size() > first && text[first] == '0' && detail::is_digit_at(text, first + 1))
                    text.erase(first, 1);
                return {};
            },
            ""};
}

/// Refuses nan and inf, which comparisons with bounds may let pass.
inline CLI::Validator finite() {
    return {[](std::string& text) {
                double value = 0;
                const bool is_number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
                return is_number ? std::string() : "'" + text + "' is no finite number";
            },
            ""};
}

/// Adds these rules to all options of a program and of its subcommands. Call it when all have been declared.
inline void require_values(CLI::App& app) {
    for (CLI::Option* o : app.get_options()) {
        if (o->get_type_size_max() == 0) continue; // a flag
        const std::string type = o->get_type_name();
        if (type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT")) o->transform(decimal());
        o->transform(CLI::Validator(
            [](std::string& text) { return text.empty() ? std::string(empty_value) : std::string(); }, ""));
    }
    for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) require_values(*sub);
}

/// Reads the command line, with require_values(), then calls check(), which may throw CLI::ParseError, too. Returns the
/// exit code where the tool ends here: after --help, and 2 for wrong use.
template <class Check>
std::optional<int> exit_of_parsing(CLI::App& app, const char* tool, int argc, char** argv, Check&& check) {
    require_values(app);
    try {
        app.parse(argc, argv);
        check();
        return std::nullopt;
    } catch (const CLI::CallForHelp& help) {
        return ended(tool, app.exit(help));
    } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "%s: %s (%s --help)\n", tool, e.what(), tool);
        return 2;
    }
}
inline std::optional<int> exit_of_parsing(CLI::App& app, const char* tool, int argc, char** argv) {
    return exit_of_parsing(app, tool, argc, argv, [] {});
}

} // namespace collx::tools
