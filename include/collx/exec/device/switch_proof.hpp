// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests a switch before anything relies on it: it adds up known numbers and stores them to all ranks' exchange
// memories. Written for an environment, like the executor.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/op.hpp>
#include <collx/exec/device/control.hpp>
#include <collx/exec/device/units.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// One block. All ranks run it phase by phase, and wait for all others in between. Each memory has a first line and
// behind it one line for each rank. A rank writes the first line of its own memory. Then it stores the sum of all first
// lines, plus its number, to the line for itself in all memories. Then it checks the ranks' lines in its own memory,
// and then clears that.
struct switch_proof {
    enum class phase : unsigned char { write, sum, read, clear };

    std::byte* memory[max_ranks] = {}; // of all ranks, as this one's device sees it
    std::byte* of_all = nullptr;       // the same at one address
    int me = 0, ranks = 0;
    phase now = phase::write;
    std::uint64_t* wrong = nullptr; // of the host; set to 1 where a number is wrong

    static constexpr std::size_t memory_bytes = (max_ranks + 1) * line_bytes;

    template <class Env>
    COLLX_HD void operator()(Env& env, int, int) const {
        using numbers = pack<float, 4>;
        constexpr unsigned packs = line_bytes / sizeof(numbers);
        const std::size_t mine = static_cast<std::size_t>(me + 1) * line_bytes;
        const auto all = static_cast<unsigned>(ranks + 1) * packs;
        for (unsigned i = env.index(); i < all; i += env.threads()) {
            const std::size_t at = i * sizeof(numbers);
            numbers x{};
            if (now == phase::write && i < packs) {
                for (int k = 0; k < 4; ++k) x.v[k] = given(me, i, k);
                store_pack<Env>(memory[me] + at, x);
            }
            if (now == phase::sum && i < packs) {
                x = Env::template reduce_at<plus, float, 4>(memory, ranks, of_all, at);
                for (float& v : x.v) v += static_cast<float>(me);
                Env::store_at(memory, ranks, of_all, mine + at, x);
            }
            if (now == phase::read && i >= packs) {
                x = load_pack<Env, float, 4>(memory[me] + at);
                for (int k = 0; k < 4; ++k) {
                    float sum = static_cast<float>(i / packs - 1);
                    for (int r = 0; r < ranks; ++r) sum += given(r, i % packs, k);
                    if (x.v[k] != sum) Env::store_relaxed(wrong, 1);
                }
            }
            if (now == phase::clear) store_pack<Env>(memory[me] + at, x);
        }
    }

private:
    // Whole numbers, so that sums are exact.
    COLLX_HD static float given(int rank, unsigned pack_number, int k) {
        return static_cast<float>((rank + 1) * 64 + static_cast<int>(pack_number) * 4 + k);
    }
};
static_assert(switch_proof::memory_bytes <= sizeof(rank_control));

} // namespace device
COLLX_END_NAMESPACE
