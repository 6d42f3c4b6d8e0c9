// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks, their barriers, and launches: determines which warp runs when.
#include <algorithm>
#include <chrono>
#include <thread>

#include "block.hpp"

namespace software_gpu {

bool grid::holds(address at, std::size_t bytes) {
    constexpr std::uint64_t piece = 256;
    const std::uint64_t first = at / piece;
    if (first == (at + bytes - 1) / piece && known.contains(first)) return true;
    if (!global.holds(at, bytes) && !code.holds(at, bytes)) return false;
    if (global.holds(first * piece, piece)) known.insert(first);
    return true;
}

block::block(grid& g, extent index, unsigned number)
    : grid_(g), index_(index), number_(number), shared_(new std::byte[g.shared_bytes + 1024]) {
    shared_begin_ = shared_.get();
    while (reinterpret_cast<std::uintptr_t>(shared_begin_) % 1024 != 0) ++shared_begin_;
    std::memset(shared_begin_, 0xcd, g.shared_bytes); // initially, shared memory has arbitrary contents
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
    b.any = b.any || vote;
    b.all = b.all && vote;
    w.at(lane).state = standing::meets_block;
    b.here.emplace_back(&w, lane);
    open_if_complete(b);
}

void block::open_if_complete(barrier& b) {
    if (b.here.empty()) return;
    const unsigned expected = b.expected == 0 ? living() : b.expected;
    if (b.here.size() < expected) return;
    // [aligned]: all living threads of a warp must arrive at the same instruction.
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
    b.any = false;
    b.all = true;
    b.expected = 0;
}

void block::look_again() {
    for (barrier& b : barriers_)
        if (b.expected == 0) open_if_complete(b);
}

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
