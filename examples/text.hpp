// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A text for the lessons: licences that every Debian has, as numbers of words. If they are missing, words are drawn
// with the frequencies of a text. LESSON_TEXT names a file to read instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <collx/collx.hpp>

namespace example {

struct text {
    std::string name;                 // where it comes from
    std::vector<std::uint32_t> words; // 0 is the most frequent one, then 1, ...; all rarer ones share the last number
    std::vector<double> share;        // frequency of each

    // read(): the words of these files in sequence, in lower case. letters_of(): their letters. numbered(): numbers by
    // frequency. drawn(): random numbers, where w is 1 / (w + 1) as frequent as 0 (Zipf). Defined in text_reading.hpp,
    // which one source of a program includes.
    static std::vector<std::string> read(const std::vector<std::string>& files);
    static std::vector<std::string> letters_of(const std::vector<std::string>& all);
    static std::vector<std::uint32_t> numbered(const std::vector<std::string>& all, std::size_t most);
    static std::vector<std::uint32_t> drawn(std::size_t most);
};

// Returns rank 0's text on all ranks. by_letters: each letter is a word. Collective.
inline text share_text(collx::communicator& world, std::size_t most, bool by_letters = false) {
    text t;
    std::size_t facts[2] = {}; // number of words, and whether they were read
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
