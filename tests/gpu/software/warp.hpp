// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warp: threads that run the same instruction together while they are at the same place, and separately otherwise
// (independent thread scheduling, as from compute capability 7.0 on).
#pragma once

#include <bit>
#include <cstring>
#include <random>

#include "code.hpp"

namespace software_gpu {

struct grid;
class block;

enum class standing : std::uint8_t { ready, meets_warp, meets_block, ended };

// A thread: its place, and its return addresses.
struct thread {
    const function* in = nullptr;
    std::uint32_t at = 0;    // index of its next instruction
    std::uint32_t base = 0;  // the first row of its registers
    std::uint32_t frame = 0; // the first byte of its frame
    standing state = standing::ready;
    lanes with = 0;           // meets_warp: with which lanes
    unsigned barrier = 0;     // meets_block: at which barrier
    std::uint32_t number = 0; // its number in the block
    extent id;
    struct call {
        const function* from;
        std::uint32_t at, base, frame;
    };
    std::vector<call> calls;
};

class warp {
public:
    warp(block&, unsigned first_thread, unsigned threads);
    ~warp();
    warp(const warp&) = delete;
    warp& operator=(const warp&) = delete;

    // Runs the threads of one place for a while; returns false if none is ready.
    bool turn(unsigned instructions, std::minstd_rand& dice);
    bool all_ended() const { return ended_ == all_; }
    lanes living() const { return all_ & ~ended_; }

    // ---- for handlers: registers of the threads that run now, a row of 32 each.
    std::uint64_t* row(int slot) { return registers_.data() + (base_ + static_cast<std::size_t>(slot)) * warp_size; }
    thread& at(unsigned lane) { return threads_[lane]; }
    const thread& at(unsigned lane) const { return threads_[lane]; }
    block& of() { return block_; }
    std::byte* frame_of(unsigned lane) { return frames_ + std::size_t{lane} * stack_bytes_ + threads_[lane].frame; }
    // The memory behind an address, or throws fault. shared: the address is an offset into shared memory.
    std::byte* reach(unsigned lane, std::uint64_t address, std::size_t bytes, std::size_t alignment, bool writes);
    std::uint64_t address_of(unsigned lane, const place& p);
    [[noreturn]] void fail(fault::kind, unsigned lane, const std::string& what) const;

    void let_go(unsigned lane, standing = standing::ready); // from a barrier
    const instruction& instruction_of(unsigned lane) const { return threads_[lane].in->code[threads_[lane].at]; }

private:
    friend class block;
    lanes choose(std::minstd_rand&, std::uint32_t& stop_at);
    void set(lanes, std::uint32_t at);
    void call(const instruction&, lanes, std::uint32_t at);
    void go_back(lanes);
    void end(lanes);
    bool meet(const instruction&, lanes group, lanes guarded, std::uint32_t at);

    block& block_;
    std::vector<thread> threads_;
    std::vector<std::uint64_t> registers_;
    std::byte* frames_;
    std::uint32_t stack_bytes_; // a thread's variables, for all nested calls
    std::uint32_t base_ = 0;
    const instruction* now_ = nullptr; // the instruction that a handler's failure names
    lanes all_ = 0, ended_ = 0;
};

// Calls f for the threads of a set; for a full set a compiler can vectorise the loop.
template <class F>
inline void each(lanes m, F&& f) {
    if (m == ~lanes{0})
        for (unsigned l = 0; l < warp_size; ++l) f(l);
    else
        for (; m != 0; m &= m - 1) f(static_cast<unsigned>(std::countr_zero(m)));
}

// One source operand for all lanes.
class row_view {
public:
    row_view(warp& w, const source& s)
        : at_(s.slot < 0 ? &s.constant : w.row(s.slot)), step_(s.slot < 0 ? 0 : 1), flip_(s.negated ? 1 : 0) {}
    std::uint64_t operator[](unsigned lane) const { return at_[lane * step_] ^ flip_; } // only predicates are negated

private:
    const std::uint64_t* at_;
    unsigned step_;
    std::uint64_t flip_;
};

} // namespace software_gpu
