// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=address
//
// Arguments that cannot be correct: each is a typed error on the rank that passes it, before any data has moved, and
// the communicator can still be used.
#include "comm/every_verb.hpp"
#include "comm/support.hpp"

#include <collx/core/as.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <span>

using namespace collx_test;
using collx::invalid_argument;

namespace {

// All ranks make the same error. Afterwards a correct call must work, so no rank may have started the wrong one.
template <class F>
void check(collx::communicator& w, const char* text, F&& f) {
    const auto sequence = w.sequence();
    const auto e = thrown<invalid_argument>(w, f);
    collx_test::expect(says(e, text), __FILE__, __LINE__, text, w.rank());
    EXPECT(e.code() == collx::errc::invalid_argument && e.rank() == w.rank() && w.sequence() == sequence);
    int one = 1;
    collx::all_reduce(w, collx::value(one));
    EXPECT(one == w.size());
}

} // namespace

TEST_CASE("null buffers") {
    for (const int n : {1, 3})
        on_ranks(n, [](collx::communicator& w) {
            std::vector<int> x(6);
            int* const null = nullptr;
            at("null");
            check(w, "buffer is null but has 6 elements", [&] { collx::all_reduce(w, collx::view(null, 6)); });
            check(w, "input buffer is null", [&] { collx::all_reduce(w, collx::view(null, 6), x); });
            check(w, "output buffer is null", [&] { collx::all_reduce(w, x, collx::view(null, 6)); });
            check(w, "null", [&] { collx::broadcast(w, collx::view(null, 6)); });
            check(w, "null", [&] { collx::scan(w, collx::view(null, 6)); });
            check(w, "null", [&] { collx::reduce_scatter(w, collx::view(null, 6)); });
            check(w, "null", [&] { collx::all_gather(w, collx::view(null, 6)); });
            check(w, "null", [&] { collx::send(w, collx::view(null, 6), 0); });
            check(w, "null", [&] { collx::recv(w, collx::view(null, 6), 0); });
            check(w, "null", [&] { collx::sendrecv(w, collx::view(null, 6), 0, x, 0); });
            check(w, "null", [&] { collx::async::all_reduce(w, collx::view(null, 6)).wait(); });
            check(w, "null", [&] { collx::exclusive_scan(w, collx::view(null, 6), x); });
            // A reduce whose result only the root gets, and all kinds of parts.
            check(w, "null", [&] { collx::reduce(w, collx::view(null, 6), x); });
            if (w.size() == 1) check(w, "output buffer is null", [&] { collx::reduce(w, x, collx::view(null, 6)); });
            const auto u = static_cast<std::size_t>(w.size());
            std::vector<int> parts(6 * u), counts(u, 6);
            const auto none = collx::view(null, 6 * u);
            check(w, "null", [&] { collx::gather(w, collx::view(null, 6), parts); });
            check(w, "null", [&] { collx::scatter(w, parts, collx::view(null, 6)); });
            check(w, "null", [&] { collx::all_to_all(w, none, parts); });
            check(w, "null", [&] { collx::all_to_all(w, parts, none); });
            check(w, "null", [&] { collx::all_gather(w, x, none); });
            check(w, "null", [&] { collx::reduce_scatter(w, none, x); });
            check(w, "null", [&] { collx::all_gather_v(w, collx::view(null, 6), parts, counts); });
            check(w, "null", [&] { collx::all_gather_v(w, x, none, counts); });
            check(w, "null", [&] { collx::reduce_scatter_v(w, none, x, counts); });
            check(w, "null", [&] { collx::gather_v(w, collx::view(null, 6), parts, counts); });
            check(w, "null", [&] { collx::scatter_v(w, parts, collx::view(null, 6), counts); });
            check(w, "null", [&] { collx::all_to_all_v(w, none, counts, parts, counts); });
            check(w, "null", [&] { collx::all_to_all_v(w, parts, counts, none, counts); });
            check(w, "null", [&] {
                collx::group g(w);
                g.all_reduce(collx::view(null, 6));
            });
            check(w, "null", [&] { collx::reduce_scatter_v(w, none, counts); });
            check(w, "null", [&] { collx::all_to_all(w, none); });
            check(w, "null", [&] { collx::all_to_all_v(w, none, counts); });
            // Empty buffers may be null.
            collx::all_reduce(w, collx::view(null, 0));
            collx::all_gather(w, collx::view(null, 0), collx::view(null, 0));
            collx::all_to_all(w, collx::view(null, 0), collx::view(null, 0));
            collx::all_to_all(w, collx::view(null, 0));
            collx::all_to_all_v(w, collx::view(null, 0), std::vector<int>(u));
        });
}

TEST_CASE("buffers without a place for each element can be read, not written") {
    for (const int n : {1, 2})
        on_ranks(n, [n](collx::communicator& w) {
            const auto u = static_cast<std::size_t>(n);
            int one = 1;
            std::vector<int> x(5000), parts(5000 * u);
            const auto same = collx::strided(&one, 5000, 0);                     // as torch's expand() makes it
            const auto rows = collx::strided_view<int>(x.data(), 2, 2500, 0, 1); // two rows at one place
            at("one address");
            const char* const text = "several elements of the";
            check(w, text, [&] { collx::all_reduce(w, same); });
            check(w, text, [&] { collx::all_reduce(w, x, same); });
            check(w, text, [&] { collx::broadcast(w, rows); });
            check(w, text, [&] { collx::all_to_all(w, parts, collx::strided(&one, parts.size(), 0)); });
            check(w, text, [&] { collx::async::all_reduce(w, x, rows).wait(); });
            check(w, text, [&] { collx::recv(w, same, 0); });
            check(w, text, [&] { collx::neighbor_all_gather(w, {{w.rank()}, {w.rank()}}, x, same); });
            check(w, text, [&] {
                collx::group g(w);
                g.all_reduce(same);
            });
            EXPECT(says(thrown<collx::invalid_argument>(w, [&] { collx::reduce_local(x, x, rows); }), text));
            collx::all_reduce(w, same, x);
            EXPECT(x == std::vector<int>(5000, n));
            collx::all_gather(w, rows, parts);
            EXPECT(parts == std::vector<int>(5000 * u, n));
            const auto null = collx::strided(static_cast<int*>(nullptr), 6, 2);
            check(w, "input buffer is null but has 6 elements", [&] { collx::all_reduce(w, null, x); });
            check(w, "null", [&] { collx::all_reduce(w, null); });
            collx::all_reduce(w, collx::strided(static_cast<int*>(nullptr), 0, 2));
            collx::all_reduce(w, collx::strided_view<int>(&one, 0, 5, 0, 0)); // nothing, however it lies
        });
}

TEST_CASE("overlapping buffers") {
    for (const int n : {1, 3})
        on_ranks(n, [n](collx::communicator& w) {
            std::vector<int> x(200 * static_cast<std::size_t>(n));
            int* const p = x.data();
            const auto part = static_cast<std::size_t>(w.rank()) * 10;
            check(w, "overlap", [&] { collx::all_reduce(w, collx::view(p, 100), collx::view(p + 1, 100)); });
            check(w, "overlap", [&] { collx::all_reduce(w, collx::view(p + 99, 100), collx::view(p, 100)); });
            check(w, "overlap", [&] { collx::scan(w, collx::view(p, 100), collx::view(p + 50, 100)); });
            check(w, "overlap", [&] {
                collx::all_gather(w, collx::view(p + part + 1, 10), collx::view(p, 10u * static_cast<unsigned>(n)));
            });
            check(w, "overlap", [&] {
                collx::reduce_scatter(w, collx::view(p, 10u * static_cast<unsigned>(n)), collx::view(p + part + 1, 10));
            });
            check(w, "overlap", [&] { collx::all_to_all(w, x, x); });
            check(w, "overlap", [&] { collx::exclusive_scan(w, collx::view(p, 100), collx::view(p + 50, 100)); });
            const std::vector<int> counts(static_cast<std::size_t>(n), 10);
            const auto all = collx::view(p, 10u * static_cast<unsigned>(n)), own = collx::view(p + part + 1, 10);
            check(w, "overlap", [&] { collx::all_gather_v(w, own, all, counts); });
            check(w, "overlap", [&] { collx::reduce_scatter_v(w, all, own, counts); });
            check(w, "overlap", [&] { collx::all_to_all_v(w, all, counts, all, counts); });
            if (n == 1) { // only the root has both buffers
                check(w, "overlap", [&] { collx::reduce(w, collx::view(p, 100), collx::view(p + 1, 100)); });
                check(w, "overlap", [&] { collx::gather(w, own, all); });
                check(w, "overlap", [&] { collx::gather_v(w, own, all, counts); });
                check(w, "overlap", [&] { collx::scatter(w, all, own); });
                check(w, "overlap", [&] { collx::scatter_v(w, all, own, counts); });
            }
            check(w, "overlap", [&] { collx::sendrecv(w, x, w.rank(), x, w.rank()); });
            // Adjacent buffers are allowed, in either order, and so is the same buffer twice.
            collx::all_reduce(w, collx::view(p, 100), collx::view(p + 100, 100));
            collx::all_reduce(w, collx::view(p + 100, 100), collx::view(p, 100));
            collx::all_reduce(w, collx::view(p, 100), collx::view(p, 100));
        });
}

TEST_CASE("roots and peers that are no ranks") {
    for (const int n : {1, 3})
        on_ranks(n, [n](collx::communicator& w) {
            std::vector<int> x(6), none;
            const std::vector<std::size_t> counts(static_cast<std::size_t>(n), 0);
            for (const int root : {-1, n, 1 << 30}) {
                check(w, "root", [&] { collx::broadcast(w, x, {.root = root}); });
                check(w, "root", [&] { collx::reduce(w, x, collx::plus{}, {.root = root}); });
                check(w, "root", [&] { collx::gather(w, none, none, {.root = root}); });
                check(w, "root", [&] { collx::scatter(w, none, none, {.root = root}); });
                check(w, "root", [&] { collx::gather_v(w, none, none, counts, counts, {.root = root}); });
                check(w, "root", [&] { collx::scatter_v(w, none, none, counts, counts, {.root = root}); });
                check(w, "peer", [&] { collx::send(w, x, root); });
                check(w, "peer", [&] { collx::recv(w, x, root); });
                check(w, "peer", [&] { collx::sendrecv(w, x, root, none, 0); });
                check(w, "has no root", [&] { collx::all_reduce(w, x, collx::plus{}, {.root = root}); });
                check(w, "has no root", [&] { collx::barrier(w, {.root = root}); });
                check(w, "has no root", [&] { collx::all_to_all_v(w, x, counts, none, counts, {.root = root}); });
                check(w, "has no root", [&] { collx::all_to_all_v(w, x, counts, {.root = root}); });
                check(w, "has no root", [&] { (void)collx::persistent::all_gather(w, x, {.root = root}); });
                check(w, "has no root", [&] { (void)collx::async::all_to_all(w, x, {.root = root}); });
                check(w, "has no root", [&] { collx::send(w, x, w.rank(), {.root = root}); });
                check(w, "has no root", [&] { collx::sendrecv(w, x, 0, none, 0, {.root = root}); });
                check(w, "has no root", [&] { collx::neighbor_all_gather(w, {}, x, none, {.root = root}); });
                check(w, "has no root", [&] { collx::group(w).all_reduce(x).launch({.root = root}); });
                check(w, "has no root",
                      [&] { (void)collx::persistent::group(w).all_reduce(x).launch({.root = root}); });
                collx::group g(w);
                check(w, "root", [&] { g.broadcast(x, root); });
            }
            // Nothing was sent: the next message is the one that is received.
            int next = w.rank(), heard = -1;
            const int to = (w.rank() + 1) % n, from = (w.rank() + n - 1) % n;
            check(w, "peer", [&] { collx::sendrecv(w, collx::value(next), to, collx::value(heard), n); });
            check(w, "null", [&] { collx::sendrecv(w, x, to, collx::view(static_cast<int*>(nullptr), 6), from); });
            next += 100;
            collx::sendrecv(w, collx::value(next), to, collx::value(heard), from);
            EXPECT(heard == from + 100);
        });
}

TEST_CASE("sizes that do not fit each other") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> six(6), seven(7), two(2);
        check(w, "the output buffer has 7 elements and needs 6", [&] { collx::all_reduce(w, six, seven); });
        check(w, "the output buffer has 7 elements and needs 6", [&] { collx::scan(w, six, seven); });
        check(w, "the output buffer has 7 elements and needs 6", [&] { collx::all_gather(w, two, seven); });
        check(w, "7 elements do not divide among 3 ranks", [&] { collx::all_gather(w, seven); });
        check(w, "7 elements do not divide among 3 ranks", [&] { collx::reduce_scatter(w, seven, two); });
        check(w, "the output buffer has 6 elements and needs 2", [&] { collx::reduce_scatter(w, six, six); });
        check(w, "7 elements do not divide among 3 ranks", [&] { collx::all_to_all(w, seven, six); });
        check(w, "the output buffer has 7 elements and needs 6", [&] { collx::all_to_all(w, six, seven); });
        check(w, "7 elements do not divide among 3 ranks", [&] { collx::all_to_all(w, seven); });
    });
    on_ranks(1, [](collx::communicator& w) { // errors that only the root can detect
        std::vector<int> six(6), seven(7);
        check(w, "needs 6", [&] { collx::gather(w, six, seven); });
        check(w, "needs 7", [&] { collx::scatter(w, six, seven); });
        check(w, "needs 6", [&] { collx::reduce(w, six, seven); });
    });
}

TEST_CASE("the error of an argument names the call") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> six(6), seven(7), two(2);
        const std::vector<int> counts(3, 2);
        const auto names = [&](const char* text, auto&& f) {
            check(w, (": rank " + std::to_string(w.rank()) + ": " + text).c_str(), f);
        };
        names("all_reduce: the output buffer has 7", [&] { collx::all_reduce(w, six, seven); });
        names("all_to_all: 7 elements do not divide", [&] { collx::all_to_all(w, seven, six); });
        names("scan: input and output overlap",
              [&] { collx::scan(w, std::span(seven).subspan(0, 4), std::span(seven).subspan(1, 4)); });
        names("broadcast: the only buffer is null",
              [&] { collx::broadcast(w, collx::view(static_cast<int*>(nullptr), 6)); });
        names("reduce: several elements of the only buffer may",
              [&] { collx::reduce(w, collx::strided(&six[0], 3, 0)); });
        names("reduce: root 3 of 3 ranks", [&] { collx::reduce(w, six, {.root = 3}); });
        names("scan: root 1 was given", [&] { collx::scan(w, six, {.root = 1}); });
        names("barrier: root 1 was given", [&] { collx::barrier(w, {.root = 1}); });
        names("all_gather_v: the input buffer has 7", [&] { collx::all_gather_v(w, seven, six, counts); });
        names("all_gather_v: the output buffer has 2", [&] { collx::all_gather_v(w, two, two, counts); });
        const int next = (w.rank() + 1) % 3, before = (w.rank() + 2) % 3;
        const collx::neighbors ring{{before, next}, {next, before}}, wrong{{3}, {next}};
        names("neighbor_all_to_all: 7 elements do not", [&] { collx::neighbor_all_to_all(w, ring, seven, six); });
        names("neighbor_all_gather: the output buffer", [&] { collx::neighbor_all_gather(w, ring, two, six); });
        names("neighbor_all_gather: source 0 of the graph is 3",
              [&] { collx::neighbor_all_gather(w, wrong, two, two); });
    });
}

TEST_CASE("a view with so many elements that their number times the ranks overflows") {
    on_ranks(4, [](collx::communicator& w) {
        const unsigned char first = 0;
        std::vector<unsigned char> out;
        const auto e =
            thrown<invalid_argument>(w, [&] { collx::all_gather(w, collx::view(&first, std::size_t{1} << 62), out); });
        EXPECT(says(e, "has 0 elements and needs"));
    });
}

TEST_CASE("counts that are negative, overflow or do not sum up") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> x(6), out(6);
        const std::size_t most = SIZE_MAX;
        check(w, "is a count negative?",
              [&] { collx::all_reduce(w, collx::view(x.data(), static_cast<std::size_t>(-1))); });
        check(w, "is a count negative?", [&] { collx::broadcast(w, collx::view(x.data(), SIZE_MAX / 2)); });
        check(w, "is a count negative?", [&] { collx::send(w, collx::view(x.data(), SIZE_MAX), 0); });
        const auto mine = collx::view(x.data(), 2);
        check(w, "count of rank 1 is negative", [&] { collx::all_gather_v(w, mine, out, std::array{2, -1, 2}); });
        check(w, "overflow at rank 1", [&] {
            collx::all_gather_v(w, mine, out, std::array<std::size_t, 3>{2, most, 2});
        });
        check(w, "overflow at rank 2", [&] {
            collx::all_gather_v(w, mine, out, std::array<std::size_t, 3>{2, most / 2 - 2, 2});
        });
        check(w, "the output buffer has 5 elements, its counts need 6", [&] {
            collx::all_gather_v(w, mine, collx::view(out.data(), 5), std::array{2, 2, 2});
        });
        check(w, "4 numbers for 3 ranks", [&] { collx::all_gather_v(w, mine, out, std::array{2, 2, 2, 0}); });
        check(w, "2 numbers for 3 ranks", [&] { collx::reduce_scatter_v(w, x, out, std::array{2, 2}); });
        check(w, "the input buffer has 2 elements and needs 1", [&] {
            collx::all_gather_v(w, mine, out, std::array{1, 1, 1});
        });
        check(w, "the input buffer has 6 elements, its counts need 9", [&] {
            collx::reduce_scatter_v(w, x, mine, std::array{3, 3, 3});
        });
        check(w, "the only buffer has 6 elements, its counts need 9", [&] {
            collx::reduce_scatter_v(w, x, std::array{3, 3, 3});
        });
        check(w, "2 numbers for 3 ranks", [&] { collx::reduce_scatter_v(w, x, std::array{2, 2}); });
        check(w, "the only buffer has 6 elements, its counts need 7", [&] {
            collx::all_to_all_v(w, x, std::array{2, 3, 2});
        });
        check(w, "count of rank 2 is negative", [&] { collx::all_to_all_v(w, x, std::array{2, 3, -2}); });
        check(w, "send count of rank 0 is negative", [&] {
            collx::all_to_all_v(w, x, std::array{-1, 0, 0}, out, std::array{0, 0, 0});
        });
        check(w, "the input buffer has 6 elements", [&] {
            collx::all_to_all_v(w, x, std::array{2, 3, 2}, out, std::array{2, 2, 2});
        });
        check(w, "the output buffer has 6 elements", [&] {
            collx::all_to_all_v(w, x, std::array{2, 2, 2}, out, std::array{2, 5, 2});
        });
        check(w, "the counts of a rank for itself differ", [&] {
            std::array<int, 3> s{}, r{};
            s[static_cast<std::size_t>(w.rank())] = 1;
            collx::all_to_all_v(w, x, s, out, r);
        });
    });
}

TEST_CASE("offsets that are negative, too few, or lead outside the buffer") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> x(6), out(6);
        const auto mine = collx::view(x.data(), 2);
        const std::array counts{2, 2, 2};
        check(w, "offset of rank 1 is negative", [&] {
            collx::all_gather_v(w, mine, out, counts, std::array{0, -1, 4});
        });
        check(w, "overflow at rank 1", [&] {
            collx::all_gather_v(w, mine, out, counts, std::array<std::size_t, 3>{0, SIZE_MAX, 4});
        });
        check(w, "overflow at rank 2", [&] {
            collx::all_gather_v(w, mine, out, counts, std::array<std::size_t, 3>{0, 2, SIZE_MAX - 1});
        });
        check(w, "its counts need 7", [&] { collx::all_gather_v(w, mine, out, counts, std::array{0, 2, 5}); });
        check(w, "offsets: 2 numbers for 3 ranks", [&] {
            collx::all_gather_v(w, mine, out, counts, std::array{0, 2});
        });
        check(w, "send offset of rank 2 is negative", [&] {
            collx::all_to_all_v(w, x, counts, std::array{0, 2, -4}, out, counts, std::array{0, 2, 4});
        });
        check(w, "offset of rank 1 is negative", [&] { collx::all_to_all_v(w, x, counts, std::array{0, -2, 4}); });
        check(w, "its counts need 7", [&] { collx::all_to_all_v(w, x, counts, std::array{0, 2, 5}); });
        check(w, "receive offset of rank 0 is negative", [&] {
            collx::all_to_all_v(w, x, counts, std::array{0, 2, 4}, out, counts, std::array{-2, 2, 4});
        });
    });
}

TEST_CASE("try_ returns the error instead of throwing it") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x(4), y(5);
        const collx::result<void> wrong_sizes = collx::try_::all_reduce(w, x, y);
        EXPECT(!wrong_sizes && wrong_sizes.error().code() == collx::errc::invalid_argument);
        EXPECT(!collx::try_::broadcast(w, x, {.root = 9}));
        EXPECT(!collx::try_::send(w, x, 5) && !collx::try_::recv(w, x, -3));
        EXPECT(collx::try_::all_reduce(w, x).has_value() && collx::try_::barrier(w));
    });
}

TEST_CASE("numbers of ranks that make no sense") {
    for (const int n : {0, -1, 1025})
        CHECK_THROWS_AS(collx::run_threads(n, [](collx::communicator&) {}), collx::invalid_argument);
    CHECK_THROWS_WITH(collx::run_threads(0, [](collx::communicator&) {}), Catch::Contains("run_threads(0)"));
}

TEST_CASE("shared memory that cannot be had") {
    on_ranks(2, [](collx::communicator& w) {
        const auto before = w.membership()->memory->bytes();
        const auto e =
            thrown<collx::error>(w, [&] { collx::shared_vector<char>(before, 'x', collx::shared_allocator<char>(w)); });
        EXPECT(e.code() == collx::errc::resource && says(e, "COLLX_ARENA_BYTES"));
        const auto f =
            thrown<collx::error>(w, [&] { (void)collx::shared_allocator<double>(w).allocate(SIZE_MAX / 4); });
        EXPECT(f.code() == collx::errc::resource);
        auto x = collx::make_shared_vector<int>(w, 100, 1);
        collx::all_reduce(w, x);
        EXPECT(x[99] == 2);
    });
}

TEST_CASE("tensors that say they lie in a device's memory") {
    struct tensor { // as in DLPack
        void* data;
        struct {
            int device_type, device_id;
        } device;
        int ndim;
        struct {
            std::uint8_t code, bits;
            std::uint16_t lanes;
        } dtype;
        std::int64_t *shape, *strides;
        std::uint64_t byte_offset;
    };
    on_ranks(2, [](collx::communicator& w) {
        std::vector<float> x(6, 1);
        std::int64_t shape[] = {2, 3};
        tensor here{x.data(), {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0}, there = here;
        there.device.device_type = 2;
        const char* text = "tensor lies in a device's memory";
        check(w, text, [&] { collx::all_reduce(w, collx::as<float>(there)); });
        check(w, text, [&] { collx::send(w, collx::as<float>(there), 1 - w.rank()); });
        check(w, text, [&] { (void)collx::group(w).all_reduce(collx::as<float>(there)); });
        collx::all_reduce(w, collx::as<float>(here));
        EXPECT(x[5] == 2);
    });
}

TEST_CASE("a time limit that every wait would be past") {
    on_ranks(2, [](collx::communicator& w) {
        for (const std::int64_t ns : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN})
            check(w, "every wait would be past", [&] { w.set_timeout(collx::duration::from_ns(ns)); });
        for (const std::int64_t ns : {std::int64_t{0}, std::int64_t{-1}})
            check(w, "every wait would be past",
                  [&] { (void)collx::communicator(collx::unique_id(), w.rank(), 2, collx::duration::from_ns(ns)); });
        std::vector<int> x(2), y(2), z(4);
        const int other = 1 - w.rank();
        for (const std::int64_t ns : {std::int64_t{-1}, INT64_MIN}) {
            const auto limit = collx::duration::from_ns(ns);
            const auto past = [&](auto&& call) { check(w, "every wait would be past", call); };
            past([&] { collx::all_reduce(w, x, collx::plus{}, {.timeout = limit}); });
            past([&] { collx::broadcast(w, x, {.timeout = limit}); });
            past([&] { collx::all_gather(w, x, z, {.timeout = limit}); });
            past([&] { collx::barrier(w, {.timeout = limit}); });
            past([&] { (void)collx::async::all_reduce(w, x, collx::plus{}, {.timeout = limit}); });
            past([&] { collx::send(w, x, other, {.timeout = limit}); });
            past([&] { (void)collx::async::recv(w, x, other, {.timeout = limit}); });
            past([&] { collx::sendrecv(w, x, other, y, other, {.timeout = limit}); });
            past([&] {
                collx::group g(w);
                g.all_reduce(x);
                g.launch({.timeout = limit});
            });
        }
        collx::barrier(w); // the communicator can still be used
    });
}

TEST_CASE("an empty communicator says so") {
    on_ranks(2, [](collx::communicator& w) {
        auto some = w.split(w.rank() == 0 ? 0 : -1);
        EXPECT(some.is_empty() == (w.rank() == 1));
        int x = 1;
        if (w.rank() == 1) {
            with_every_verb(some, 1, [&](const char* name, auto&& call) {
                at("%s", name);
                EXPECT(says(thrown<invalid_argument>(w, call), "this communicator is empty"));
            });
            EXPECT(says(thrown<invalid_argument>(w, [&] { collx::all_reduce(some, collx::value(x)); }),
                        "this communicator is empty"));
            EXPECT(says(thrown<invalid_argument>(w, [&] { (void)some.size(); }), "this communicator is empty"));
            EXPECT(says(thrown<invalid_argument>(w, [&] { (void)some.split(0); }), "this communicator is empty"));
        } else {
            collx::all_reduce(some, collx::value(x));
            EXPECT(x == 1 && some.size() == 1);
        }
    });
}
