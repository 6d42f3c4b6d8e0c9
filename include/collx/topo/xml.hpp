// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads the XML of topology and graph files: elements with attributes, comments, nothing else; hwloc's also have text.
// Strict, small and bounded; errors name the line. A library would be a dependency of every user of collx, for files in
// which text, entities beyond the five, name spaces and DTDs never occur.
#pragma once

#include <charconv>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <collx/core/error.hpp>
#include <collx/core/markup.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// An element of a file with its content.
struct xml_element {
    std::string name;
    std::vector<std::pair<std::string, std::string>> attributes; // in order
    std::vector<xml_element> children;
    int line = 0;
    std::string text = {}; // between its children, if text is read

    // The value of an attribute; null if there is none.
    const std::string* find(const char* attribute) const {
        for (const auto& [key, value] : attributes)
            if (key == attribute) return &value;
        return nullptr;
    }
};

// What a file may have. plain: elements, attributes, comments and declarations. with_text: also text in elements and
// the name of a DTD, which is ignored.
enum class xml_form : unsigned char { plain, with_text };

namespace detail {

// Throws "topo.xml:12: ..." as invalid_argument.
[[noreturn]] inline void fail_at(const std::string& file, int line, const char* remedy, const std::string& what) {
    fail(errc::invalid_argument, -1, -1, remedy, "%.120s:%d: %.200s", file.c_str(), line, what.c_str());
}

class xml_reader {
public:
    xml_reader(const std::string& text, const std::string& file, xml_form form = xml_form::plain)
        : text_(text), file_(file), form_(form) {}
    xml_element read() {
        if (starts("\xef\xbb\xbf")) at_ += 3; // the mark of UTF-8 that some editors write
        skip_between();
        if (form_ == xml_form::with_text && starts("<!DOCTYPE")) {
            skip_to_end_of(">", "a document type");
            skip_between();
        }
        xml_element root = element(0);
        skip_between();
        if (at_ != text_.size()) wrong("something follows the last element", "a file has one outermost element");
        return root;
    }

private:
    static constexpr int most_depth = 64, most_elements = 1 << 17;
    static constexpr std::size_t most_attributes = 64; // of an element: each is compared with all before it

    [[noreturn]] void wrong(const std::string& what, const char* remedy) const { fail_at(file_, line_, remedy, what); }
    bool starts(const char* word) const { return text_.compare(at_, std::strlen(word), word) == 0; }
    char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void step() { line_ += text_[at_++] == '\n'; }
    void skip_space() {
        while (here() == ' ' || here() == '\t' || here() == '\r' || here() == '\n') step();
    }
    void skip_to_end_of(const char* end, const char* what) {
        const std::size_t to = text_.find(end, at_);
        if (to == text_.npos) wrong(std::string(what) + " has no end", "close it");
        while (at_ < to + std::strlen(end)) step();
    }
    void skip_between() {
        for (skip_space(); starts("<!--") || starts("<?"); skip_space())
            starts("<?") ? skip_to_end_of("?>", "a declaration") : skip_to_end_of("-->", "a comment");
    }
    static bool is_letter(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
               c == '.' || c == ':';
    }
    std::string word(const char* what) {
        const std::size_t from = at_;
        while (is_letter(here())) ++at_;
        if (from == at_) wrong(std::string("expected ") + what, "see docs/topology.md for the elements");
        return text_.substr(from, at_ - from);
    }
    std::string value() {
        const char quote = here();
        if (quote != '"' && quote != '\'') wrong("a value without quotes", "write name=\"value\"");
        std::string v;
        for (++at_; here() != quote;) {
            if (at_ >= text_.size() || here() == '<') wrong("a value has no end", "close the quotes");
            if (starts("&#")) add_character(v);
            else if (here() == '&') v += entity();
            else {
                v += here();
                step();
            }
        }
        ++at_;
        return v;
    }
    char entity() {
        static constexpr std::pair<const char*, char> known[] = {
            {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
        for (const auto& [name, letter] : known)
            if (starts(name)) {
                at_ += std::strlen(name);
                return letter;
            }
        wrong("an unknown entity", "write & as &amp;");
    }
    // &#10; or &#xA;: hwloc writes white space in values like that.
    void add_character(std::string& v) {
        const std::size_t end = text_.find(';', at_);
        if (end == text_.npos) wrong("a character's number has no end", "write &#10;");
        const bool is_hex = text_[at_ + 2] == 'x';
        unsigned code = 0;
        const char* const to = text_.data() + end;
        const auto [stop, what] = std::from_chars(text_.data() + at_ + (is_hex ? 3 : 2), to, code, is_hex ? 16 : 10);
        if (what != std::errc() || stop != to || code == 0 || code > 0x10ffff)
            wrong("a wrong number of a character", "write &#10; or &#xA;");
        at_ = end + 1;
        if (code < 0x80) return v.push_back(static_cast<char>(code));
        const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3; // bytes after the first, of UTF-8
        v += static_cast<char>((0xff00 >> (more + 1) & 0xff) | code >> 6 * more);
        for (int k = more - 1; k >= 0; --k) v += static_cast<char>(0x80 | (code >> 6 * k & 0x3f));
    }
    xml_element element(int depth) {
        if (here() != '<') wrong("expected an element", "text between elements means nothing here");
        if (depth >= most_depth || ++elements_ > most_elements) wrong("too many elements", "split the file");
        ++at_;
        xml_element e;
        e.line = line_;
        e.name = word("the name of an element");
        for (skip_space(); here() != '>' && here() != '/'; skip_space()) {
            std::string name = word("an attribute or the end of <" + e.name + ">");
            if (e.find(name.c_str()) != nullptr) wrong("the attribute '" + name + "' comes twice", "keep one of them");
            if (e.attributes.size() == most_attributes)
                wrong("<" + e.name + "> has more than 64 attributes", "keep those that docs/topology.md names");
            skip_space();
            if (here() != '=') wrong("the attribute '" + name + "' has no value", "write name=\"value\"");
            ++at_;
            skip_space();
            std::string v = value();
            e.attributes.emplace_back(std::move(name), std::move(v));
        }
        if (here() == '/') {
            if (!starts("/>")) wrong("'/' without '>'", "end the element with />");
            at_ += 2;
            return e;
        }
        ++at_;
        for (skip_between(); !starts("</"); skip_between()) {
            if (form_ == xml_form::with_text && at_ < text_.size() && here() != '<') {
                for (; at_ < text_.size() && here() != '<'; step()) e.text += here();
                continue;
            }
            if (at_ >= text_.size()) wrong("<" + e.name + "> has no end", "close it");
            e.children.push_back(element(depth + 1));
        }
        at_ += 2;
        if (const std::string end = word("the name of an element"); end != e.name)
            wrong("<" + e.name + "> of line " + std::to_string(e.line) + " ends as </" + end + ">",
                  "close them in order");
        skip_space();
        if (here() != '>') wrong("</" + e.name + " without '>'", "close it");
        ++at_;
        return e;
    }
    std::string word(const std::string& what) { return word(what.c_str()); }

    const std::string& text_;
    const std::string& file_;
    const xml_form form_;
    std::size_t at_ = 0;
    int line_ = 1, elements_ = 0;
};

} // namespace detail

// Reads the outermost element. Errors: invalid_argument as "FILE:LINE: what (remedy)".
inline xml_element read_xml(const std::string& text, const std::string& file = "topology",
                            xml_form form = xml_form::plain) {
    return detail::xml_reader(text, file, form).read();
}

// Writes an element with two spaces a level, attributes in order.
inline std::string to_xml(const xml_element& e, int depth = 0) {
    const std::string space(static_cast<std::size_t>(2 * depth), ' ');
    std::string text = space + "<" + e.name;
    for (const auto& [name, value] : e.attributes) text += " " + name + "=\"" + collx::detail::marked_up(value) + "\"";
    if (e.children.empty()) return text + "/>\n";
    text += ">\n";
    for (const xml_element& child : e.children) text += to_xml(child, depth + 1);
    return text + space + "</" + e.name + ">\n";
}

} // namespace topo
COLLX_END_NAMESPACE
