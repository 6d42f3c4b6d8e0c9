// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The row of the table that a call takes, found without binding: venues in the order of select(). For explanations.
#pragma once

#include <collx/plan/choose.hpp>
#include <collx/plan/problem.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

struct choice_made {
    choices::venue where;
    const choices::row* row; // never null
};

inline choice_made row_of_call(collective c, const problem& p) {
    problem known = p;
    if (p.links != nullptr) {
        const links_choice& l = *p.links;
        if (l.hosts != nullptr) known.hosts = l.hosts;
        choices::situation s = known.hosts != nullptr ? situation_on(*known.hosts, known) : situation_of(known);
        s.by_rail = l.has_rails && !p.windows;
        s.rings_pay = l.ring_count != 0 && (!p.windows || l.beats_windows);
        const choices::venue where = known.hosts != nullptr ? choices::rails : choices::links;
        if (const choices::row* const r = find_choice(where, c, s)) return {where, r};
    }
    if (p.windows) return {choices::memory, find_choice(choices::memory, c, situation_of(known))};
    if (known.hosts != nullptr)
        if (const choices::row* const r = find_choice(choices::hosts, c, situation_on(*known.hosts, known)))
            return {choices::hosts, r};
    return {choices::channels, find_choice(choices::channels, c, situation_of(known))};
}

} // namespace detail
COLLX_END_NAMESPACE
