// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The text of PMI-1, as functions of text alone: reading a reply, names and values as words, the process mapping. Input
// is not trusted: a number within bounds is accepted, anything else is refused. After MPICH's description of the wire
// protocol, src/pmi/maint/pmi-1.1.txt.
#pragma once

#include <cstdint>
#include <cstdio>

#include <collx/bootstrap/detail/plain_word.hpp>
#include <collx/bootstrap/variables.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The value of `key` in a line such as "cmd=get_result rc=0 value=x". It is empty if the key is not there; `is_there`
// tells that from an empty value.
inline name_view pmi_value(name_view line, name_view key, bool* is_there = nullptr) {
    for (std::size_t at = 0; at < line.size();) {
        std::size_t end = line.find(' ', at);
        if (end == name_view::npos) end = line.size();
        const name_view word = line.substr(at, end - at);
        if (word.size() > key.size() && word[key.size()] == '=' && word.substr(0, key.size()) == key) {
            if (is_there != nullptr) *is_there = true;
            return word.substr(key.size() + 1);
        }
        at = end + 1;
    }
    if (is_there != nullptr) *is_there = false;
    return {};
}

// A number from 0 to `most` if it is the whole text, else -1.
inline std::int64_t pmi_number(name_view text, std::int64_t most) {
    const kept_text copy(text);
    const char* at = copy.c_str();
    const std::int64_t n = read_digits(at, most);
    return at == copy.c_str() + copy.size() ? n : -1;
}

// Writes any bytes as one word without blanks, equals signs and line ends. Its first letter is added, so that the word
// is never empty.
inline kept_text pmi_word(name_view bytes) {
    kept_text word = "c";
    append_plain(word, bytes);
    return word;
}
// Reads such a word back. False if pmi_word() has not made it.
inline bool read_pmi_word(name_view word, kept_text& bytes) {
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
    bytes.clear();
    if (word.empty() || word[0] != 'c') return false;
    for (std::size_t i = 1; i < word.size(); ++i) {
        if (word[i] != '%') {
            bytes += word[i];
            continue;
        }
        if (i + 2 >= word.size()) return false;
        const int high = digit(word[i + 1]), low = digit(word[i + 2]);
        if (high < 0 || low < 0) return false;
        bytes += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return true;
}

// A key as a word of at most `most` letters; a longer word becomes a hash.
inline kept_text pmi_key(name_view key, std::size_t most) {
    kept_text word = pmi_word(key);
    if (word.size() <= most) return word;
    char hashed[40];
    std::snprintf(hashed, sizeof hashed, "h%016llx%016llx",
                  static_cast<unsigned long long>(hash_bytes(key.data(), key.size(), 1)),
                  static_cast<unsigned long long>(hash_bytes(key.data(), key.size(), 2)));
    return hashed;
}

// Where each rank runs, as process managers describe it: (vector,(FIRST,NODES,RANKS),…) puts RANKS ranks on each of
// NODES nodes, starting at node FIRST, block after block, and begins again until all ranks have a place. read() returns
// false for text that is no such mapping.
struct pmi_block {
    int first = 0, nodes = 0, ranks = 0;
};
class pmi_mapping {
public:
    static constexpr int most_blocks = 256;

    bool read(name_view text) {
        count_ = 0;
        cycle_ = 0;
        const kept_text copy(text);
        const char* at = copy.c_str();
        if (!copy.starts_with("(vector,")) return false;
        for (at += 7; *at == ',' && count_ < most_blocks; ++count_) {
            ++at;
            pmi_block& b = blocks_[count_];
            if (!(skip(at, '(') && number(at, b.first) && skip(at, ',') && number(at, b.nodes) && skip(at, ',') &&
                  number(at, b.ranks) && skip(at, ')')))
                return false;
            cycle_ += std::int64_t{b.nodes} * b.ranks;
        }
        return skip(at, ')') && at == copy.c_str() + copy.size() && cycle_ > 0;
    }
    // The node of a rank. Requires: read() has returned true.
    int node_of(int rank) const {
        std::int64_t place = rank % cycle_;
        for (int i = 0; i < count_; ++i) {
            const std::int64_t here = std::int64_t{blocks_[i].nodes} * blocks_[i].ranks;
            if (place < here) return blocks_[i].first + static_cast<int>(place / blocks_[i].ranks);
            place -= here;
        }
        return -1; // not reached: the blocks add up to the cycle
    }

private:
    static bool skip(const char*& at, char c) {
        if (*at != c) return false;
        ++at;
        return true;
    }
    static bool number(const char*& at, int& n) { return (n = static_cast<int>(read_digits(at, most_ranks))) >= 0; }
    pmi_block blocks_[most_blocks];
    int count_ = 0;
    std::int64_t cycle_ = 0; // ranks until the pattern repeats
};

} // namespace detail

COLLX_END_NAMESPACE
