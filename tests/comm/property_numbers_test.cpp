// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 needs=rapidcheck sanitize=nightly optimised
//
// Random sums and maxima of numbers, also with narrower wire types and beside outstanding calls, compared with a
// serial fold. All values are small integers, so that every sum is exact in every type.
#include "property_support.hpp"

#include <memory>

using namespace collx_test;
using collx::collective;

namespace {

int operand(const random_call& c, int rank, std::size_t i) {
    return static_cast<int>((c.seed + static_cast<unsigned>(rank) * 5 + static_cast<unsigned>(i) * 3) % 16);
}

template <class T, class Op>
std::vector<T> mine(const random_call& c, int rank, Op) {
    std::vector<T> x(c.count);
    for (std::size_t i = 0; i < c.count; ++i) x[i] = static_cast<T>(operand(c, rank, i));
    return x;
}
template <class T, class Op>
void check(collx::communicator& w, const random_call& c, const std::vector<T>& x, Op op) {
    for (std::size_t i = 0; i < c.count; ++i) {
        int e = operand(c, 0, i);
        for (int r = 1; r < w.size(); ++r) e = op(e, operand(c, r, i));
        EXPECT_AT(i, x[i] == static_cast<T>(e));
    }
}

const auto any = [](auto) { return true; };

template <class T, class Op, class... Policies>
void all_reduce(collx::communicator& w, const random_call& c, Op op, Policies... more) {
    run_with<collective::all_reduce>(
        w, c, any,
        [&](auto&& comm) {
            auto x = mine<T>(c, w.rank(), op);
            collx::all_reduce(comm, x, op);
            check(w, c, x, op);
        },
        more...);
}

// One outstanding call and its buffer.
struct pending {
    random_call call;
    std::vector<int> x;
    std::unique_ptr<collx::work<void>> work;
};

thread_local std::vector<pending> under_way;

// Runs f; if it throws, drops all outstanding calls. A failed call ends its communicator, and they must not outlive it.
template <class F>
void or_forget_all(F&& f) {
    try {
        f();
    } catch (...) {
        under_way.clear();
        throw;
    }
}

// Waits for all of them, each rank in another order.
void finish_all(collx::communicator& w) {
    for (std::size_t turn = 0; !under_way.empty(); ++turn) {
        const auto p = under_way.begin() +
                       static_cast<std::ptrdiff_t>((turn * 3 + static_cast<std::size_t>(w.rank())) % under_way.size());
        p->work->wait();
        check(w, p->call, p->x, collx::plus{});
        under_way.erase(p);
    }
}
void call(collx::communicator& w, const random_call& c) {
    if (under_way.size() >= 5) finish_all(w);
    if (c.under_way) {
        under_way.push_back({c, mine<int>(c, w.rank(), 0), nullptr});
        auto& p = under_way.back();
        p.work = std::make_unique<collx::work<void>>(collx::async::all_reduce(w, p.x));
        return;
    }
    switch (c.verb) {
        case 0: return all_reduce<int>(w, c, collx::plus{});
        case 1: return all_reduce<unsigned char>(w, c, collx::max{});
        case 2: return all_reduce<float>(w, c, collx::plus{}, collx::wire<collx::bf16>{});
        default: return all_reduce<collx::f16>(w, c, collx::plus{});
    }
}

void make_call(collx::communicator& w, const random_call& c) {
    or_forget_all([&] { call(w, c); });
}
void finish(collx::communicator& w) {
    or_forget_all([&] { finish_all(w); });
}

} // namespace

TEST_CASE("random sums and maxima equal the serial fold, beside others that are under way") {
    check_random_calls("sums and maxima equal the serial fold", 4, make_call, finish);
}
