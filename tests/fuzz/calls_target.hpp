// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files of recorded calls, as left by processes that were killed while they wrote. One byte says how many files there
// are (1 to 3) and which of them get a valid header; each file is two bytes of length and its content.
#pragma once

#include <collx/job/recorded_calls.hpp>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/input.hpp"

namespace collx_fuzz {

// Whether quotation marks and braces are closed, as a trace viewer requires.
inline bool is_balanced_json(const std::string& text) {
    std::string open;
    bool is_in_word = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (is_in_word) {
            if (c == '\\') ++i;
            else if (c == '"') is_in_word = false;
        } else if (c == '"') {
            is_in_word = true;
        } else if (c == '{' || c == '[') {
            open += c;
        } else if (c == '}' || c == ']') {
            if (open.empty() || open.back() != (c == '}' ? '{' : '[')) return false;
            open.pop_back();
        }
    }
    return open.empty() && !is_in_word;
}

inline void calls(input in) {
    const unsigned how = in.take();
    std::vector<recorded_calls> all;
    for (unsigned file = 0; file < 1 + how % 3; ++file) {
        const std::size_t size = std::min<std::size_t>(in.take() << 8 | in.take(), in.left);
        std::string bytes(reinterpret_cast<const char*>(in.at), size);
        in.at += size;
        in.left -= size;
        if ((how >> (2 + file) & 1) != 0 && size >= sizeof(detail::record_file)) {
            detail::record_file head;
            std::memcpy(&head, bytes.data(), sizeof head);
            std::memcpy(head.magic, head.right_magic, sizeof head.magic);
            head.version = head.right_version;
            head.record_bytes = sizeof(call_record);
            std::memcpy(bytes.data(), &head, sizeof head);
        }
        try {
            all.push_back(read_recorded_calls(bytes.data(), bytes.size()));
            require(all.back().calls.size() <= size / sizeof(call_record), "more calls than the file has");
        } catch (const error& e) {
            require(e.code() == errc::protocol, "not the error of a wrong file");
        }
    }
    const std::string text = compare_places(all);
    for (const char c : text)
        require(c == '\n' || (c >= ' ' && c <= '~'), "what is printed holds commands of a terminal");
    require(is_balanced_json(to_chrome_trace(all)), "a trace that no viewer reads");
}

} // namespace collx_fuzz
