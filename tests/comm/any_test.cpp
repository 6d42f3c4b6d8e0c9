// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 needs=any sanitize=address,nightly
//
// Types and operators that are chosen at run time, compared with the typed calls and a serial fold.
#include "support.hpp"

#include <complex>
#include <cstring>
#include <type_traits>

#include <collx/comm/any.hpp>

using namespace collx_test;
using collx::any_buffer;
using collx::any_op;
using collx::any_type;
namespace any = collx::any;

namespace {

template <class T>
constexpr bool is_half = std::is_same_v<T, collx::f16> || std::is_same_v<T, collx::bf16>;

// f(T()) for every type, in the order of any_type.
template <class F>
void for_each_type(F&& f) {
    f(std::int8_t());
    f(std::uint8_t());
    f(std::int16_t());
    f(std::uint16_t());
    f(std::int32_t());
    f(std::uint32_t());
    f(std::int64_t());
    f(std::uint64_t());
    f(collx::f16());
    f(collx::bf16());
    f(float());
    f(double());
    f(bool());
    f(std::complex<float>());
    f(std::complex<double>());
}
// Three types of different sizes: verbs depend on nothing else of a type.
template <class F>
void for_few_types(F&& f) {
    f(std::int8_t());
    f(float());
    f(std::complex<double>());
}
template <class F>
void for_each_op(F&& f) {
    f(any_op::plus, collx::plus{});
    f(any_op::multiplies, collx::multiplies{});
    f(any_op::min, collx::min{});
    f(any_op::max, collx::max{});
    f(any_op::bit_and, collx::bit_and{});
    f(any_op::bit_or, collx::bit_or{});
    f(any_op::bit_xor, collx::bit_xor{});
    f(any_op::logical_and, collx::logical_and{});
    f(any_op::logical_or, collx::logical_or{});
    f(any_op::logical_xor, collx::logical_xor{});
}
// Whether users expect the pair to work: stated again, independently of the table.
template <class T, class Op>
constexpr bool should_combine() {
    constexpr bool is_complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
    constexpr bool is_sum = std::is_same_v<Op, collx::plus> || std::is_same_v<Op, collx::multiplies>;
    constexpr bool is_bits =
        std::is_same_v<Op, collx::bit_and> || std::is_same_v<Op, collx::bit_or> || std::is_same_v<Op, collx::bit_xor>;
    if (is_sum) return !std::is_same_v<T, bool>;
    if (is_bits) return std::is_integral_v<T>;
    return !is_complex;
}

template <class T>
T value(int rank, std::size_t i) {
    const int v = static_cast<int>((static_cast<std::size_t>(rank) * 5 + i * 3) % 4);
    if constexpr (is_half<T>) return T(static_cast<float>(v));
    else if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(v);
    else return T(static_cast<typename T::value_type>(v), static_cast<typename T::value_type>(rank));
}
template <class T>
struct array { // because std::vector<bool> stores no bools
    explicit array(std::size_t n) : memory(new T[n]()), size(n) {}
    array(int rank, std::size_t n) : array(n) {
        for (std::size_t i = 0; i < n; ++i) memory[i] = value<T>(rank, i);
    }
    T& operator[](std::size_t i) { return memory[i]; }
    any_buffer view() { return collx::as_any(collx::view(memory.get(), size)); }
    bool operator==(const array& o) const { return std::memcmp(memory.get(), o.memory.get(), size * sizeof(T)) == 0; }
    std::unique_ptr<T[]> memory;
    std::size_t size;
};

} // namespace

TEST_CASE("every type has its number, size and name") {
    int number = 0;
    for_each_type([&](auto t) {
        using T = decltype(t);
        CHECK(collx::any_type_of<T> == static_cast<any_type>(number));
        CHECK(collx::size_of(collx::any_type_of<T>) == sizeof(T));
        CHECK(std::string(collx::name_of(static_cast<any_type>(number))).find("no ") == std::string::npos);
        ++number;
    });
    CHECK(number == collx::any_type_count);
    CHECK(collx::size_of(static_cast<any_type>(200)) == 0);
    CHECK(std::string(collx::name_of(static_cast<any_op>(200))) == "no operator");
    CHECK(std::string(collx::name_of(any_op::logical_xor)) == "logical_xor");
}

TEST_CASE("all_reduce of every type by every operator: the serial fold, or an error that says why not") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : {1u, 33u, 3001u})
                for_each_type([&](auto t) {
                    using T = decltype(t);
                    for_each_op([&](any_op op, auto typed_op) {
                        at("%s %s n=%d size=%zu", collx::name_of(op), collx::name_of(collx::any_type_of<T>), n, size);
                        array<T> in(w.rank(), size), out(size), in_place(w.rank(), size);
                        if constexpr (should_combine<T, decltype(typed_op)>()) {
                            any::all_reduce(w, in.view(), out.view(), op);
                            any::all_reduce(w, in_place.view(), op);
                            for (std::size_t i = 0; i < size; ++i) {
                                using number = std::conditional_t<is_half<T>, float, T>;
                                auto want = static_cast<number>(value<T>(0, i));
                                for (int r = 1; r < n; ++r)
                                    want = static_cast<number>(typed_op(want, static_cast<number>(value<T>(r, i))));
                                EXPECT_AT(i, static_cast<number>(out[i]) == static_cast<number>(T(want)) &&
                                                 static_cast<number>(in_place[i]) == static_cast<number>(T(want)));
                            }
                        } else if (size == 33) {
                            const auto e = thrown<collx::invalid_argument>(
                                w, [&] { any::all_reduce(w, in.view(), out.view(), op); });
                            EXPECT(says(e, "does not combine elements of") && e.rank() == w.rank());
                        }
                    });
                });
        });
}

TEST_CASE("halves are summed as float and rounded once, as in typed calls") {
    on_ranks(5, [](collx::communicator& w) {
        array<collx::bf16> x(1000), y(1000);
        for (std::size_t i = 0; i < 1000; ++i) x[i] = y[i] = collx::bf16(w.rank() == 0 ? 256.0f : 0.75f);
        any::all_reduce(w, x.view());
        collx::all_reduce(w, collx::view(y.memory.get(), y.size));
        for (std::size_t i = 0; i < 1000; ++i) EXPECT_AT(i, float(x[i]) == 260.0f && float(y[i]) == 260.0f); // not 256
    });
}

TEST_CASE("every verb does what its typed form does, in place and from one buffer to another, on hosts and across") {
    for (const int ranks_per_host : {0, 2})
        for (const int n : {1, 3})
            on_hosts(n, {ranks_per_host}, [n](collx::communicator& w) {
                for (const std::size_t part : {3u, 5000u})
                    for_few_types([&](auto t) {
                        using T = decltype(t);
                        at("%s n=%d part=%zu", collx::name_of(collx::any_type_of<T>), n, part);
                        const auto u = static_cast<std::size_t>(n);
                        const std::size_t whole = part * u;
                        const any_op op = any_op::plus;
                        std::vector<std::size_t> counts(u, part), offsets;
                        for (std::size_t k = 0; k < u; ++k) offsets.push_back(k * part);
                        const auto typed = [](array<T>& a) { return collx::view(a.memory.get(), a.size); };
                        // Runs f on one pair of buffers (any) and g on an equal pair (typed), and compares the results.
                        const auto same = [&](std::size_t ins, std::size_t outs, auto&& f, auto&& g) {
                            array<T> a(w.rank(), ins), b(w.rank() + 1, outs), c(w.rank(), ins), d(w.rank() + 1, outs);
                            f(a.view(), b.view());
                            g(typed(c), typed(d));
                            EXPECT(a == c && b == d);
                        };
                        const auto reduces = [&](auto&& f, auto&& g) { // g(in, out, typed operator)
                            same(whole, whole, f, [&](auto a, auto b) { g(a, b, collx::plus{}); });
                        };
                        const auto first = [&](auto v) { return decltype(v)(v.data(), part); };
                        const auto first_any = [&](any_buffer b) {
                            b.size = part;
                            return b;
                        };
                        const collx::call_options root{.root = n - 1};
                        reduces([&](auto a, auto b) { any::reduce(w, a, b, op, root); },
                                [&](auto a, auto b, auto o) { collx::reduce(w, a, b, o, root); });
                        reduces([&](auto a, auto b) { any::reduce_scatter(w, a, first_any(b), op); },
                                [&](auto a, auto b, auto o) { collx::reduce_scatter(w, a, first(b), o); });
                        reduces([&](auto a, auto) { any::reduce_scatter(w, a, op); },
                                [&](auto a, auto, auto o) { collx::reduce_scatter(w, a, o); });
                        reduces([&](auto a, auto b) { any::reduce_scatter_v(w, a, first_any(b), counts, op); },
                                [&](auto a, auto b, auto o) { collx::reduce_scatter_v(w, a, first(b), counts, o); });
                        reduces([&](auto a, auto) { any::reduce_scatter_v(w, a, counts, op); },
                                [&](auto a, auto, auto o) { collx::reduce_scatter_v(w, a, counts, o); });
                        reduces([&](auto a, auto b) { any::scan(w, a, b, op); },
                                [&](auto a, auto b, auto o) { collx::scan(w, a, b, o); });
                        reduces([&](auto a, auto) { any::exclusive_scan(w, a, op); },
                                [&](auto a, auto, auto o) { collx::exclusive_scan(w, a, o); });
                        same(
                            whole, 1, [&](auto a, auto) { any::broadcast(w, a, root); },
                            [&](auto a, auto) { collx::broadcast(w, a, root); });
                        same(
                            part, whole, [&](auto a, auto b) { any::all_gather(w, a, b); },
                            [&](auto a, auto b) { collx::all_gather(w, a, b); });
                        same(
                            whole, 1, [&](auto a, auto) { any::all_gather(w, a); },
                            [&](auto a, auto) { collx::all_gather(w, a); });
                        same(
                            part, whole, [&](auto a, auto b) { any::all_gather_v(w, a, b, counts, offsets); },
                            [&](auto a, auto b) { collx::all_gather_v(w, a, b, counts, offsets); });
                        same(
                            part, whole, [&](auto a, auto b) { any::gather(w, a, b, root); },
                            [&](auto a, auto b) { collx::gather(w, a, b, root); });
                        same(
                            part, whole, [&](auto a, auto b) { any::gather_v(w, a, b, counts, {}, root); },
                            [&](auto a, auto b) { collx::gather_v(w, a, b, counts, offsets, root); });
                        same(
                            whole, part, [&](auto a, auto b) { any::scatter(w, a, b, root); },
                            [&](auto a, auto b) { collx::scatter(w, a, b, root); });
                        same(
                            whole, part, [&](auto a, auto b) { any::scatter_v(w, a, b, counts, offsets, root); },
                            [&](auto a, auto b) { collx::scatter_v(w, a, b, counts, offsets, root); });
                        same(
                            whole, whole, [&](auto a, auto b) { any::all_to_all(w, a, b); },
                            [&](auto a, auto b) { collx::all_to_all(w, a, b); });
                        same(
                            whole, whole, [&](auto a, auto) { any::all_to_all(w, a); },
                            [&](auto a, auto) { collx::all_to_all(w, a); });
                        same(
                            whole, whole,
                            [&](auto a, auto b) { any::all_to_all_v(w, a, counts, {}, b, counts, offsets); },
                            [&](auto a, auto b) { collx::all_to_all_v(w, a, counts, b, counts); });
                        same(
                            whole, whole, [&](auto a, auto) { any::all_to_all_v(w, a, counts); },
                            [&](auto a, auto) { collx::all_to_all_v(w, a, counts); });
                        const int to = (w.rank() + 1) % n, from = (w.rank() + n - 1) % n;
                        same(
                            part, part, [&](auto a, auto b) { any::sendrecv(w, a, to, b, from); },
                            [&](auto a, auto b) { collx::sendrecv(w, a, to, b, from); });
                        same(
                            part, part, [&](auto a, auto b) { any::async::sendrecv(w, a, to, b, from).wait(); },
                            [&](auto a, auto b) { collx::sendrecv(w, a, to, b, from); });
                        if (n > 1)
                            same(
                                part, part,
                                [&](auto a, auto b) {
                                    auto coming = any::async::recv(w, b, from);
                                    any::send(w, a, to);
                                    coming.wait();
                                },
                                [&](auto a, auto b) { collx::sendrecv(w, a, to, b, from); });
                    });
            });
}

TEST_CASE("calls under way, and errors as values") {
    on_ranks(3, [](collx::communicator& w) {
        array<double> x(w.rank(), 5000);
        array<std::int16_t> y(w.rank(), 5000), all(15'000);
        auto sum = any::async::all_reduce(w, x.view(), any_op::max);
        collx::work<void> parts = any::async::all_gather(w, y.view(), all.view());
        collx::wait_all(sum, parts);
        for (std::size_t i = 0; i < 5000; ++i) {
            EXPECT_AT(i, x[i] == std::max({value<double>(0, i), value<double>(1, i), value<double>(2, i)}));
            EXPECT_AT(i, all[5000 + i] == value<std::int16_t>(1, i));
        }
        EXPECT(any::try_::all_reduce(w, x.view()).has_value());
        const auto refused = any::try_::all_reduce(w, x.view(), any_op::bit_and);
        EXPECT(!refused && refused.error().code() == collx::errc::invalid_argument &&
               says(refused.error(), "bit_and does not combine elements of float64"));
    });
}

// Makes a persistent call, runs it three times in both ways, and compares each result with that of the blocking form.
template <class T, class Make, class Call>
void repeat(collx::communicator& w, std::size_t ins, std::size_t outs, Make&& make, Call&& call) {
    array<T> a(w.rank(), ins), b(w.rank() + 1, outs), c(w.rank(), ins), d(w.rank() + 1, outs);
    collx::persistent_call ready = make(a.view(), b.view()); // refers to the memory only
    for (int round = 0; round < 3; ++round) {
        if (round == 1) {
            ready.start();
            ready.wait();
        } else {
            ready();
        }
        call(c.view(), d.view());
        EXPECT_AT(round, a == c && b == d);
        if (ins != 0) a[0] = c[0] = value<T>(w.rank() + round, 1);
    }
}

TEST_CASE("persistent calls on types and operators chosen at run time") {
    namespace per = any::persistent;
    for (const int ranks_per_host : {0, 2})
        on_hosts(3, {ranks_per_host}, [](collx::communicator& w) {
            const std::vector<std::size_t> counts{5, 0, 900}, none;
            const std::size_t all = 905, mine = counts[static_cast<std::size_t>(w.rank())];
            const auto run = [&](auto t, std::size_t n) {
                using T = decltype(t);
                at("%s %zu", collx::name_of(collx::any_type_of<T>), n);
                repeat<T>(
                    w, n, n, [&](auto x, auto y) { return per::all_reduce(w, x, y, any_op::max); },
                    [&](auto x, auto y) { any::all_reduce(w, x, y, any_op::max); });
                repeat<T>(
                    w, n, 0, [&](auto x, auto) { return per::all_reduce(w, x); },
                    [&](auto x, auto) { any::all_reduce(w, x); });
                repeat<T>(
                    w, n, 0, [&](auto x, auto) { return per::broadcast(w, x, {.root = 2}); },
                    [&](auto x, auto) { any::broadcast(w, x, {.root = 2}); });
                repeat<T>(
                    w, n, 3 * n, [&](auto x, auto y) { return per::all_gather(w, x, y); },
                    [&](auto x, auto y) { any::all_gather(w, x, y); });
                repeat<T>(
                    w, 3 * n, 0, [&](auto x, auto) { return per::all_to_all(w, x); },
                    [&](auto x, auto) { any::all_to_all(w, x); });
                repeat<T>(
                    w, mine, all, [&](auto x, auto y) { return per::all_gather_v(w, x, y, counts); },
                    [&](auto x, auto y) { any::all_gather_v(w, x, y, counts); });
                repeat<T>(
                    w, n, n,
                    [&](auto x, auto y) { return per::sendrecv(w, x, (w.rank() + 1) % 3, y, (w.rank() + 2) % 3); },
                    [&](auto x, auto y) { any::sendrecv(w, x, (w.rank() + 1) % 3, y, (w.rank() + 2) % 3); });
            };
            for (const std::size_t n : {std::size_t{1}, std::size_t{40}, std::size_t{30'000}}) {
                run(float{}, n);
                run(std::int16_t{}, n);
            }
            std::vector<double> x(3, w.rank());
            auto sum = per::all_reduce(w, collx::as_any(x));
            sum();
            EXPECT(x[2] == 3);
            EXPECT(says(
                thrown<collx::invalid_argument>(w, [&] { (void)per::all_reduce(w, collx::as_any(x), any_op::bit_or); }),
                "bit_or does not combine elements of float64"));
        });
}

TEST_CASE("typed calls and these may meet in one reduction; ranks that disagree hear of it") {
    for (const bool checked : {false, true})
        on_ranks(2, [checked](collx::communicator& w) {
            w.set_checked(checked);
            std::vector<float> x(100, 1), y(5000, 2);
            if (w.rank() == 0) {
                collx::all_reduce(w, x);
                collx::all_reduce(w, y, collx::max{});
            } else {
                any::all_reduce(w, collx::as_any(x));
                any::all_reduce(w, collx::as_any(y), any_op::max);
            }
            EXPECT(x[99] == 2 && y[4999] == 2);
            auto d = w.dup();
            (void)thrown<collx::mismatch>(
                w, [&] { any::all_reduce(d, collx::as_any(x), w.rank() == 0 ? any_op::plus : any_op::max); });
            if (!checked) return;
            std::vector<int> z(100);
            (void)thrown<collx::mismatch>(
                w, [&] { any::all_reduce(w, w.rank() == 0 ? collx::as_any(x) : collx::as_any(z)); });
        });
}

TEST_CASE("buffers and numbers that cannot be right") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<double> x(10), y(10);
        std::vector<float> z(10);
        const any_buffer good = collx::as_any(x);
        const auto refuses = [&](const char* text, auto&& call) {
            const auto e = thrown<collx::invalid_argument>(w, call);
            EXPECT_AT(0, says(e, text));
            EXPECT(e.rank() == w.rank());
            collx::all_reduce(w, y); // the communicator can still be used
        };
        any_buffer odd = good;
        odd.data = reinterpret_cast<std::byte*>(x.data()) + 4;
        odd.size = 9;
        refuses("the only buffer is not aligned for float64", [&] { any::all_reduce(w, odd); });
        odd.type = static_cast<any_type>(99);
        refuses("the input buffer has the type number 99, which is none", [&] { any::all_gather(w, odd, good); });
        refuses("the input has elements of float64, the output of float32",
                [&] { any::all_reduce(w, good, collx::as_any(z)); });
        refuses("the operator has the number 77, which is none",
                [&] { any::all_reduce(w, good, static_cast<any_op>(77)); });
        refuses("is null but has 10 elements", [&] { any::all_reduce(w, {nullptr, 10, any_type::int32}); });
        refuses("11 elements do not divide among 2 ranks", [&] {
            any::all_to_all(w, {x.data(), 11, any_type::uint8});
        });
        refuses("overlap", [&] { any::all_to_all(w, good, good); });
        refuses("root 5 of 2 ranks", [&] { any::broadcast(w, good, {.root = 5}); });
        refuses("peer 2 of 2 ranks", [&] { any::send(w, good, 2); });
        refuses("3 numbers for 2 ranks", [&] { any::all_to_all_v(w, good, std::vector<std::size_t>{1, 2, 3}); });
    });
}

TEST_CASE("options of a verb with counts may follow the counts directly") {
    on_ranks(3, [](collx::communicator& w) {
        const std::vector<std::size_t> counts{1, 2, 3};
        const auto mine = static_cast<std::size_t>(w.rank()) + 1;
        std::vector<int> part(mine, w.rank()), whole(6, -1), back(mine, -1), ones(9, w.rank());
        using collx::as_any;
        any::gather_v(w, as_any(part), as_any(whole), counts, {.root = 1});
        EXPECT(w.rank() == 1 ? whole == std::vector{0, 1, 1, 2, 2, 2} : whole == std::vector<int>(6, -1));
        any::gather_v(w, as_any(part), as_any(whole), counts, {}, {.root = 1}); // braces alone are offsets
        any::scatter_v(w, as_any(whole), as_any(back), counts, {.root = 1});
        EXPECT(back == part);
        any::all_to_all_v(w, as_any(ones), std::vector<std::size_t>(3, 3), {.timeout = std::chrono::seconds(60)});
        EXPECT(ones == (std::vector{0, 0, 0, 1, 1, 1, 2, 2, 2}));
        EXPECT(thrown<collx::error>(w, [&] {
                   any::all_gather_v(w, as_any(part), as_any(whole), counts, {.root = 1});
               }).code() == collx::errc::invalid_argument);
    });
}

TEST_CASE("with a root, the other ranks may pass anything as the buffer that they do not use") {
    on_ranks(3, [](collx::communicator& w) {
        const bool is_root = w.rank() == 1;
        std::vector<float> part(4, static_cast<float>(w.rank() + 1)), whole(is_root ? 12 : 0);
        const any_buffer nothing{}, mine = collx::as_any(part), all = is_root ? collx::as_any(whole) : nothing;
        std::byte odd[9];
        const any_buffer unaligned{odd + 1, 1, any_type::float64};
        EXPECT(nothing.type != any_type::float32);
        any::gather(w, mine, all, {.root = 1});
        for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_AT(i, whole[i] == static_cast<float>(i / 4 + 1));
        any::gather_v(w, mine, is_root ? all : unaligned, std::vector<std::size_t>(3, 4), {}, {.root = 1});
        any::scatter(w, all, mine, {.root = 1});
        EXPECT(part == std::vector<float>(4, static_cast<float>(w.rank() + 1)));
        std::vector<float> sum(is_root ? 4 : 0);
        any::reduce(w, mine, is_root ? collx::as_any(sum) : unaligned, any_op::plus, {.root = 1});
        for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_AT(i, sum[i] == 6);
        // The buffer that a rank uses is still checked on that rank.
        if (is_root) (void)thrown<collx::invalid_argument>(w, [&] { any::gather(w, mine, unaligned, {.root = 1}); });
    });
}
