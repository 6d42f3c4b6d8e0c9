// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verbs on a fused team whose blocks are host threads: element types, operators, hooks, views, and refused calls.
// The kernels' code runs; exec/device_test.cpp tests the steps and the waits.
// collx-test: sanitize=nightly
#include <collx/algo/chain.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/in_order.hpp>
#include <collx/algo/on_rings.hpp>
#include <collx/algo/on_route.hpp>
#include <collx/algo/ring.hpp>
#include <collx/gpu/fused_team.hpp>

#include <complex>
#include <vector>

#include <catch2/catch.hpp>

#include <collx/collx.hpp>
#include <collx/testing/twin.hpp>

using namespace collx;
using twin_team = fused_team<device::twin_machine>;

namespace {

twin_team make_team(int ranks) {
    device::exchange_shape s;
    s.ranks = ranks;
    s.lanes = 2;
    s.slot_bytes = 1024;
    s.stage_bytes = 2048;
    s.packet_bytes = 1024;
    s.scratch_bytes = 4096;
    return twin_team(s);
}

template <class T>
using per_rank = std::vector<std::vector<T>>;

template <class T>
per_rank<T> filled(int ranks, std::size_t n, T (*f)(int, std::size_t)) {
    per_rank<T> x(static_cast<unsigned>(ranks));
    for (int r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < n; ++i) x[static_cast<unsigned>(r)].push_back(f(r, i));
    return x;
}

struct pair_sum { // neither 4, 8 nor 16 bytes
    int a, b, c;
    friend pair_sum operator+(const pair_sum& x, const pair_sum& y) { return {x.a + y.a, x.b + y.b, x.c + y.c}; }
    bool operator==(const pair_sum&) const = default;
};

// Affine maps x -> a x + b, composed: associative, not commutative.
struct affine {
    unsigned a, b;
    bool operator==(const affine&) const = default;
};
struct compose {
    affine operator()(const affine& f, const affine& g) const { return {f.a * g.a, f.a * g.b + f.b}; }
};

// Short calls, by LL words, and long ones, by peers' buffers.
template <class T, class Op>
void check_all_reduce(T (*f)(int, std::size_t), Op op) {
    for (const std::size_t n : {std::size_t{1}, std::size_t{333}, twin_team::short_bytes / sizeof(T) + 5}) {
        auto team = make_team(3);
        const auto in = filled<T>(3, n, f);
        auto out = filled<T>(3, n, [](int, std::size_t) { return T{}; }), both = in;
        all_reduce(team, in, out, op);
        all_reduce(team, both, op);
        team.synchronize();
        int wrong = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const auto want = static_cast<T>(
                op(op(accumulator_t<T>(in[0][i]), accumulator_t<T>(in[1][i])), accumulator_t<T>(in[2][i])));
            for (unsigned r = 0; r < 3; ++r) wrong += !(out[r][i] == want) + !(both[r][i] == want);
        }
        INFO(type_name<T>() << " n=" << n);
        CHECK(wrong == 0);
    }
}

} // namespace

TEST_CASE("a fused team reduces any element with any operator") {
    check_all_reduce<int>([](int r, std::size_t i) { return r * 1000 - static_cast<int>(i); }, plus{});
    check_all_reduce<std::int8_t>([](int r, std::size_t i) { return static_cast<std::int8_t>(r + int(i) % 20); },
                                  collx::max{});
    check_all_reduce<bf16>([](int r, std::size_t i) { return bf16(0.1f * float(r) + float(i % 17)); }, plus{});
    check_all_reduce<e4m3>([](int r, std::size_t i) { return e4m3(0.25f * float(r + 1) + float(i % 5)); }, plus{});
    check_all_reduce<std::complex<double>>([](int r, std::size_t i) { return std::complex<double>(r, double(i % 9)); },
                                           plus{});
    check_all_reduce<pair_sum>([](int r, std::size_t i) { return pair_sum{r, int(i), 1}; }, plus{});
    check_all_reduce<affine>([](int r, std::size_t i) { return affine{unsigned(r) + 2, unsigned(i)}; }, compose{});
}

TEST_CASE("hooks ride along: the mean of squares, once per contribution and once per result") {
    auto team = make_team(4);
    for (const std::size_t n : {std::size_t{50}, std::size_t{40'000}}) {
        const auto in = filled<float>(4, n, [](int r, std::size_t i) { return float(r) + float(i % 5); });
        auto out = in;
        all_reduce(team, in, out, with_pre(average{}, [](float x) { return x * x; }));
        team.synchronize();
        int wrong = 0;
        for (std::size_t i = 0; i < n; ++i) {
            float sum = 0;
            for (unsigned r = 0; r < 4; ++r) sum += in[r][i] * in[r][i];
            for (unsigned r = 0; r < 4; ++r) wrong += out[r][i] != sum / 4;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("inputs are computed as they are read, outputs may have strides") {
    auto team = make_team(2);
    constexpr std::size_t n = 20'000;
    per_rank<float> memory(2, std::vector<float>(3 * n, -1.0f));
    std::vector<strided_view<float>> out;
    for (auto& m : memory) out.push_back(strided(m.data(), n, 3));
    struct squares { // a random-access iterator without memory
        using value_type = float;
        std::ptrdiff_t at;
        float operator*() const { return float(at % 100) * float(at % 100); }
        squares operator+(std::ptrdiff_t d) const { return {at + d}; }
        std::ptrdiff_t operator-(const squares& o) const { return at - o.at; }
    };
    const std::vector<input_view<squares>> in = {input(squares{0}, n), input(squares{1}, n)};
    all_reduce(team, in, out);
    team.synchronize();
    int wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float want = *squares{std::ptrdiff_t(i)} + *squares{std::ptrdiff_t(i) + 1};
        for (const auto& m : memory) wrong += (m[3 * i] != want) + (m[3 * i + 1] != -1.0f);
    }
    CHECK(wrong == 0);
}

TEST_CASE("a narrower wire rounds alike on every rank") {
    auto team = make_team(3);
    constexpr std::size_t n = 1000;
    const auto in = filled<float>(3, n, [](int r, std::size_t i) { return 1.0f + 0.001f * float(r * 7 + int(i)); });
    auto out = in;
    const auto cut = [](int chunks) { return chunk_layout::even(n, chunks, 16); };
    team.run<device::simple_protocol, 1, bf16>(algo::ring_all_reduce{}, in, out, plus{}, {}, cut, cut);
    team.synchronize();
    CHECK((out[0] == out[1] && out[1] == out[2]));
    float most = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float sum = in[0][i] + in[1][i] + in[2][i], off = out[0][i] > sum ? out[0][i] - sum : sum - out[0][i];
        most = off / sum > most ? off / sum : most;
    }
    CHECK(most > 0);       // some values were rounded
    CHECK(most < 0.0125f); // to 8 bits, at most three times
}

TEST_CASE("the other verbs on a fused team") {
    auto team = make_team(4);
    constexpr std::size_t n = 700;
    const auto value = [](int r, std::size_t i) { return r * 10'000 + static_cast<int>(i); };
    const auto part = filled<int>(4, n, value), whole = filled<int>(4, 4 * n, value);
    auto gathered = filled<int>(4, 4 * n, value), exchanged = gathered, copied = part, summed = part, scattered = part;
    all_gather(team, part, gathered);
    all_to_all(team, whole, exchanged);
    reduce_scatter(team, whole, scattered, plus{});
    auto upto_me = part, before_me = part, taken = part, at_root = gathered, sum_at_root = part;
    for (unsigned r = 0; r < 4; ++r)
        if (r != 1) {
            at_root[r].clear();
            sum_at_root[r].clear();
        }
    broadcast(team, part, copied, 2);
    reduce(team, part, summed, 3);
    reduce(team, part, sum_at_root, 1);
    gather(team, part, at_root, 1);
    scatter(team, whole, taken, 2);
    scan(team, part, upto_me);
    exclusive_scan(team, part, before_me);
    team.synchronize();
    CHECK(at_root[1] == gathered[1]);
    int wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += sum_at_root[1][i] != 60'000 + 4 * static_cast<int>(i);
    for (int r = 0; r < 4; ++r)
        for (std::size_t i = 0; i < n; ++i) {
            const auto me = static_cast<unsigned>(r);
            for (int k = 0; k < 4; ++k) {
                wrong += gathered[me][static_cast<unsigned>(k) * n + i] != value(k, i);
                wrong += exchanged[me][static_cast<unsigned>(k) * n + i] != value(k, static_cast<unsigned>(r) * n + i);
            }
            wrong += scattered[me][i] != 60'000 + 4 * static_cast<int>(static_cast<unsigned>(r) * n + i);
            wrong += copied[me][i] != value(2, i);
            wrong += taken[me][i] != value(2, me * n + i);
            wrong += upto_me[me][i] != r * (r + 1) / 2 * 10'000 + (r + 1) * static_cast<int>(i);
            wrong += before_me[me][i] != (r == 0 ? value(0, i) : r * (r - 1) / 2 * 10'000 + r * static_cast<int>(i));
            wrong += summed[me][i] != (r == 3 ? 60'000 + 4 * static_cast<int>(i) : value(r, i));
        }
    CHECK(wrong == 0);
}

TEST_CASE("a fused team says what is wrong with its buffers") {
    auto team = make_team(2);
    per_rank<float> two(2, std::vector<float>(10)), three(3, std::vector<float>(10)), uneven = two;
    uneven[1].resize(9);
    CHECK_THROWS_WITH(all_reduce(team, three), Catch::Contains("3 input buffers for 2 ranks"));
    CHECK_THROWS_WITH(all_reduce(team, uneven),
                      Catch::Contains("rank 1: the input buffer has 9 elements, expected 10"));
    CHECK_THROWS_AS(all_gather(team, two, two), mismatch);
    CHECK_THROWS_AS(team.broadcast(two, two, 2), invalid_argument);
    CHECK_THROWS_AS(scatter(team, two, two, -1), invalid_argument);
    CHECK_THROWS_WITH(gather(team, two, uneven, 0), Catch::Contains("output buffer has 10 elements, expected 20"));
    CHECK_THROWS_WITH(all_to_all(team, three = per_rank<float>(2, std::vector<float>(3)), three),
                      Catch::Contains("3 elements are not 2 equal blocks"));
    // Calls whose parts change places have no order in which a buffer could be input and output.
    CHECK_THROWS_WITH(all_to_all(team, two, two), Catch::Contains("receives share memory"));
    const std::vector<std::vector<int>> fives(2, std::vector<int>(2, 5));
    CHECK_THROWS_WITH(team.all_to_all_v(two, two, fives), Catch::Contains("share memory"));
    per_rank<float> out = two;
    const std::vector<fused_message> onto_one = {{0, 1, 5, 0, 0}, {1, 1, 5, 0, 4}},
                                     apart = {{0, 1, 5, 0, 0}, {1, 1, 5, 0, 5}},
                                     moved = {{0, 1, 4, 0, 6}, {1, 0, 4, 0, 6}},
                                     over = {{0, 1, 6, 0, 0}, {1, 0, 5, 5, 0}};
    CHECK_THROWS_WITH(team.send_recv(two, out, onto_one), Catch::Contains("what rank 1 receives and what rank 1"));
    CHECK_NOTHROW(team.send_recv(two, out, apart));
    CHECK_NOTHROW(team.send_recv(two, two, moved)); // of one buffer, but not the same elements
    CHECK_THROWS_WITH(team.send_recv(two, two, over), Catch::Contains("share memory"));
    const auto cut = [](int chunks) { return chunk_layout::even(10, chunks, 1); };
    const auto run = [&](auto algorithm, auto& in, auto& to) {
        team.run<device::simple_protocol>(algorithm, in, to, plus{}, {}, cut, cut);
    };
    CHECK_THROWS_WITH(run(algo::ring_all_reduce{}, uneven, two),
                      Catch::Contains("rank 1: the input buffer has 9 elements, and the call uses 10 from 0 on"));
    CHECK_THROWS_WITH(run(algo::ring_all_reduce{}, two, uneven), Catch::Contains("the output buffer has 9"));
    per_rank<float> one_more(3, std::vector<float>(10));
    CHECK_THROWS_WITH(run(algo::ring_all_reduce{}, one_more, two), Catch::Contains("3 input buffers for 2 ranks"));
    CHECK_THROWS_AS(run(algo::chain_reduce{.root = 0}, two, uneven), mismatch);
    per_rank<float> at_root = two;
    at_root[1].clear();
    CHECK_NOTHROW(run(algo::chain_reduce{.root = 0}, two, at_root));
    for (const int lanes : {-1, 3})
        CHECK_THROWS_WITH(all_reduce(team, two, plus{}, {.lanes = lanes}),
                          Catch::Contains("lanes, and the exchange memory has 2"));
    const std::vector<contiguous_view<float>> nulls(2, contiguous_view<float>(nullptr, 10));
    CHECK_THROWS_WITH(all_reduce(team, nulls), Catch::Contains("the input buffer is null"));
}

namespace {

// Needs scratch memory for five ranks only, and more of it than there are chunks.
struct late_scratch {
    static constexpr const char* name = "late scratch";
    [[maybe_unused]] static constexpr collective op = collective::broadcast;
    static constexpr int chunks(int) { return 1; }
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int, int n) const {
        if (n != 5) return ex.step(sched::copy, sched::in(0), sched::out(0));
        ex.step(sched::copy, sched::in(0), sched::tmp(0));
        ex.step(sched::copy, sched::tmp(0), sched::out(0));
    }
};
struct declared_scratch : late_scratch {
    static constexpr int tmp_chunks(int n) { return n == 5 ? 1 : 0; }
};
struct wide_scratch : late_scratch {
    static constexpr int tmp_chunks(int) { return 3; }
};

// Has a copy that is not a put, for five ranks only, and if a member is set.
struct late_copy {
    static constexpr const char* name = "late copy";
    [[maybe_unused]] static constexpr collective op = collective::all_reduce;
    [[maybe_unused]] static constexpr int signals = 1, window_depth = 2;
    static constexpr int chunks(int) { return 1; }
    int ranks = 5;
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int, int n) const {
        ex.step(sched::copy, sched::in(0), n == ranks ? sched::out(0) : sched::window(0, 0));
    }
};

struct set_copy : late_copy {
    constexpr set_copy() : late_copy{.ranks = 0} {}
    constexpr explicit set_copy(int n) : late_copy{.ranks = n} {}
};

// The error for an algorithm that a team refuses before any launch; empty if there is none.
template <class Protocol = device::simple_protocol, class A>
std::string refusal(const A& a, int ranks) {
    auto team = make_team(ranks);
    using view = contiguous_view<float>;
    using types = device::call_types<view, view, device::move_only>;
    try {
        static_cast<void>(team.ranks().template prepare<types, Protocol>(
            a, device::even_cuts(), [](int) { return device::rank_operands<types>(); }));
    } catch (const error& e) {
        return std::string(name_of(e.code())) + ": " + e.what();
    }
    return "";
}

} // namespace

TEST_CASE("texts that a kernel has no memory for are refused") {
    using Catch::Contains;
    CHECK(refusal(late_scratch{}, 2) == "");
    CHECK_THAT(refusal(late_scratch{}, 5), Contains("unsupported: ") &&
                                               Contains("late scratch uses scratch (tmp) for 5 ranks") &&
                                               Contains("declare it: constexpr int tmp_chunks(int n) const"));
    // Scratch memory that only some numbers of ranks, or some roots, need.
    CHECK(refusal(declared_scratch{}, 2) == "");
    CHECK(refusal(declared_scratch{}, 5) == "");
    CHECK(refusal(algo::chain_reduce{.root = 1}, 3) == "");
    CHECK_THAT(refusal(wide_scratch{}, 2),
               Contains("unsupported: ") && Contains("scratch has 3 chunks, its buffers 1"));
    CHECK(refusal<device::packet_protocol>(late_copy{}, 2) == "");
    CHECK(refusal(late_copy{}, 5) == "");
    // Every number of ranks that a team may have is checked, other members are not.
    static_assert(device::may_copy_v<late_copy> && !device::may_copy_v<set_copy> &&
                  !device::may_copy_v<algo::one_shot_scan>);
    CHECK(refusal<device::packet_protocol>(late_copy{}, 5) == "");
    CHECK_THAT(refusal<device::packet_protocol>(set_copy(5), 5),
               Contains("unsupported: ") && Contains("compiled without copies, which it makes for 5 ranks as its"));
    const node_map two({0, 0, 1, 1}), one({7, 7, 7, 7}), alone({0, 1, 2, 3});
    algo::hierarchical_all_reduce<> a;
    for (const node_view& v : {node_view(), node_view(one), node_view(alone)}) { // the kernel does not use the map
        a.nodes = v;
        CHECK(refusal(a, 4) == "");
    }
    a.nodes = two;
    CHECK_THAT(refusal(a, 4), Contains("unsupported: ") && Contains("reads a map of nodes, which lies in the host's"));
}

namespace {

// Declares more than the kernels of a team have.
struct two_halves {
    static constexpr const char* name = "halves";
    [[maybe_unused]] static constexpr collective op = collective::all_gather;
    static constexpr int chunks(int n) { return 2 * n; }
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex&, int, int) const {}
};
template <int Signals, int Depth, int Messages>
struct declares {
    static constexpr const char* name = "many";
    [[maybe_unused]] static constexpr collective op = collective::all_reduce;
    [[maybe_unused]] static constexpr int signals = Signals, window_depth = Depth, min_depth = Messages;
    static constexpr int chunks(int) { return 1; }
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex&, int, int) const {}
};

} // namespace

TEST_CASE("what kernels have fewer of than an algorithm needs, or cannot read, is refused as the host's engine does") {
    using Catch::Contains;
    const rank_order three({2, 0, 1}), two({1, 0}), twice({0, 0});
    using ring = algo::ring_all_reduce;
    for (const rank_order* o : {&three, &twice})
        CHECK_THAT(refusal(algo::in_order<ring>{*o}, 2),
                   Contains("invalid_argument: ") && Contains("does not fit 2 ranks as it was given"));
    CHECK(refusal(algo::in_order<ring>{}, 2) == ""); // no table
    const order_view both[] = {two, two};
    CHECK_THAT(refusal(algo::in_order<ring>{two}, 2),
               Contains("unsupported: ") && Contains("ring reads an order of ranks, which lies in the host's memory"));
    CHECK_THAT(refusal(algo::rooted_in_order<algo::chain_broadcast>{two}, 2), Contains("reads an order of ranks"));
    CHECK_THAT(refusal(algo::on_rings<ring>{both, 2}, 2), Contains("reads orders of ranks"));
    const relay_route route(2, {0, 1}, {0, 1});
    CHECK_THAT(refusal(algo::on_route<ring>{route}, 2), Contains("reads a route"));
    CHECK_THAT(refusal(algo::on_route<ring>{}, 2), Contains("does not fit 2 ranks")); // it would divide by none

    CHECK_THAT(refusal(two_halves{}, 2), Contains("cuts the buffer of 2 ranks into 4 chunks"));
    CHECK(refusal(declares<4, 4, 4>{}, 2) == "");
    CHECK_THAT(refusal(declares<5, 4, 4>{}, 2), Contains("has 5 signals, and here are 4"));
    CHECK_THAT(refusal(declares<4, 5, 4>{}, 2), Contains("with windows 5 deep, and it works with 5 to 4"));
    CHECK_THAT(refusal(declares<0, 1, 5>{}, 2), Contains("that hold 5 messages (min_depth), and these hold 4"));
    // Asked before the algorithm's chunks are.
    auto team = make_team(2);
    per_rank<float> x(2, std::vector<float>(10));
    const auto cut = [](int c) { return chunk_layout::even(10, c); };
    CHECK_THROWS_WITH(team.run<device::simple_protocol>(algo::on_route<ring>{}, x, x, plus{}, {}, cut, cut),
                      Contains("does not fit 2 ranks"));
}
