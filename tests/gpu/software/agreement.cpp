// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operations of a warp's threads together [section 9.7.13, shfl, vote, match, activemask].
#include "decode.hpp"

namespace software_gpu {
namespace {

// d|p = shfl(a, b, c): c contains the mask of the width and the clamp.
template <class From>
void shuffle(warp& w, const instruction& i, lanes m, From from) {
    std::array<std::uint64_t, warp_size> values{};
    const row_view a(w, i.from[0]), b(w, i.from[1]), c(w, i.from[2]);
    each(m, [&](unsigned l) { values[l] = a[l]; });
    each(m, [&](unsigned l) {
        const auto by = static_cast<unsigned>(b[l] & 31), clamp = static_cast<unsigned>(c[l] & 31),
                   width = static_cast<unsigned>(c[l] >> 8 & 31);
        const auto [at, valid] = from(l, by, (l & width) | (clamp & ~width & 31), l & width);
        const unsigned other = valid ? at : l;
        if ((m >> other & 1) == 0)
            w.fail(fault::kind::barrier, l, "a value is asked of a thread that does not take part");
        w.row(i.to[0])[l] = values[other] & 0xffffffff;
        if (i.tos > 1 && i.to[1] >= 0) w.row(i.to[1])[l] = valid;
    });
}
struct asked {
    unsigned lane;
    bool valid;
};

template <class F>
void vote(warp& w, const instruction& i, lanes m, F result) {
    lanes yes = 0;
    const row_view p(w, i.from[0]);
    each(m, [&](unsigned l) { yes |= static_cast<lanes>(p[l] & 1) << l; });
    std::uint64_t* d = w.row(i.to[0]);
    each(m, [&](unsigned l) { d[l] = result(yes, m); });
}

} // namespace

handler agreement_of(const opcode& op, instruction&) {
    const std::string_view name = op.name();
    if (name == "shfl") {
        if (op.has("up"))
            return [](warp& w, const instruction& i, lanes m) {
                shuffle(w, i, m, [](unsigned l, unsigned by, unsigned limit, unsigned) {
                    return asked{l - by, static_cast<int>(l - by) >= static_cast<int>(limit)};
                });
            };
        if (op.has("down"))
            return [](warp& w, const instruction& i, lanes m) {
                shuffle(w, i, m, [](unsigned l, unsigned by, unsigned limit, unsigned) {
                    return asked{l + by, l + by <= limit};
                });
            };
        if (op.has("bfly"))
            return [](warp& w, const instruction& i, lanes m) {
                shuffle(w, i, m, [](unsigned l, unsigned by, unsigned limit, unsigned) {
                    return asked{l ^ by, (l ^ by) <= limit};
                });
            };
        if (op.has("idx"))
            return [](warp& w, const instruction& i, lanes m) {
                const row_view c(w, i.from[2]);
                shuffle(w, i, m, [&](unsigned l, unsigned by, unsigned limit, unsigned first) {
                    const unsigned at = first | (by & ~static_cast<unsigned>(c[l] >> 8 & 31));
                    return asked{at, at <= limit};
                });
            };
    }
    if (name == "vote") {
        if (op.has("any"))
            return [](warp& w, const instruction& i, lanes m) {
                vote(w, i, m, [](lanes yes, lanes) { return std::uint64_t{yes != 0}; });
            };
        if (op.has("all"))
            return [](warp& w, const instruction& i, lanes m) {
                vote(w, i, m, [](lanes yes, lanes all) { return std::uint64_t{yes == all}; });
            };
        if (op.has("ballot"))
            return [](warp& w, const instruction& i, lanes m) {
                vote(w, i, m, [](lanes yes, lanes) { return std::uint64_t{yes}; });
            };
    }
    if (name == "match" && op.has("any"))
        return [](warp& w, const instruction& i, lanes m) {
            std::array<std::uint64_t, warp_size> values{};
            const row_view a(w, i.from[0]);
            each(m, [&](unsigned l) { values[l] = a[l]; });
            each(m, [&](unsigned l) {
                lanes same = 0;
                each(m, [&](unsigned k) { same |= static_cast<lanes>(values[k] == values[l]) << k; });
                w.row(i.to[0])[l] = same;
            });
        };
    if (name == "elect")
        return [](warp& w, const instruction& i, lanes m) {
            const auto leader = static_cast<unsigned>(std::countr_zero(m));
            each(m, [&](unsigned l) {
                if (i.to[0] >= 0) w.row(i.to[0])[l] = leader;
                if (i.tos > 1 && i.to[1] >= 0) w.row(i.to[1])[l] = l == leader;
            });
        };
    if (name == "activemask")
        return [](warp& w, const instruction& i, lanes m) { each(m, [&](unsigned l) { w.row(i.to[0])[l] = m; }); };
    return nullptr;
}

} // namespace software_gpu
