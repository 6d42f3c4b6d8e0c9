// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Nearly an algorithm: what is missing, or would be passed over, is named.
// expect: collx: an algorithm names its collective: static constexpr collx::collective op.
// expect: collx: an algorithm has a name for messages
// expect: collx: an algorithm says into how many chunks n ranks cut the buffer
// expect: collx: an algorithm is called with an executor, a rank and the number of ranks
// expect: collx: an algorithm's scratch depends on the number of ranks
// expect: collx: min_depth is one number for all ranks
// expect: collx: signals is one number for all ranks
#include <collx/plan/policy.hpp>

using namespace collx;

struct whole {
    static constexpr collective op = collective::barrier;
    static constexpr const char* name = "whole";
    static constexpr int chunks(int) { return 0; }
    template <class Ex>
    constexpr void operator()(Ex&, int, int) const {}
};
#ifdef COLLX_FAIL
struct nameless {
    static constexpr int chunks(int) { return 0; }
    int name = 3;
};
struct uncut {
    static constexpr collective op = collective::barrier;
    static constexpr int chunks = 4;
    template <class Ex>
    void operator()(Ex&, int, int); // not const
};
struct odd : whole {
    static constexpr int tmp_chunks = 3;
    int min_depth = 2;
    static int signals(int);
};
void f() { detail::require_policy<nameless>(), detail::require_policy<uncut>(), detail::require_policy<odd>(); }
#else
void f() { detail::require_policy<whole>(); }
#endif
