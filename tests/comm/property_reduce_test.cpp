// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 needs=rapidcheck optimised sanitize=nightly
//
// Random reductions compared with a serial fold. The operator multiplies 2x2 matrices modulo a prime, so a wrong
// order or a missing operand changes the result.
#include "property_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

struct matrix {
    std::uint16_t a, b, c, d;
    bool operator==(const matrix&) const = default;
};
struct product {
    static constexpr unsigned p = 251;
    matrix operator()(const matrix& x, const matrix& y) const {
        const auto m = [](unsigned v) { return static_cast<std::uint16_t>(v % p); };
        return {m(x.a * y.a + x.b * y.c), m(x.a * y.b + x.b * y.d), m(x.c * y.a + x.d * y.c), m(x.c * y.b + x.d * y.d)};
    }
};
matrix operand(const random_call& c, int rank, std::size_t i) {
    const unsigned h = (c.seed * 31 + static_cast<unsigned>(rank) * 7919 + static_cast<unsigned>(i) * 104'729) % 65'521;
    return {static_cast<std::uint16_t>(h % 251), 1, static_cast<std::uint16_t>(h / 251),
            static_cast<std::uint16_t>(h % 13)};
}
// The fold of element i over ranks first … last - 1.
matrix expected(const random_call& c, int first, int last, std::size_t i) {
    matrix m = operand(c, first, i);
    for (int r = first + 1; r < last; ++r) m = product{}(m, operand(c, r, i));
    return m;
}

template <class Verb, class... Options>
void call(collx::communicator& w, const random_call& c, auto&& comm, std::size_t whole, std::size_t from,
          std::size_t part, int first, int last, const Verb& verb, const Options&... options) {
    std::vector<matrix> in(whole), out(part, matrix{9, 9, 9, 9});
    for (std::size_t i = 0; i < whole; ++i) in[i] = operand(c, w.rank(), i);
    const auto before = in;
    if (c.in_place) {
        verb(comm, in, product{}, options...);
        std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(from), part, out.begin());
    } else {
        verb(comm, in, out, product{}, options...);
        EXPECT(in == before);
    }
    if (first < last)
        for (std::size_t i = 0; i < part; ++i) EXPECT_AT(i, out[i] == expected(c, first, last, from + i));
    else if (c.in_place) EXPECT(in == before);
    else EXPECT(out == std::vector<matrix>(part, matrix{9, 9, 9, 9}));
}

void make_call(collx::communicator& w, const random_call& c) {
    const int n = w.size(), me = w.rank(), root = static_cast<int>(c.root) % n;
    const auto ordered = [&](auto a) {
        collx::sched::set_root(a, root);
        return !collx::sched::needs_commutative_of(a, n);
    };
    const auto u = static_cast<std::size_t>(n);
    // An algorithm that changes the order would be refused at compile time.
    const auto with = [&]<collective C>(std::integral_constant<collective, C>, auto&& run) {
        run_with<C>(w, c, ordered, [&](auto&& comm) {
            using policies = std::remove_cvref_t<decltype(comm.policies())>;
            if constexpr (policies::template has_algorithm<C>) {
                using algorithm = decltype(comm.policies().template algorithm<C>());
                if constexpr (!collx::sched::reorders_v<algorithm>) run(comm);
                else run(w);
            } else {
                run(comm);
            }
        });
    };
    const collx::call_options at_root{.root = root};
    using std::integral_constant;
    switch (c.verb) {
        case 0:
            return with(integral_constant<collective, collective::all_reduce>{},
                        [&](auto&& comm) { call(w, c, comm, c.count, 0, c.count, 0, n, collx::all_reduce); });
        case 1:
            return with(integral_constant<collective, collective::reduce>{}, [&](auto&& comm) {
                call(w, c, comm, c.count, 0, c.count, 0, me == root ? n : 0, collx::reduce, at_root);
            });
        case 2: {
            const std::size_t part = c.count / u;
            return with(integral_constant<collective, collective::reduce_scatter>{}, [&](auto&& comm) {
                call(w, c, comm, part * u, part * static_cast<std::size_t>(me), part, 0, n, collx::reduce_scatter);
            });
        }
        case 3:
            return with(integral_constant<collective, collective::scan>{},
                        [&](auto&& comm) { call(w, c, comm, c.count, 0, c.count, 0, me + 1, collx::scan); });
        default:
            return with(integral_constant<collective, collective::exclusive_scan>{},
                        [&](auto&& comm) { call(w, c, comm, c.count, 0, c.count, 0, me, collx::exclusive_scan); });
    }
}

} // namespace

TEST_CASE("random reductions with an operator that does not commute equal the serial fold") {
    check_random_calls("reductions equal the serial fold", 5, make_call, [](collx::communicator&) {});
}
