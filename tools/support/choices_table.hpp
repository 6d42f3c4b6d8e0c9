// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of choices of docs/algorithms.md, from the rows that the calls themselves read.
#pragma once

#include <string>

#include <collx/plan/choice_words.hpp>

namespace collx::tools {

inline std::string choices_of(choices::venue where) {
    std::string text = "| collective | algorithm | when | because |\n|---|---|---|---|\n";
    for (const choices::row& r : choices::rows) {
        if ((r.where & where) == 0) continue;
        const char* protocol = r.by == choices::protocol::packets ? ", LL words" : "";
        text += "| " + collx::detail::collectives_in_words(r.what) + " | `" + choices::name_of(r.use) + "`" +
                choices::variant_of(r.use) + protocol + " | " + collx::detail::conditions_in_words(r) + " | " + r.why +
                " |\n";
    }
    return text;
}

inline std::string choices_tables() {
    std::string text;
    for (unsigned p = 1; p <= choices::switched; p *= 2) {
        const auto where = static_cast<choices::venue>(p);
        text += std::string("\n### ") + name_of(where) + "\n\n" + choices_of(where);
    }
    return text;
}

} // namespace collx::tools
