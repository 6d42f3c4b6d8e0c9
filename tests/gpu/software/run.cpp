// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Launches: which warp runs when, how threads part and meet.
#include <algorithm>
#include <chrono>
#include <thread>

#include "block.hpp"

namespace software_gpu {

// ---------------------------------------------------------------------------------------------------- modules
struct module::parts {
    code_of_module code;
};
namespace {
// Of a thread that runs f and all that it calls; of calls that may nest without end, a limit.
std::uint32_t stack_of(const function& f, unsigned depth) {
    if (depth > 16) return 8 * 1024;
    std::uint32_t deepest = 0;
    for (const instruction& i : f.code)
        if (i.callee != nullptr) deepest = std::max(deepest, stack_of(*i.callee, depth + 1));
    return std::min((f.frame_bytes + 15) / 16 * 16 + deepest, 16u * 1024);
}
} // namespace
module::module(std::string_view ptx) :parts_(std::make_unique<parts>(parts{read_module(ptx)})) {
    for (auto& [name, f] : parts_->code.functions) f->stack_bytes = stack_of(*f, 0);
    for (auto& [name, f] : parts_->code.functions)
        f->home = this, f->shared_bytes_of_module = parts_->code.shared_bytes;
}
module::~module() = default;
const function* module::kernel(std::string_view name) const {
    const auto found = parts_->code.functions.find(name);
    return found != parts_->code.functions.end() && found->second->is_kernel ? found->second.get() : nullptr;
}
void* module::variable(std::string_view name, std::size_t& bytes) const {
    const auto found = parts_->code.globals.find(name);
    if (found == parts_->code.globals.end()) return nullptr;
    bytes = found->second.bytes;
    return found->second.begin;
}
bool module::holds(address at, std::size_t bytes) const {
    for (const auto& [name, g] : parts_->code.globals) {
        const auto begin = reinterpret_cast<std::uintptr_t>(g.begin);
        if (at >= begin && at - begin <= g.bytes && bytes <= g.bytes - (at - begin)) return true;
    }
    return false;
}
const kernel_facts& facts_of(const function& f) { return f.facts; }

// ---------------------------------------------------------------------------------------------------- memory
bool grid::holds(address at, std::size_t bytes) {
    constexpr std::uint64_t piece = 256;
    const std::uint64_t first = at / piece;
    if (first == (at + bytes - 1) / piece && known.contains(first)) return true;
    if (!global.holds(at, bytes) && !code.holds(at, bytes)) return false;
    if (global.holds(first * piece, piece)) known.insert(first);
    return true;
}

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
    const auto is_in = [&](const std::byte* begin, std::size_t size) { // the last addresses end in none
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

// ---------------------------------------------------------------------------------------------------- warps
namespace {
// Registers of warps that have ended, for the next ones: most of a short launch's time would go into new pages else.
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
    if (auto& kept = spare_registers(); !kept.empty()) registers_ = std::move(kept.back()), kept.pop_back();
    registers_.assign(std::size_t{kernel.registers} * warp_size, 0xcdcdcdcdcdcdcdcd); // registers begin with anything
    frames_ = b.frames_begin() + std::size_t{first} * kernel.stack_bytes;
    stack_bytes_ = kernel.stack_bytes;
    for (unsigned l = 0; l < count; ++l) {
        const unsigned n = first + l;
        threads_[l].in = &kernel, threads_[l].number = n;
        threads_[l].id = {n % size.x, n / size.x % size.y, n / size.x / size.y};
        all_ |= lanes{1} << l;
    }
}

// The threads at one place that run next, and the place at which others of them wait: the earliest place mostly, so
// that threads which parted meet again; any other now and then, for those may be waited for.
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
        t.in = i.callee, t.at = 0, t.base = base, t.frame = frame;
    });
}

void warp::go_back(lanes m, std::uint32_t) {
    each(m, [&](unsigned l) {
        thread& t = threads_[l];
        const thread::call c = t.calls.back();
        t.calls.pop_back();
        const std::byte* const theirs = frame_of(l);
        t.in = c.from, t.at = c.at, t.base = c.base, t.frame = c.frame;
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

// [bar.warp.sync, shfl.sync, vote.sync, match.sync]: threads wait until all whom they name are at the same instruction.
// True where all of the group went on together.
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
            each(same, [&](unsigned l) { threads_[l].state = standing::meets_warp, threads_[l].with = with; });
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
    // What is said of a failure is said of the instruction at which threads are.
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
                    go_back(m, at);
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

// ---------------------------------------------------------------------------------------------------- blocks
block::block(grid& g, extent index, unsigned number)
    : grid_(g), index_(index), number_(number), shared_(new std::byte[g.shared_bytes + 1024]) {
    shared_begin_ = shared_.get();
    while (reinterpret_cast<std::uintptr_t>(shared_begin_) % 1024 != 0) ++shared_begin_;
    std::memset(shared_begin_, 0xcd, g.shared_bytes); // shared memory begins with anything
    const extent size = g.what.block;
    const unsigned threads = size.x * size.y * size.z;
    frames_.resize(std::size_t{threads} * g.what.kernel->stack_bytes + 16);
    for (unsigned first = 0; first < threads; first += warp_size)
        warps_.emplace_back(*this, first, std::min(warp_size, threads - first));
}

bool block::all_ended() const {
    return std::all_of(warps_.begin(), warps_.end(), [](const warp& w) { return w.all_ended(); });
}
unsigned block::living() const {
    unsigned n = 0;
    for (const warp& w : warps_) n += static_cast<unsigned>(std::popcount(w.living()));
    return n;
}

void block::come(warp& w, unsigned lane, unsigned id, unsigned expected, bool vote) {
    if (id >= barriers_.size()) w.fail(fault::kind::barrier, lane, "there are 16 barriers");
    if (expected % warp_size != 0) w.fail(fault::kind::barrier, lane, "a barrier counts whole warps");
    barrier& b = barriers_[id];
    if (!b.here.empty() && b.expected != expected)
        w.fail(fault::kind::barrier, lane, "threads came to one barrier with different counts");
    b.expected = expected;
    b.any = b.any || vote, b.all = b.all && vote;
    w.at(lane).state = standing::meets_block;
    b.here.emplace_back(&w, lane);
    open_if_complete(b);
}

void block::open_if_complete(barrier& b) {
    if (b.here.empty()) return;
    const unsigned expected = b.expected == 0 ? living() : b.expected;
    if (b.here.size() < expected) return;
    // [aligned]: all living threads of a warp come, and to the same instruction.
    std::vector<std::pair<warp*, unsigned>> here = std::exchange(b.here, {});
    for (const auto& [w, lane] : here) {
        if (!w->instruction_of(lane).aligned) continue;
        each(w->living(), [&, w = w, lane = lane](unsigned l) {
            const thread& t = w->at(l);
            if (t.state != standing::meets_block || t.in != w->at(lane).in || t.at != w->at(lane).at)
                w->fail(fault::kind::barrier, l,
                        "a thread is not at the barrier at which others of its warp are: '" +
                            w->instruction_of(lane).text + "'");
        });
    }
    for (const auto& [w, lane] : here) {
        const instruction& i = w->instruction_of(lane);
        if (i.tos != 0) {
            const std::uint64_t result = i.is_all ? b.all : b.any;
            w->registers_[(w->at(lane).base + static_cast<std::size_t>(i.to[0])) * warp_size + lane] = result;
        }
        w->let_go(lane);
    }
    b.any = false, b.all = true, b.expected = 0;
}

void block::look_again() {
    for (barrier& b : barriers_)
        if (b.expected == 0) open_if_complete(b);
}

// ---------------------------------------------------------------------------------------------------- a launch
namespace {

void run_blocks(std::deque<block>& blocks, grid& g, std::minstd_rand& dice, const std::atomic<bool>& stop) {
    unsigned idle = 0;
    std::vector<warp*> order;
    for (block& b : blocks)
        for (warp& w : b.warps()) order.push_back(&w);
    while (!order.empty()) {
        if (stop.load(std::memory_order_relaxed)) return;
        std::shuffle(order.begin(), order.end(), dice);
        const std::size_t wrote = g.wrote;
        bool any = false, ended = false;
        for (warp* w : order) {
            any = w->turn(50 + static_cast<unsigned>(dice() % 400), dice) || any;
            ended = ended || w->all_ended();
        }
        if (ended) std::erase_if(order, [](const warp* w) { return w->all_ended(); });
        if (!any && !ended) {
            const warp& w = *order.front();
            const auto waits = static_cast<unsigned>(std::countr_zero(w.living()));
            w.fail(fault::kind::barrier, waits, "all threads wait for others that never come: one of them");
        }
        idle = g.wrote == wrote && !ended ? idle + 1 : 0;
        if (idle > 4) {
            g.known.clear();
            std::this_thread::sleep_for(std::chrono::microseconds(idle > 50 ? 200 : 5));
        }
    }
}

} // namespace

void run(const launch& l, const memory& m, const std::atomic<bool>& stop) {
    const function& f = *l.kernel;
    grid g{l, m, *f.home, 0, 0, {}};
    g.shared_bytes = (f.shared_bytes_of_module + 127) / 128 * 128 + l.dynamic_shared_bytes;
    std::minstd_rand dice(static_cast<std::uint32_t>(l.seed + 1));
    const std::uint64_t count = std::uint64_t{l.grid.x} * l.grid.y * l.grid.z;
    const std::uint64_t at_once = l.cooperative ? count : std::max(1u, l.resident);
    for (std::uint64_t first = 0; first < count && !stop.load(std::memory_order_relaxed); first += at_once) {
        std::deque<block> blocks;
        for (std::uint64_t n = first; n < std::min(count, first + at_once); ++n)
            blocks.emplace_back(g,
                                extent{static_cast<unsigned>(n % l.grid.x),
                                       static_cast<unsigned>(n / l.grid.x % l.grid.y),
                                       static_cast<unsigned>(n / l.grid.x / l.grid.y)},
                                static_cast<unsigned>(n));
        run_blocks(blocks, g, dice, stop);
    }
}

} // namespace software_gpu
