// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How threads of a warp diverge and reconverge, and which memory they may access.
#include <algorithm>

#include "block.hpp"

namespace software_gpu {

std::uint64_t warp::address_of(unsigned lane, const place& p) {
    const auto address = [](const void* x) { return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(x)); };
    std::uint64_t a = static_cast<std::uint64_t>(p.offset);
    if (p.slot >= 0) a += row(p.slot)[lane];
    if (p.from == place::origin::kernel_parameters) a += address(block_.of().what.parameters.data());
    if (p.from == place::origin::frame) a += address(frame_of(lane));
    return a;
}

std::byte* warp::reach(unsigned lane, std::uint64_t a, std::size_t bytes, std::size_t alignment, bool writes) {
    if (a % alignment != 0)
        fail(fault::kind::misaligned_address, lane,
             "address " + std::to_string(a) + " is not a multiple of " + std::to_string(alignment));
    auto* const p = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(a));
    if (block_.is_shared(a, bytes)) return p;
    const std::byte* mine = frames_ + std::size_t{lane} * stack_bytes_;
    const auto is_in = [&](const std::byte* begin, std::size_t size) { // ranges may end at the end of the address space
        const std::uint64_t from = a - reinterpret_cast<std::uintptr_t>(begin);
        return from <= size && bytes <= size - from;
    };
    if (is_in(mine, stack_bytes_)) return p;
    const auto& parameters = block_.of().what.parameters;
    if (!writes && is_in(parameters.data(), parameters.size())) return p;
    if (!block_.of().holds(a, bytes))
        fail(fault::kind::illegal_address, lane,
             std::to_string(bytes) + " bytes at " + std::to_string(a) + " are in no memory of a device");
    return p;
}

void warp::fail(fault::kind k, unsigned lane, const std::string& what) const {
    const auto text = [](extent e) {
        return std::to_string(e.x) + "," + std::to_string(e.y) + "," + std::to_string(e.z);
    };
    const thread& t = threads_[lane];
    throw fault(k, what + "\n  by thread " + text(t.id) + " of block " + text(block_.index_) + " at '" +
                       (now_ != nullptr ? *now_ : t.in->code[t.at]).text + "'\n  in " + t.in->name + "\n  of kernel " +
                       block_.grid_.what.kernel->name);
}

namespace {
// Registers of ended warps, for reuse: otherwise short launches would spend most of their time on new pages.
std::vector<std::vector<std::uint64_t>>& spare_registers() {
    thread_local std::vector<std::vector<std::uint64_t>> kept;
    return kept;
}
} // namespace

warp::~warp() {
    if (registers_.capacity() != 0) spare_registers().push_back(std::move(registers_));
}
warp::warp(block& b, unsigned first, unsigned count) : block_(b), threads_(count) {
    const function& kernel = *b.of().what.kernel;
    const extent size = b.of().what.block;
    if (auto& kept = spare_registers(); !kept.empty()) {
        registers_ = std::move(kept.back());
        kept.pop_back();
    }
    registers_.assign(std::size_t{kernel.registers} * warp_size, 0xcdcdcdcdcdcdcdcd); // initially arbitrary
    frames_ = b.frames_begin() + std::size_t{first} * kernel.stack_bytes;
    stack_bytes_ = kernel.stack_bytes;
    for (unsigned l = 0; l < count; ++l) {
        const unsigned n = first + l;
        threads_[l].in = &kernel;
        threads_[l].number = n;
        threads_[l].id = {n % size.x, n / size.x % size.y, n / size.x / size.y};
        all_ |= lanes{1} << l;
    }
}

// Chooses the threads at one place that run next, and the place where others wait. Mostly it is the earliest place, so
// that diverged threads reconverge; now and then another, for others may wait for those threads.
lanes warp::choose(std::minstd_rand& dice, std::uint32_t& stop_at) {
    int best = -1;
    lanes ready = 0;
    const bool any = dice() % 8 == 0;
    unsigned skipped = any ? static_cast<unsigned>(dice() % warp_size) : 0;
    for (unsigned l = 0; l < threads_.size(); ++l) {
        if (threads_[l].state != standing::ready) continue;
        ready |= lanes{1} << l;
        if (best < 0) {
            best = static_cast<int>(l);
            continue;
        }
        const thread &x = threads_[l], &y = threads_[static_cast<unsigned>(best)];
        if (any ? l <= skipped : x.calls.size() > y.calls.size() || (x.calls.size() == y.calls.size() && x.at < y.at))
            best = static_cast<int>(l);
    }
    stop_at = ~0u;
    if (best < 0) return 0;
    const thread& t = threads_[static_cast<unsigned>(best)];
    lanes group = 0;
    each(ready, [&](unsigned l) {
        const thread& x = threads_[l];
        if (x.in != t.in || x.base != t.base || x.frame != t.frame) return;
        if (x.at == t.at) group |= lanes{1} << l;
        else if (x.at > t.at) stop_at = std::min(stop_at, x.at);
    });
    return group;
}

void warp::set(lanes m, std::uint32_t at) {
    each(m, [&](unsigned l) { threads_[l].at = at; });
}

void warp::call(const instruction& i, lanes m, std::uint32_t at) {
    const std::uint32_t base = base_ + threads_[static_cast<unsigned>(std::countr_zero(m))].in->registers;
    const std::size_t needed = (std::size_t{base} + i.callee->registers) * warp_size;
    if (registers_.size() < needed) registers_.resize(needed);
    each(m, [&](unsigned l) {
        thread& t = threads_[l];
        const std::uint32_t frame = t.frame + (t.in->frame_bytes + 15) / 16 * 16;
        if (frame + i.callee->frame_bytes > stack_bytes_) fail(fault::kind::unsupported, l, "calls nest too deep");
        std::byte* const mine = frame_of(l);
        for (const auto& a : i.arguments) std::memcpy(mine + (frame - t.frame) + a.there, mine + a.here, a.bytes);
        t.calls.push_back({t.in, at, t.base, t.frame});
        t.in = i.callee;
        t.at = 0;
        t.base = base;
        t.frame = frame;
    });
}

void warp::go_back(lanes m) {
    each(m, [&](unsigned l) {
        thread& t = threads_[l];
        const thread::call c = t.calls.back();
        t.calls.pop_back();
        const std::byte* const theirs = frame_of(l);
        t.in = c.from;
        t.at = c.at;
        t.base = c.base;
        t.frame = c.frame;
        for (const auto& r : t.in->code[t.at].results) std::memcpy(frame_of(l) + r.here, theirs + r.there, r.bytes);
        ++t.at;
    });
}

void warp::end(lanes m) {
    each(m, [&](unsigned l) { threads_[l].state = standing::ended; });
    ended_ |= m;
    block_.look_again();
}

void warp::let_go(unsigned lane, standing s) {
    threads_[lane].state = s;
    ++threads_[lane].at;
}

// [bar.warp.sync, shfl.sync, vote.sync, match.sync]: threads wait until all threads in the mask are at the same
// instruction. Returns true if the whole group continued together.
bool warp::meet(const instruction& i, lanes group, lanes guarded, std::uint32_t at) {
    set(group & ~guarded, at + 1);
    set(guarded, at);
    const row_view named(*this, i.from[i.froms - 1u]);
    const bool went_on = [&] {
        bool all = group == guarded;
        for (lanes left = guarded; left != 0;) {
            const auto first = static_cast<unsigned>(std::countr_zero(left));
            const auto with = static_cast<lanes>(named[first]);
            if ((with & ended_) != 0 || (with & ~all_) != 0)
                fail(fault::kind::barrier, first, "threads are named that have ended");
            lanes same = 0;
            each(left, [&](unsigned l) { same |= static_cast<lanes>(named[l]) == with ? lanes{1} << l : 0; });
            left &= ~same;
            if (const lanes unnamed = same & ~with; unnamed != 0)
                fail(fault::kind::barrier, static_cast<unsigned>(std::countr_zero(unnamed)),
                     "a thread must name itself");
            each(same, [&](unsigned l) {
                threads_[l].state = standing::meets_warp;
                threads_[l].with = with;
            });
            lanes here = 0;
            each(with, [&](unsigned l) {
                const thread& t = threads_[l];
                if (t.state == standing::meets_warp && t.with == with && t.in == threads_[first].in && t.at == at &&
                    t.base == base_)
                    here |= lanes{1} << l;
            });
            if (here != with) {
                all = false;
                continue;
            }
            if (i.run != nullptr) i.run(*this, i, with);
            each(with, [&](unsigned l) { let_go(l); });
            all = all && with == group;
        }
        return all;
    }();
    return went_on;
}

bool warp::turn(unsigned instructions, std::minstd_rand& dice) {
    std::uint32_t stop_at;
    const lanes group = choose(dice, stop_at);
    if (group == 0) return false;
    const thread& first = threads_[static_cast<unsigned>(std::countr_zero(group))];
    const function& f = *first.in;
    std::uint32_t at = first.at;
    base_ = first.base;
    // Failures are reported for the instruction at which the threads are.
    for (; instructions != 0; --instructions) {
        const instruction& i = f.code[at];
        lanes m = group;
        if (i.guarded) {
            const std::uint64_t* p = row(i.guard);
            const std::uint64_t wanted = i.guard_negated ? 0 : 1;
            lanes yes = 0;
            each(group, [&](unsigned l) { yes |= static_cast<lanes>(p[l] == wanted) << l; });
            m = yes;
        }
        switch (i.next) {
            case flow::on:
                if (m != 0) {
                    now_ = &i;
                    i.run(*this, i, m);
                    now_ = nullptr;
                }
                ++at;
                break;
            case flow::jump:
                if (m == group) {
                    at = i.target;
                } else if (m == 0) {
                    ++at;
                } else {
                    set(m, i.target);
                    set(group & ~m, at + 1);
                    return true;
                }
                break;
            case flow::call:
            case flow::back:
            case flow::end:
                set(group, at + 1);
                set(m, at);
                if (m == 0) return true;
                if (i.next == flow::call) call(i, m, at);
                else if (i.next == flow::back && !threads_[static_cast<unsigned>(std::countr_zero(m))].calls.empty())
                    go_back(m);
                else end(m);
                return true;
            case flow::meet_warp:
                if (!meet(i, group, m, at)) return true;
                ++at;
                break;
            case flow::meet_block: {
                set(group, at + 1);
                set(m, at);
                if (m == 0) return true;
                const unsigned is_vote = i.tos;
                const row_view id(*this, i.from[0]), expected(*this, i.from[1]), vote(*this, i.from[i.froms - 1u]);
                const bool counted = i.froms - is_vote == 2;
                each(m, [&](unsigned l) {
                    block_.come(*this, l, static_cast<unsigned>(id[l]),
                                counted ? static_cast<unsigned>(expected[l]) : 0, is_vote != 0 && (vote[l] & 1) != 0);
                });
                return true;
            }
            case flow::trap:
                set(group, at);
                if (m == 0) {
                    ++at;
                    break;
                }
                fail(fault::kind::trap, static_cast<unsigned>(std::countr_zero(m)), "a trap");
            case flow::sleep: set(group, at + 1); return true;
        }
        if (at >= stop_at) break;
    }
    set(group, at);
    return true;
}

} // namespace software_gpu
