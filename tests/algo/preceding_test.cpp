// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `preceding` combines preceding values with results that exist already. The verifier does not know this collective,
// so the test executes the programs of all ranks, on strings, over channels of one slot.
#include <collx/algo/preceding.hpp>

#include <deque>
#include <map>

#include "checks.hpp"

using namespace checks;

namespace {

using words = std::vector<std::vector<std::string>>; // of each rank, for each chunk

// Runs all ranks' programs in turn until none can continue. Returns false if a program did not reach its end.
bool run(const schedule& s, const words& in, words& out) {
    std::map<std::pair<int, int>, std::deque<std::string>> channels;
    const auto n = static_cast<unsigned>(s.ranks);
    std::vector<unsigned> next(n);
    for (bool moves = true; moves;) {
        moves = false;
        for (unsigned r = 0; r < n; ++r) {
            const auto& program = s.programs[r].strands[0];
            if (next[r] == program.size()) continue;
            const step& st = program[next[r]];
            const int me = static_cast<int>(r);
            if ((st.what & recv) != 0) {
                auto& from = channels[{st.peer_from, me}];
                if (from.empty()) continue;
                std::string& to = out[r][static_cast<unsigned>(st.dst.chunks.first)];
                to = from.front() + ((st.what & reduce) != 0 ? to : "");
                from.pop_front();
            } else {
                auto& to = channels[{me, st.peer_to}];
                if (!to.empty()) continue;
                to.push_back(in[r][static_cast<unsigned>(st.src.chunks.first)]);
            }
            ++next[r];
            moves = true;
        }
    }
    for (unsigned r = 0; r < n; ++r)
        if (next[r] != s.programs[r].strands[0].size()) return false;
    return true;
}

template <bool Exclusive>
void check(int n) {
    INFO(n << " ranks");
    const auto size = static_cast<unsigned>(n);
    words in(size, std::vector<std::string>(size, "?")), out = in, expected = in;
    for (unsigned r = 0; r < size; ++r) {
        in[r][r] = "before" + std::to_string(r);
        for (unsigned k = 0; k < size; ++k) {
            out[r][k] = "+own" + std::to_string(r);
            expected[r][k] = "before" + std::to_string(k) + (Exclusive && r == 0 ? "" : out[r][k]);
        }
    }
    CHECK(run(record_all(preceding<Exclusive>{}, n), in, out));
    CHECK(out == expected);
}

} // namespace

TEST_CASE("the steps of what precedes") {
    CHECK(steps(preceding<false>{}, 1, 3) == lines{"in[1] -> 1", "in[1] -> 2", "in[1] -> 0", "1 + out[1] -> out[1]",
                                                   "0 + out[0] -> out[0]", "2 + out[2] -> out[2]"});
    CHECK(steps(preceding<true>{}, 0, 2) == lines{"in[0] -> 0", "in[0] -> 1", "0 -> out[0]", "1 -> out[1]"});
    CHECK(steps(preceding<true>{}, 1, 2) ==
          lines{"in[1] -> 1", "in[1] -> 0", "1 + out[1] -> out[1]", "0 + out[0] -> out[0]"});
}

TEST_CASE("what precedes comes before the results of all ranks, for all rank counts") {
    for (int n = 1; n <= 17; ++n) {
        check<false>(n);
        check<true>(n);
    }
}
