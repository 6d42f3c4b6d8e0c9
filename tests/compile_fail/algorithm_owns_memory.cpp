// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: collx: a kernel gets its algorithm as a copy of its bytes
#include <vector>

#include <collx/exec/device/team.hpp>
#include <collx/testing/twin.hpp>

struct owning {
    static constexpr const char* name = "owning";
    static constexpr collx::collective op = collx::collective::broadcast;
    static constexpr int chunks(int) { return 1; }
    template <class Ex>
    constexpr void operator()(Ex&, int, int) const {}
#ifdef COLLX_FAIL
    std::vector<int> order;
#else
    int order[16] = {};
#endif
};

void prepare(collx::device::team<collx::device::twin_machine>& team) {
    using view = collx::contiguous_view<float>;
    using types = collx::device::call_types<view, view, collx::device::move_only>;
    (void)team.prepare<types, collx::device::simple_protocol>(
        owning(), collx::device::even_cuts(), [](int) { return collx::device::rank_operands<types>(); });
}
