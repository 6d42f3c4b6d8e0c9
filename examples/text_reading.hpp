// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Turns a text into numbers (text.hpp). Included by one source of a program.
#pragma once

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <utility>

#include "text.hpp"

namespace example {

std::vector<std::string> text::read(const std::vector<std::string>& files) {
    std::vector<std::string> all;
    for (const std::string& file : files) {
        std::ifstream in(file);
        std::string word;
        for (char c; in.get(c);) {
            if (std::isalpha(static_cast<unsigned char>(c)) != 0)
                word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
            else if (!word.empty()) all.push_back(std::exchange(word, {}));
        }
        if (!word.empty()) all.push_back(word);
    }
    return all;
}
std::vector<std::string> text::letters_of(const std::vector<std::string>& all) {
    std::vector<std::string> letters;
    for (const std::string& w : all)
        for (const char c : w) letters.push_back(std::string(1, c));
    return letters;
}
std::vector<std::uint32_t> text::numbered(const std::vector<std::string>& all, std::size_t most) {
    std::map<std::string, int> count;
    for (const std::string& w : all) ++count[w];
    std::vector<std::pair<int, std::string>> by_count;
    for (const auto& [w, n] : count) by_count.push_back({-n, w});
    std::sort(by_count.begin(), by_count.end());
    std::map<std::string, std::uint32_t> number;
    for (std::size_t k = 0; k < by_count.size(); ++k)
        number[by_count[k].second] = static_cast<std::uint32_t>(std::min(k, most - 1));
    std::vector<std::uint32_t> words;
    for (const std::string& w : all) words.push_back(number[w]);
    return words;
}
std::vector<std::uint32_t> text::drawn(std::size_t most) {
    std::vector<double> sum{0};
    for (std::size_t w = 0; w < most; ++w) sum.push_back(sum.back() + 1 / static_cast<double>(w + 1));
    std::vector<std::uint32_t> words;
    std::uint64_t x = 1;
    while (words.size() < 10'000) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const double at = static_cast<double>(x >> 11) / 9007199254740992.0 * sum.back();
        words.push_back(
            static_cast<std::uint32_t>(std::upper_bound(sum.begin() + 1, sum.end() - 1, at) - sum.begin() - 1));
    }
    return words;
}

} // namespace example
