// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "decode.hpp"

#include <algorithm>

namespace software_gpu {

namespace {
struct type_name {
    std::string_view word;
    type what;
    std::size_t bytes;
};
constexpr type_name type_names[] = {
    {"pred", type::pred, 1},     {"b8", type::b8, 1},   {"u8", type::u8, 1},       {"s8", type::s8, 1},
    {"b16", type::b16, 2},       {"u16", type::u16, 2}, {"s16", type::s16, 2},     {"b32", type::b32, 4},
    {"u32", type::u32, 4},       {"s32", type::s32, 4}, {"b64", type::b64, 8},     {"u64", type::u64, 8},
    {"s64", type::s64, 8},       {"f16", type::f16, 2}, {"f16x2", type::f16x2, 4}, {"bf16", type::bf16, 2},
    {"bf16x2", type::bf16x2, 4}, {"f32", type::f32, 4}, {"f64", type::f64, 8},     {"e4m3x2", type::e4m3x2, 2},
    {"e5m2x2", type::e5m2x2, 2},
};

[[noreturn]] void unknown(warp& w, const instruction&, lanes m) {
    w.fail(fault::kind::unsupported, static_cast<unsigned>(std::countr_zero(m)),
           "the software GPU has no such instruction");
}
} // namespace

type type_of(std::string_view word) {
    for (const type_name& n : type_names)
        if (n.word == word) return n.what;
    return type::none;
}
std::size_t bytes_of(type t) {
    for (const type_name& n : type_names)
        if (n.what == t) return n.bytes;
    return 0;
}

opcode::opcode(std::string_view all) : text(all) {
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t dot = std::min(text.find('.', at), text.size());
        words.push_back(std::string_view(text).substr(at, dot - at));
        at = dot + 1;
        if (const type t = type_of(words.back()); t != type::none) types.push_back(t);
    }
}
bool opcode::has(std::string_view word) const { return std::find(words.begin(), words.end(), word) != words.end(); }

void decode(instruction& i, const opcode& op) {
    const std::string_view name = op.name();
    if (name == "bra") return void(i.next = flow::jump);
    if (name == "call") return void(i.next = flow::call);
    if (name == "ret") return void(i.next = flow::back);
    if (name == "exit") return void(i.next = flow::end);
    if (name == "trap") return void(i.next = flow::trap);
    if (name == "nanosleep") return void(i.next = flow::sleep);
    if (op.has("sync") && (op.has("warp") || name == "shfl" || name == "vote" || name == "match" || name == "elect")) {
        i.next = flow::meet_warp;
        i.run = agreement_of(op, i);
        if (i.run == nullptr && !op.has("warp")) {
            i.next = flow::on;
            i.run = unknown;
        }
        return;
    }
    if ((name == "bar" || name == "barrier") && (op.has("sync") || op.has("red"))) {
        i.next = flow::meet_block;
        i.aligned = name == "bar" || op.has("aligned");
        i.is_all = op.has("and");
        if (op.has("popc")) {
            i.next = flow::on;
            i.run = unknown;
        }
        return;
    }
    for (const auto find : {arithmetic_of, access_of, conversion_of, agreement_of})
        if ((i.run = find(op, i)) != nullptr) return;
    i.run = unknown;
}

} // namespace software_gpu
