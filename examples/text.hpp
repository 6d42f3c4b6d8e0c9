// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A text for the lessons: licences that every Debian has, as numbers of words. Where they are missing, words are drawn
// as frequent as in texts. LESSON_TEXT names a file to be read instead.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <collx/collx.hpp>

namespace example {

struct text {
    std::string name;                 // where it is from
    std::vector<std::uint32_t> words; // 0 is the most frequent one, then 1, ...; rarer ones are all the last number
    std::vector<double> share;        // how frequent each is

    // Words of letters, in lower case, of these files one after the other.
    static std::vector<std::string> read(const std::vector<std::string>& files) {
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
    static std::vector<std::string> letters_of(const std::vector<std::string>& all) {
        std::vector<std::string> letters;
        for (const std::string& w : all)
            for (const char c : w) letters.push_back(std::string(1, c));
        return letters;
    }
    static std::vector<std::uint32_t> numbered(const std::vector<std::string>& all, std::size_t most) {
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
    // Word w is 1 / (w + 1) as frequent as word 0 (Zipf).
    static std::vector<std::uint32_t> drawn(std::size_t most) {
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
};

// The same on all ranks: what rank 0 has. By letters: each is a word.
inline text share_text(collx::communicator& world, std::size_t most, bool by_letters = false) {
    text t;
    std::size_t facts[2] = {}; // words, and whether they were read
    if (world.rank() == 0) {
        const std::string folder = "/usr/share/common-licenses/";
        const char* const own = std::getenv("LESSON_TEXT");
        auto all = text::read(own != nullptr ? std::vector<std::string>{own}
                                             : std::vector{folder + "GPL-3", folder + "MPL-2.0", folder + "GFDL-1.3"});
        facts[1] = all.size() > 1000 ? 1 : 0;
        if (by_letters) all = text::letters_of(all);
        t.words = facts[1] != 0 ? text::numbered(all, most) : text::drawn(most);
        facts[0] = t.words.size();
    }
    collx::broadcast(world, facts);
    t.words.resize(facts[0]);
    collx::broadcast(world, t.words);
    t.name = facts[1] != 0 ? "a text of " + std::to_string(facts[0]) + (by_letters ? " letters" : " words")
                           : "no text was found, so " + std::to_string(facts[0]) + " of them were drawn by Zipf's law";
    t.share.resize(most);
    for (const std::uint32_t w : t.words) t.share[w] += 1 / static_cast<double>(facts[0]);
    return t;
}

} // namespace example
