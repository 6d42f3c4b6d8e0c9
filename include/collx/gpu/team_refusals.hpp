// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refuses, with one error message, arguments that no form of a fused team's member takes: too few, a misspelt option
// in braces, a buffer in place of a list. The compiler takes these members last; without them it would list all forms.
// comm/group_refusals.hpp does the same for groups, with the communicator that a team does not know.
#pragma once

#include <type_traits>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <class Team>
struct refused_team_call {
    template <class First>
    refused_team_call(First&&) noexcept(refuse<First>()) {}

private:
    template <class First>
    static constexpr bool refuse() {
        static_assert(
            sizeof(std::remove_reference_t<First>*) == 0,
            "collx: no form of this call of a fused team takes these arguments. It takes a list with an input "
            "for each rank, one with the outputs, then what belongs to the verb: counts, the root, an "
            "operator; and options by name. Is an argument missing, an option misspelt?");
        return true;
    }
};
template <class Team>
struct team_refusals {
    using refused = refused_team_call<Team>;
    struct none {};

    void all_reduce(refused = none{}, ...) {}
    void all_gather(refused = none{}, ...) {}
    void all_gather_v(refused = none{}, ...) {}
    void reduce_scatter(refused = none{}, ...) {}
    void reduce_scatter_v(refused = none{}, ...) {}
    void gather(refused = none{}, ...) {}
    void gather_v(refused = none{}, ...) {}
    void scatter(refused = none{}, ...) {}
    void scatter_v(refused = none{}, ...) {}
    void all_to_all(refused = none{}, ...) {}
    void all_to_all_v(refused = none{}, ...) {}
    void send_recv(refused = none{}, ...) {}
    void broadcast(refused = none{}, ...) {}
    void reduce(refused = none{}, ...) {}
    void scan(refused = none{}, ...) {}
    void exclusive_scan(refused = none{}, ...) {}
};

} // namespace detail
COLLX_END_NAMESPACE
