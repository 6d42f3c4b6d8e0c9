// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests a mapping before anything relies on it: ranks' kernels write words into each other's exchange memory and read
// them there. A driver may offer peer access over PCI Express where an IOMMU or a switch's access control changes or
// drops what passes. Written for an environment, like the executor.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/control.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// One block. All ranks run it phase by phase, and wait for all others in between. A rank writes a line into each
// memory, including its own; reads its line back, the owner's line, and what was written here; signals that it runs and
// waits for all others to signal; and clears its memory.
struct mapping_proof {
    enum class phase : unsigned char { write, read, meet, clear };

    std::byte* memory[max_ranks] = {}; // of all ranks, as this one's device sees it
    int me = 0, ranks = 0;
    phase now = phase::write;
    std::uint64_t salt = 0;         // the same on all ranks
    std::uint64_t limit_ns = 0;     // of meet
    std::uint64_t* wrong = nullptr; // of the host; one word per rank, set to 1 where a word is wrong or late

    static constexpr std::size_t memory_bytes = max_ranks * line_bytes;

    template <class Env>
    COLLX_HD void operator()(Env& env, int, int) const {
        constexpr unsigned words = line_bytes / sizeof(std::uint64_t);
        for (unsigned i = env.index(); i < static_cast<unsigned>(ranks) * words; i += env.threads()) {
            const int r = static_cast<int>(i / words);
            const unsigned k = i % words;
            if (now == phase::write) Env::store_relaxed(at(r, me, k), word(me, r, k));
            if (now == phase::clear) Env::store_relaxed(at(me, r, k), 0);
            if (now == phase::read &&
                (Env::load_relaxed(at(r, me, k)) != word(me, r, k) || Env::load_relaxed(at(r, r, k)) != word(r, r, k) ||
                 Env::load_relaxed(at(me, r, k)) != word(r, me, k)))
                Env::store_relaxed(&wrong[r], 1);
            if (now == phase::meet && k == 0) Env::store_relaxed(at(r, me, 0), ~word(me, r, 0));
        }
        if (now != phase::meet) return;
        const std::uint64_t begun = Env::now_ns();
        for (auto r = static_cast<int>(env.index()); r < ranks; r += static_cast<int>(env.threads())) {
            bool is_late = false;
            for (; Env::load_relaxed(at(me, r, 0)) != ~word(r, me, 0) && !is_late; Env::pause())
                is_late = Env::now_ns() - begun > limit_ns;
            if (is_late) Env::store_relaxed(&wrong[r], 1);
        }
    }

private:
    // Word k of the line of rank `from` in the memory of rank `of`.
    COLLX_HD std::uint64_t* at(int of, int from, unsigned k) const {
        return reinterpret_cast<std::uint64_t*>(memory[of] + static_cast<std::size_t>(from) * line_bytes) + k;
    }
    COLLX_HD std::uint64_t word(int from, int to, unsigned k) const {
        const auto place = static_cast<std::uint64_t>((from * max_ranks + to) * 64) + k + 1;
        return (salt ^ place) * 0x9e37'79b9'7f4a'7c15; // odd, so that different places have different words
    }
};

} // namespace device
COLLX_END_NAMESPACE
