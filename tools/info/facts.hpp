// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What collx_info reports, as a value: sections of named facts, and problems with one remedy each. Text and JSON are
// made from the same value, so they contain the same. Does not query the machine.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace collx::tools::info {

struct fact {
    std::string key;   // in JSON
    std::string label; // for people
    std::string text;
    nlohmann::ordered_json value;
};

struct section {
    std::string key, title;
    std::vector<fact> facts = {};

    void add(std::string name, std::string label, std::string text, nlohmann::ordered_json value) {
        facts.push_back({std::move(name), std::move(label), std::move(text), std::move(value)});
    }
    void add(std::string name, std::string label, std::string text) {
        nlohmann::ordered_json value = text;
        add(std::move(name), std::move(label), std::move(text), std::move(value));
    }
};

struct problem {
    std::string what;
    std::string remedy;
    bool is_fatal = false; // nothing can run like this
};

struct findings {
    std::vector<section> sections = {};
    std::vector<problem> problems = {};

    [[nodiscard]] bool is_usable() const {
        return std::none_of(problems.begin(), problems.end(), [](const problem& p) { return p.is_fatal; });
    }
};

inline std::string to_text(const findings& f) {
    std::string out;
    for (const auto& s : f.sections) {
        out += s.title + "\n";
        std::size_t width = 0;
        for (const auto& one : s.facts) width = std::max(width, one.label.size());
        for (const auto& one : s.facts)
            out += "  " + one.label + std::string(width - one.label.size() + 2, ' ') + one.text + "\n";
        out += "\n";
    }
    if (f.problems.empty()) return out + "No problems.\n";
    out += "Problems\n";
    for (const auto& p : f.problems)
        out += std::string(p.is_fatal ? "  ERROR    " : "  warning  ") + p.what + "\n           remedy: " + p.remedy +
               "\n";
    return out;
}

inline std::string to_json(const findings& f) {
    nlohmann::ordered_json all = {{"tool", "collx_info"}};
    for (const auto& s : f.sections) {
        auto& here = all[s.key] = nlohmann::ordered_json::object();
        for (const auto& one : s.facts) here[one.key] = one.value;
    }
    all["problems"] = nlohmann::ordered_json::array();
    for (const auto& p : f.problems)
        all["problems"].push_back({{"what", p.what}, {"remedy", p.remedy}, {"fatal", p.is_fatal}});
    all["usable"] = f.is_usable();
    return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"; // paths may be no UTF-8
}

} // namespace collx::tools::info
