// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The templates behind calls.hpp. Operations that only move data are instantiated once for each width, not for each
// type; reductions once for each type and operator. Algorithms by name, and shared buffers, exist for float and sum.
#pragma once

#include <stdexcept>

#include <collx/algo/algorithms.hpp>
#include <collx/collx.hpp>

#include "calls.hpp"

namespace collx::tools::perf {

// The communicator, plain or with policies bound, is part of the type, so that the loop tests no setting.
template <operation Verb, class View, class Comm, class Op>
class verb_calls final : public timed_calls {
    using T = typename View::value_type;

public:
    verb_calls(const call_request& r, Comm comm)
        : r_(r), comm_(comm), send_(static_cast<T*>(r.send), r.whole), recv_(static_cast<T*>(r.recv), r.whole),
          send_part_(static_cast<T*>(r.send), r.count), recv_part_(static_cast<T*>(r.recv), r.count) {
        if constexpr (Verb == operation::all_to_all_v) {
            counts_ = uneven_counts_of(r.whole, r.rank, r.ranks);
            send_ = View(static_cast<T*>(r.send), counts_.sent);
            recv_ = View(static_cast<T*>(r.recv), counts_.received);
        }
    }

    void run(int calls) override {
        if (is_rooted(Verb) && r_.root < 0) {
            for (int i = 0, root = 0; i < calls; ++i) {
                call(root);
                if (++root == r_.ranks) root = 0;
            }
        } else if (has_in_place(Verb) && r_.in_place) {
            for (int i = 0; i < calls; ++i) call_in_place();
        } else {
            for (int i = 0; i < calls; ++i) call(r_.root);
        }
    }
    void run_once(int root) override {
        if (has_in_place(Verb) && r_.in_place) call_in_place();
        else call(root);
    }

private:
    void call_in_place() {
        if constexpr (Verb == operation::all_reduce) collx::all_reduce(comm_, recv_, Op{});
        else if constexpr (Verb == operation::reduce_scatter) collx::reduce_scatter(comm_, recv_, Op{});
        else if constexpr (Verb == operation::all_gather) collx::all_gather(comm_, recv_);
    }
    void call([[maybe_unused]] int root) {
        if constexpr (Verb == operation::all_reduce) collx::all_reduce(comm_, send_, recv_, Op{});
        else if constexpr (Verb == operation::reduce_scatter) collx::reduce_scatter(comm_, send_, recv_part_, Op{});
        else if constexpr (Verb == operation::all_gather) collx::all_gather(comm_, send_part_, recv_);
        else if constexpr (Verb == operation::broadcast) collx::broadcast(comm_, send_, {.root = root});
        else if constexpr (Verb == operation::reduce) collx::reduce(comm_, send_, recv_, Op{}, {.root = root});
        else if constexpr (Verb == operation::scan) collx::scan(comm_, send_, recv_, Op{});
        else if constexpr (Verb == operation::gather) collx::gather(comm_, send_part_, recv_, {.root = root});
        else if constexpr (Verb == operation::scatter) collx::scatter(comm_, send_, recv_part_, {.root = root});
        else if constexpr (Verb == operation::all_to_all) collx::all_to_all(comm_, send_, recv_);
        else if constexpr (Verb == operation::all_to_all_v)
            collx::all_to_all_v(comm_, send_, counts_.send, recv_, counts_.receive);
        else if constexpr (Verb == operation::barrier) collx::barrier(comm_);
        else if constexpr (Verb == operation::sendrecv)
            collx::sendrecv(comm_, send_, (r_.rank + 1) % r_.ranks, recv_, (r_.rank + r_.ranks - 1) % r_.ranks);
        else if constexpr (Verb == operation::pingpong) {
            if (r_.rank == 0) {
                collx::send(comm_, send_, 1);
                collx::recv(comm_, recv_, 1);
            } else if (r_.rank == 1) {
                collx::recv(comm_, recv_, 0);
                collx::send(comm_, send_, 0);
            }
        }
    }

    call_request r_;
    Comm comm_;
    View send_, recv_, send_part_, recv_part_;
    uneven_counts counts_;
};

template <operation Verb, class View, class Op, class Comm>
std::unique_ptr<timed_calls> bind_calls(const call_request& r, Comm comm) {
    return std::make_unique<verb_calls<Verb, View, Comm, Op>>(r, comm);
}

template <operation Verb, class View, class Op>
std::unique_ptr<timed_calls> bind_algorithm(const call_request& r) {
    std::unique_ptr<timed_calls> made;
    if constexpr (collective_of(Verb).has_value())
        algo::algorithms<*collective_of(Verb)>::for_each([&](auto algorithm) {
            if (r.algorithm == algorithm.name)
                made = bind_calls<Verb, View, Op>(r, r.world->with(algorithm, piece{r.piece_bytes}));
        });
    if (!made)
        throw std::invalid_argument(std::string(long_name(Verb)) + " has no algorithm '" + r.algorithm +
                                    "'; --list names those it has.");
    return made;
}

// Binds plain calls of the plain communicator unless a policy is set: what a program without policies runs.
template <operation Verb, class View, class Op>
std::unique_ptr<timed_calls> bind_policies(const call_request& r) {
    if (!r.algorithm.empty()) return bind_algorithm<Verb, View, Op>(r);
    if (r.attach) {
        if constexpr (!View::is_window && has_attach(Verb))
            return bind_calls<Verb, View, Op>(r, r.world->with(attach{}));
        else throw std::invalid_argument("--attach is for broadcast, all_gather and all_to_all without --shared.");
    }
    if (r.piece_bytes == 0) return bind_calls<Verb, View, Op, communicator&>(r, *r.world);
    return bind_calls<Verb, View, Op>(r, r.world->with(piece{r.piece_bytes}));
}

// For float and sum everything can be varied. Other types and operators run as in a program without policies.
template <operation Verb, class T, class Op>
std::unique_ptr<timed_calls> bind_memory(const call_request& r) {
    if constexpr (std::is_same_v<T, float> && std::is_same_v<Op, plus>) {
        if (r.shared) return bind_policies<Verb, window_view<T>, Op>(r);
        return bind_policies<Verb, contiguous_view<T>, Op>(r);
    } else {
        if (r.shared || r.attach || r.piece_bytes != 0 || !r.algorithm.empty())
            throw std::invalid_argument(
                "--algo, --piece, --shared and --attach are built for float and sum; leave -d and -o out.");
        return bind_calls<Verb, contiguous_view<T>, Op, communicator&>(r, *r.world);
    }
}

template <class T, class Op>
std::unique_ptr<timed_calls> bind_reduction(const call_request& r) {
    switch (r.op) {
        case operation::all_reduce: return bind_memory<operation::all_reduce, T, Op>(r);
        case operation::reduce_scatter: return bind_memory<operation::reduce_scatter, T, Op>(r);
        case operation::reduce: return bind_memory<operation::reduce, T, Op>(r);
        default: return bind_memory<operation::scan, T, Op>(r);
    }
}

template <class T>
std::unique_ptr<timed_calls> make_reducing_calls(const call_request& r) {
    switch (r.how) {
        case reduction::sum: return bind_reduction<T, plus>(r);
        case reduction::prod: return bind_reduction<T, multiplies>(r);
        case reduction::min: return bind_reduction<T, collx::min>(r);
        case reduction::max: return bind_reduction<T, collx::max>(r);
        default: return bind_reduction<T, average>(r);
    }
}

template <class Bits>
std::unique_ptr<timed_calls> make_moving_calls(const call_request& r) {
    const auto made = [&]<operation Verb>() { return bind_memory<Verb, Bits, plus>(r); };
    switch (r.op) {
        case operation::all_gather: return made.template operator()<operation::all_gather>();
        case operation::broadcast: return made.template operator()<operation::broadcast>();
        case operation::all_to_all: return made.template operator()<operation::all_to_all>();
        case operation::all_to_all_v: return made.template operator()<operation::all_to_all_v>();
        case operation::barrier: return made.template operator()<operation::barrier>();
        case operation::pingpong: return made.template operator()<operation::pingpong>();
        case operation::sendrecv: return made.template operator()<operation::sendrecv>();
        case operation::gather: return made.template operator()<operation::gather>();
        default: return made.template operator()<operation::scatter>();
    }
}

} // namespace collx::tools::perf
