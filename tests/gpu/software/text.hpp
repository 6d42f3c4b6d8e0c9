// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tokens of PTX (PTX ISA, chapter 4).
#pragma once

#include <cctype>
#include <string>
#include <string_view>

#include "machine.hpp"

namespace software_gpu {

class word_reader {
public:
    explicit word_reader(std::string_view text) : text_(text) { advance(); }
    std::string_view now() const { return word_; }
    bool ended() const { return word_.empty(); }
    bool is(std::string_view w) const { return word_ == w; }
    std::string_view take() {
        const std::string_view w = word_;
        advance();
        return w;
    }
    bool take_if(std::string_view w) {
        if (!is(w)) return false;
        advance();
        return true;
    }
    void expect(std::string_view w) {
        if (!take_if(w)) fail("expected '" + std::string(w) + "', found '" + std::string(word_) + "'");
    }
    void skip_behind(std::string_view w) {
        while (!ended() && !is(w)) advance();
        advance();
    }
    // Skips "{ ... }" and its content.
    void skip_braces() {
        int depth = 0;
        do {
            if (is("{")) ++depth;
            if (is("}")) --depth;
            advance();
        } while (depth > 0 && !ended());
    }
    std::size_t at() const { return static_cast<std::size_t>(word_.data() - text_.data()); }
    std::string_view text(std::size_t from, std::size_t to) const { return text_.substr(from, to - from); }
    [[noreturn]] void fail(const std::string& what) const {
        std::size_t line = 1;
        for (std::size_t i = 0; i < position_ && i < text_.size(); ++i) line += text_[i] == '\n';
        throw fault(fault::kind::unsupported, "PTX line " + std::to_string(line) + ": " + what);
    }

private:
    static bool is_name(char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' || c == '.';
    }
    void advance() {
        skip_space();
        const std::size_t begin = position_;
        if (position_ == text_.size()) {
            word_ = {};
            return;
        }
        if (text_[position_] == '"') {
            position_ = text_.find('"', position_ + 1) + 1;
        } else if (is_name(text_[position_])) {
            while (position_ < text_.size() &&
                   (is_name(text_[position_]) || text_.substr(position_, 2) == "::" ||
                    (text_[position_] == ':' && position_ > begin && text_[position_ - 1] == ':')))
                ++position_;
        } else {
            ++position_;
        }
        word_ = text_.substr(begin, position_ - begin);
        if (word_ == ".loc" || word_ == ".file") { // they end at the end of the line
            position_ = std::min(text_.find('\n', position_), text_.size());
            advance();
        }
    }
    void skip_space() {
        while (position_ < text_.size()) {
            if (std::isspace(static_cast<unsigned char>(text_[position_])) != 0 || text_[position_] == '\0')
                ++position_;
            else if (text_.substr(position_, 2) == "//")
                position_ = std::min(text_.find('\n', position_), text_.size());
            else if (text_.substr(position_, 2) == "/*")
                position_ = std::min(text_.find("*/", position_), text_.size() - 2) + 2;
            else break;
        }
    }
    std::string_view text_, word_;
    std::size_t position_ = 0;
};

} // namespace software_gpu
