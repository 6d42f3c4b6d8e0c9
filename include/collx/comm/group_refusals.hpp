// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors for arguments that no form of a member of group or device_group takes: what is no tensor, too few or too many
// arguments, a misspelt option in braces, an output in the operator's place. The compiler chooses the members here
// last; without them it would list all forms. refusals.hpp does the same for the verbs. Independent of what a
// group does.
#pragma once

#include <type_traits>

#include <collx/call/neighbor_edges.hpp>
#include <collx/comm/refusals.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// What the forms of a member take.
enum class member_form { reduction, rooted_reduction, movement, exchange, message, graph };

#define COLLX_NO_MEMBER(TAKES)                                                      \
    "collx: no form of this call takes these arguments in a group. It takes " TAKES \
    ", but no communicator, which the group has, and no options, which launch() takes. Is an argument missing?"
template <member_form F, class First>
constexpr bool refuse_member() {
    constexpr bool holds = sizeof(First*) == 0;
    static_assert(holds || F != member_form::reduction,
                  COLLX_NO_MEMBER("one buffer and an operator (the sum if there is none)"));
    static_assert(holds || F != member_form::rooted_reduction,
                  COLLX_NO_MEMBER("one buffer, the root's rank and an operator (the sum if there is none)"));
    static_assert(holds || F != member_form::movement, COLLX_NO_MEMBER("one buffer and the root's rank"));
    static_assert(holds || F != member_form::exchange, COLLX_NO_MEMBER("an input and an output"));
    static_assert(holds || F != member_form::message, COLLX_NO_MEMBER("a buffer and the peer's rank"));
    static_assert(holds || F != member_form::graph,
                  COLLX_NO_MEMBER("the neighbours {sources, destinations}, an input and an output with their counts"));
    return holds;
}
#undef COLLX_NO_MEMBER

// Constructed from any first argument, or from none, of a call that no form takes: see refused_call.
template <member_form F, class Group, bool OnDevice>
struct refused_member {
    template <class First>
    refused_member(First&&) noexcept(refuse<First>()) {}

private:
    template <class First>
    static constexpr bool refuse() {
        constexpr bool is_host_buffer = OnDevice && HostBuffer<First>;
        static_assert(!is_host_buffer, "collx: a device_group takes buffers in device memory: a device_view, a "
                                       "thrust::device_vector, on_device(x). Those of the host go to collx::group.");
        if constexpr (is_host_buffer) return false;
        else if constexpr (!Buffer<First> && !Communicates<First> && F != member_form::graph &&
                           !std::is_same_v<First, nothing>) {
            refuse_tensor<First>();
            return false;
        } else return refuse_member<F, std::remove_reference_t<First>>();
    }
};

// A base of group_verbs. A template, because only then is a call without arguments refused where it is made.
template <class Group, bool OnDevice = false>
struct group_refusals {
    template <member_form F>
    using refused = refused_member<F, Group, OnDevice>;

    void all_reduce(refused<member_form::reduction> = nothing{}, ...) {}
    void reduce(refused<member_form::rooted_reduction> = nothing{}, ...) {}
    void broadcast(refused<member_form::movement> = nothing{}, ...) {}
    void all_gather(refused<member_form::exchange> = nothing{}, ...) {}
    void send(refused<member_form::message> = nothing{}, ...) {}
    void recv(refused<member_form::message> = nothing{}, ...) {}
    void all_to_all(refused<member_form::exchange> = nothing{}, ...) {}
    void reduce_scatter(refused<member_form::exchange> = nothing{}, ...) {}
    void scan(refused<member_form::reduction> = nothing{}, ...) {}
    void exclusive_scan(refused<member_form::reduction> = nothing{}, ...) {}
    void neighbor_all_gather(refused<member_form::graph> = nothing{}, ...) {}
    void neighbor_all_to_all(refused<member_form::graph> = nothing{}, ...) {}
    void neighbor_all_gather_v(refused<member_form::graph> = nothing{}, ...) {}
    void neighbor_all_to_all_v(refused<member_form::graph> = nothing{}, ...) {}
    // A second argument that is no buffer. (With a pack: else, in clang 14, a group's own members would hide them.)
    template <Buffer In, class Out, class... Rest>
    requires(!Buffer<Out>) void all_gather(In&&, Out&&, const Rest&...) { refuse_tensor<Out>(); }
    template <Buffer In, class Out, class... Rest>
    requires(!Buffer<Out>) void all_to_all(In&&, Out&&, const Rest&...) { refuse_tensor<Out>(); }
    template <Buffer In, class Out, class... Rest>
    requires(!Buffer<Out>) void reduce_scatter(In&&, Out&&, const Rest&...) { refuse_tensor<Out>(); }
    template <class In, class Out, class... Rest>
    requires(!Buffer<In> || !Buffer<Out>) void neighbor_all_gather(const neighbors&, In&&, Out&&, const Rest&...) {
        refuse_arguments<In, Out>();
    }
    template <class In, class Out, class... Rest>
    requires(!Buffer<In> || !Buffer<Out>) void neighbor_all_to_all(const neighbors&, In&&, Out&&, const Rest&...) {
        refuse_arguments<In, Out>();
    }
};

} // namespace detail
COLLX_END_NAMESPACE
