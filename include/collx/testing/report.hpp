// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The findings of a contract suite: the rules that were broken, by name. Needs no test framework: any test can check
// is_clean() and print text().
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace testing {

// A rule that a type under test breaks.
struct broken_rule {
    std::string rule; // one of those that the suite lists
    std::string what; // what happened
};

class report {
public:
    void add(const char* rule, std::string what) { broken_.push_back({rule, std::move(what)}); }
    void add(report other) {
        for (auto& b : other.broken_) broken_.push_back(std::move(b));
    }
    bool is_clean() const { return broken_.empty(); }
    bool names(const std::string& rule) const {
        for (const auto& b : broken_)
            if (b.rule == rule) return true;
        return false;
    }
    const std::vector<broken_rule>& broken() const { return broken_; }
    // A line for each broken rule.
    std::string text() const {
        std::string all;
        for (const auto& b : broken_) all += b.rule + ": " + b.what + "\n";
        return all;
    }

private:
    std::vector<broken_rule> broken_;
};

} // namespace testing

COLLX_END_NAMESPACE
