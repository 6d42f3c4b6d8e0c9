// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verbs on types and operators that are chosen at run time: collx::any::all_reduce(world, x, any_op::max). They
// are functions, not templates: with collx::collx a program compiles none of what they call, however many types and
// operators it offers. The bodies (any_once.hpp) call the typed verbs, so what holds for those holds here.
//
//   std::vector<std::byte> memory = ...;
//   const collx::any_buffer x{memory.data(), count, type}; // type: a collx::any_type, known at run time
//   collx::any::all_reduce(world, x, op);
//   auto handle = collx::any::async::broadcast(world, x, {.root = 2});
//   auto sum = collx::any::persistent::all_reduce(world, x, op); // refers to the memory, not to x
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <collx/call/persistent.hpp>
#include <collx/call/verb_table.hpp>
#include <collx/call/work.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/comm/options.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/core/any_type.hpp>
#include <collx/core/result.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// One number for each rank, or none. Refers to the list.
class any_counts {
public:
    using value_type = std::size_t;
    any_counts() = default;
    template <class List>
    requires requires(const List& l, const std::size_t*& p) {
        p = l.data();
        l.size();
    }
    any_counts(const List& l) : data_(l.data()), size_(l.size()) {}
    const std::size_t* data() const { return data_; }
    std::size_t size() const { return size_; }

private:
    const std::size_t* data_ = nullptr;
    std::size_t size_ = 0;
};

// Both buffers of a call; in place they are one.
struct any_buffers {
    any_buffer in, out;
    bool in_place;
    any_buffers(const any_buffer& x) : in(x), out(x), in_place(true) {}
    any_buffers(const any_buffer& i, const any_buffer& o) : in(i), out(o), in_place(false) {}
};
struct any_request {
    verb what;
    any_buffers on;
    any_op op = any_op::plus;
    any_counts counts = {}, offsets = {}, recv_counts = {}, recv_offsets = {};
    int peer = 0, from_peer = 0;
    call_options options = {};
};
void run_any(communicator& c, const any_request& r);
work<void> start_any(communicator& c, const any_request& r);
persistent_call make_any(communicator& c, const any_request& r);

template <class Mode>
auto call_any(communicator& c, const any_request& r) {
    if constexpr (std::is_same_v<Mode, async_mode>) {
        return start_any(c, r);
    } else if constexpr (std::is_same_v<Mode, persistent_mode>) {
        return make_any(c, r);
    } else if constexpr (std::is_same_v<Mode, try_mode>) {
        try {
            run_any(c, r);
            return result<void>();
        } catch (const error& e) {
            return result<void>(e);
        }
    } else {
        run_any(c, r);
    }
}

// Errors for arguments of the typed verbs. Each overload is viable only where no form of the verb is.
template <class X>
inline constexpr bool is_any_buffer_v = std::is_convertible_v<X, any_buffer>;
template <class X>
inline constexpr bool is_any_option_v = std::is_convertible_v<X, any_op> || std::is_convertible_v<X, any_counts> ||
                                        std::is_convertible_v<X, call_options> || std::is_convertible_v<X, int>;
struct any_refusals {
    template <class Comm, class... Rest>
    requires(!std::is_convertible_v<Comm&, communicator&>) void operator()(Comm&&, const Rest&...) const {
        static_assert(std::is_convertible_v<Comm&, communicator&>,
                      "collx: the first argument of an any:: call is the communicator itself, without policies: "
                      "collx::any::all_reduce(world, collx::as_any(x)).");
    }
    template <class X, class... Rest>
    requires(!is_any_buffer_v<X>) void operator()(communicator&, X&&, const Rest&...) const { refuse_buffer<X>(); }
    template <class X> // followed by options in braces, whose type a pack does not deduce
    requires(!is_any_buffer_v<X>) void operator()(communicator&, X&&, const call_options&) const { refuse_buffer<X>(); }
    template <class X, class... Rest>
    requires(!is_any_buffer_v<X> && !is_any_option_v<X>) void operator()(communicator&, const any_buffer&, X&&,
                                                                         const Rest&...) const {
        static_assert(is_any_option_v<X>,
                      "collx: this is neither an any_buffer, which collx::as_any(x) makes of numbers, nor an operator "
                      "of any:: calls, for example collx::any_op::max.");
    }
    void operator()(refused_call<call_form::any>, ...) const;

private:
    template <class X>
    static constexpr void refuse_buffer() {
        static_assert(is_any_buffer_v<X>,
                      "collx: this is no any_buffer. collx::as_any(x) makes one of a vector or span of numbers that "
                      "may be written, collx::any_buffer{memory, count, type} one of bytes.");
    }
};

// The forms of one verb, as its row says.
template <class Mode, verb V>
struct any_front : any_refusals {
    static constexpr verb_row row = row_of(V);
    static constexpr bool is_counted = row.counts != counts_known_by::none;
    static constexpr bool reduces = row.reduces() && !is_counted, reduces_v = row.reduces() && is_counted;
    static constexpr bool moves = !row.reduces() && !is_counted && !row.is_message();
    static constexpr bool exchanges_v = row.counts == counts_known_by::own;
    static constexpr bool moves_v = !row.reduces() && is_counted && !exchanges_v;
    using any_refusals::operator();

    auto operator()(communicator& c, const any_buffer& x, any_op op = any_op::plus,
                    const call_options& o = {}) const requires reduces {
        return call_any<Mode>(c, {.what = V, .on = {x}, .op = op, .options = o});
    }
    auto operator()(communicator& c, const any_buffer& in, const any_buffer& out, any_op op = any_op::plus,
                    const call_options& o = {}) const requires reduces {
        return call_any<Mode>(c, {.what = V, .on = {in, out}, .op = op, .options = o});
    }
    auto operator()(communicator& c, const any_buffer& x, const any_counts& counts, any_op op = any_op::plus,
                    const call_options& o = {}) const requires reduces_v {
        return call_any<Mode>(c, {.what = V, .on = {x}, .op = op, .counts = counts, .options = o});
    }
    auto operator()(communicator& c, const any_buffer& in, const any_buffer& out, const any_counts& counts,
                    any_op op = any_op::plus, const call_options& o = {}) const requires reduces_v {
        return call_any<Mode>(c, {.what = V, .on = {in, out}, .op = op, .counts = counts, .options = o});
    }
    auto operator()(communicator& c, const any_buffer& x, const call_options& o = {}) const
        requires(row.takes_one&& moves) {
        return call_any<Mode>(c, {.what = V, .on = {x}, .options = o});
    }
    auto operator()(communicator& c, const any_buffer& in, const any_buffer& out, const call_options& o = {}) const
        requires(row.takes_two&& moves) {
        return call_any<Mode>(c, {.what = V, .on = {in, out}, .options = o});
    }
    auto operator()(communicator& c, const any_buffer& in, const any_buffer& out, const any_counts& counts,
                    const any_counts& offsets = {}, const call_options& o = {}) const requires moves_v {
        return call_any<Mode>(c, {.what = V, .on = {in, out}, .counts = counts, .offsets = offsets, .options = o});
    }
    // Options in the offsets' place: one part follows the other. (A template, so that {} still means offsets.)
    template <std::same_as<call_options> O = call_options>
    auto operator()(communicator& c, const any_buffer& in, const any_buffer& out, const any_counts& counts,
                    const O& o) const requires moves_v {
        return (*this)(c, in, out, counts, any_counts(), o);
    }
    auto operator()(communicator& c, const any_buffer& x, const any_counts& counts, const any_counts& offsets = {},
                    const call_options& o = {}) const requires exchanges_v {
        return call_any<Mode>(c, {.what = V, .on = {x}, .counts = counts, .offsets = offsets, .options = o});
    }
    template <std::same_as<call_options> O = call_options>
    auto operator()(communicator& c, const any_buffer& x, const any_counts& counts,
                    const O& o) const requires exchanges_v {
        return (*this)(c, x, counts, any_counts(), o);
    }
    auto operator()(communicator& c, const any_buffer& in, const any_counts& send_counts,
                    const any_counts& send_offsets, const any_buffer& out, const any_counts& recv_counts,
                    const any_counts& recv_offsets, const call_options& o = {}) const requires exchanges_v {
        return call_any<Mode>(c, {.what = V,
                                  .on = {in, out},
                                  .counts = send_counts,
                                  .offsets = send_offsets,
                                  .recv_counts = recv_counts,
                                  .recv_offsets = recv_offsets,
                                  .options = o});
    }
    auto operator()(communicator& c, const any_buffer& x, int peer, const call_options& o = {}) const
        requires(row.is_message() && row.takes_one) {
        return call_any<Mode>(c, {.what = V, .on = {x}, .peer = peer, .options = o});
    }
    auto operator()(communicator& c, const any_buffer& outgoing, int to_rank, const any_buffer& incoming, int from_rank,
                    const call_options& o = {}) const requires(row.is_message() && row.takes_two) {
        return call_any<Mode>(
            c, {.what = V, .on = {outgoing, incoming}, .peer = to_rank, .from_peer = from_rank, .options = o});
    }
};

} // namespace detail

// The verbs with the arguments of their typed forms: an any_buffer for a tensor, an any_op for an operator, lists of
// std::size_t for counts.
// Shape, Cost, Order: as the typed verbs. float16 and bfloat16 are combined as float and rounded once where several
//     operands meet, and after each step between ranks.
// Requires: all ranks make a call that only moves data in this form; of a reduction, some may make the typed call.
//     These calls and typed ones may follow each other in any order.
// Errors: as the typed verbs. Before anything is sent, on this rank alone: invalid_argument for an operator that does
//     not combine the type (bits of floats, sums of booleans, order of complex numbers), two types in one call, an
//     invalid type or operator, memory that is not aligned for the type.
namespace any {

#define COLLX_ANY_VERBS(Mode)                                                                    \
    inline constexpr detail::any_front<Mode, detail::verb::all_reduce> all_reduce{};             \
    inline constexpr detail::any_front<Mode, detail::verb::reduce> reduce{};                     \
    inline constexpr detail::any_front<Mode, detail::verb::reduce_scatter> reduce_scatter{};     \
    inline constexpr detail::any_front<Mode, detail::verb::reduce_scatter_v> reduce_scatter_v{}; \
    inline constexpr detail::any_front<Mode, detail::verb::scan> scan{};                         \
    inline constexpr detail::any_front<Mode, detail::verb::exclusive_scan> exclusive_scan{};     \
    inline constexpr detail::any_front<Mode, detail::verb::broadcast> broadcast{};               \
    inline constexpr detail::any_front<Mode, detail::verb::all_gather> all_gather{};             \
    inline constexpr detail::any_front<Mode, detail::verb::all_gather_v> all_gather_v{};         \
    inline constexpr detail::any_front<Mode, detail::verb::gather> gather{};                     \
    inline constexpr detail::any_front<Mode, detail::verb::gather_v> gather_v{};                 \
    inline constexpr detail::any_front<Mode, detail::verb::scatter> scatter{};                   \
    inline constexpr detail::any_front<Mode, detail::verb::scatter_v> scatter_v{};               \
    inline constexpr detail::any_front<Mode, detail::verb::all_to_all> all_to_all{};             \
    inline constexpr detail::any_front<Mode, detail::verb::all_to_all_v> all_to_all_v{};         \
    inline constexpr detail::any_front<Mode, detail::verb::send> send{};                         \
    inline constexpr detail::any_front<Mode, detail::verb::recv> recv{};                         \
    inline constexpr detail::any_front<Mode, detail::verb::sendrecv> sendrecv{};

COLLX_ANY_VERBS(detail::blocking_mode)
namespace async {
COLLX_ANY_VERBS(detail::async_mode)
}
namespace try_ {
COLLX_ANY_VERBS(detail::try_mode)
} // namespace try_
namespace persistent {
COLLX_ANY_VERBS(detail::persistent_mode)
}
#undef COLLX_ANY_VERBS

} // namespace any

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/comm/any_once.hpp>
#endif
