// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=thread,nightly
// The device executor on its host twin: the kernels' code with one host thread (or several) per block, compared with
// known sums. These tests find what needs real threads and a sanitizer.
#include <collx/testing/twin.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "support/patience.hpp"

#include <collx/algo/binomial.hpp>
#include <collx/algo/chain.hpp>
#include <collx/algo/direct.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/multicast_two_shot.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/recursive_doubling.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>

using namespace collx;
using device::line_protocol;
using device::packet_protocol;
using device::simple_protocol;
using device::team;
using device::twin_machine;
using floats = contiguous_view<float>;

namespace {

// Small, so that a few hundred elements make many pieces, and slots and stages are reused often.
device::exchange_shape small_shape(int ranks, int lanes = 2) {
    device::exchange_shape s;
    s.ranks = ranks;
    s.lanes = lanes;
    s.slots = 2;
    s.slot_bytes = 256;
    s.flag_slot_bytes = 512;
    s.stages = 2;
    s.stage_bytes = 1024;
    s.packet_bytes = 256;
    s.scratch_bytes = 4096;
    return s;
}

float element(int rank, std::size_t i) { return static_cast<float>(rank + 1 + static_cast<int>(i % 11)); }

// Every rank's input and output of one collective with `each` elements in every chunk.
template <class A>
struct buffers {
    buffers(const A& a, int ranks, std::size_t each_elems, int root_rank)
        : n(ranks), root(root_rank), chunks(a.chunks(ranks)), each(each_elems), in(static_cast<unsigned>(n)),
          out(static_cast<unsigned>(n)) {
        const std::size_t size = each * static_cast<unsigned>(chunks);
        for (int r = 0; r < n; ++r) {
            auto& x = in[static_cast<unsigned>(r)];
            x.assign(size + 2, -99.0f); // two more than needed: views begin at 0 or, unaligned, at 1 or 2
            out[static_cast<unsigned>(r)].assign(size + 2, -1.0f);
        }
    }
    void fill(std::size_t in_shift, std::size_t out_shift) {
        first = in_shift;
        out_first = out_shift;
        for (int r = 0; r < n; ++r)
            for (int c = 0; c < chunks; ++c)
                for (std::size_t i = 0; i < each; ++i) {
                    const std::size_t at = static_cast<unsigned>(c) * each + i;
                    const bool has = input_of(A::op, r, c, n, root).count != 0;
                    in[static_cast<unsigned>(r)][first + at] = has ? element(r, at) : -99.0f;
                    out[static_cast<unsigned>(r)][out_first + at] = -1.0f;
                }
    }
    floats in_view(int r) {
        return {in[static_cast<unsigned>(r)].data() + first, each * static_cast<unsigned>(chunks)};
    }
    floats out_view(int r) {
        return {out[static_cast<unsigned>(r)].data() + out_first, each * static_cast<unsigned>(chunks)};
    }
    int wrong() const {
        int count = 0;
        for (int r = 0; r < n; ++r)
            for (int c = 0; c < chunks; ++c) {
                const contribution want = output_of(A::op, r, c, n, root);
                for (std::size_t i = 0; want.count != 0 && i < each; ++i) {
                    float sum = 0;
                    for (int k = 0; k < want.count; ++k)
                        sum += element((want.first + k) % n, static_cast<unsigned>(want.chunk) * each + i);
                    count += out[static_cast<unsigned>(r)][out_first + static_cast<unsigned>(c) * each + i] != sum;
                }
            }
        return count;
    }
    int n, root, chunks;
    std::size_t each, first = 0, out_first = 0;
    std::vector<std::vector<float>> in, out;
};

template <class A>
using types_of = device::call_types<floats, floats, std::conditional_t<reduces(A::op), plus, device::move_only>>;

template <class Protocol, int Groups, class A>
void run_once(team<twin_machine>& t, const A& a, buffers<A>& b, const device::fused_options& o = {}) {
    using types = types_of<A>;
    const auto l = chunk_layout::blocks(b.each, b.chunks);
    t.run<types, Protocol, Groups>(
        a, l, l,
        [&](int r) {
            return device::rank_operands<types>{b.in_view(r), b.out_view(r), typename types::op_type{}};
        },
        o);
}

// Consecutive calls on one team, so that counters and stages continue from the previous call.
template <class Protocol, int Groups = 1, class A>
void check(A a, std::vector<int> rank_counts = {1, 2, 3, 4, 8}, unsigned threads = 1) {
    for (const int n : rank_counts) {
        int root = 0;
        if constexpr (collx::sched::has_root<decltype(a)>) root = a.root = a.root == 0 ? n - 1 : a.root;
        twin_machine machine(threads);
        team<twin_machine> t(machine, small_shape(n));
        for (const std::size_t each : {1, 7, 64, 301}) {
            buffers<A> b(a, n, each, root);
            // Aligned, equally unaligned, and differently unaligned.
            for (const auto& [first, out_first] : {std::pair{0u, 0u}, {1u, 1u}, {2u, 1u}}) {
                b.fill(first, out_first);
                run_once<Protocol, Groups>(t, a, b, {.timeout_ns = collx_test::patient(60'000'000'000)});
                INFO(A::name << ' ' << name_of(A::op) << " n=" << n << " each=" << each << " first=" << first << ' '
                             << out_first);
                REQUIRE_NOTHROW(t.check());
                REQUIRE(b.wrong() == 0);
            }
        }
    }
}

} // namespace

TEST_CASE("a rank's chunk of a stage is what all threads of a block load at once, for every number of ranks") {
    for (int n = 1; n <= device::max_ranks; ++n) {
        device::exchange_shape s;
        s.set_ranks(n);
        const std::size_t packs = s.stage_bytes / static_cast<unsigned>(n) / 16;
        CHECK(packs >= 512 * 4);
        CHECK(s.stage_bytes % device::line_bytes == 0);
        s.set_ranks(n, 4096);
        CHECK(s.stage_bytes == 4096);
        CHECK(s.ranks == n);
    }
}

TEST_CASE("ring over slots, and with words that carry flags") {
    check<simple_protocol>(algo::ring_all_reduce{});
    check<packet_protocol>(algo::ring_all_reduce{});
}

TEST_CASE("lines of 128 bytes: the same texts, several chunks in one message, several threads") {
    check<line_protocol>(algo::ring_all_reduce{});
    check<line_protocol>(algo::binomial_scatter{}, {2, 4, 5});
    check<line_protocol>(algo::recursive_doubling_all_reduce{}, {3, 5});
    check<line_protocol>(algo::ring_all_reduce{}, {2, 3}, 3);
    check<line_protocol, 2>(algo::pairwise_all_to_all{}, {3});
}

// A receiver whose slots hold another protocol's leftovers must still wait. The data are the numbers of the first
// messages, so that a leftover equals the next flag.
TEMPLATE_TEST_CASE("what one protocol leaves behind is no message of another's", "", packet_protocol, line_protocol) {
    const auto send = [](auto protocol, team<twin_machine>& t, auto& x, std::int64_t timeout_ns) {
        using word = std::remove_reference_t<decltype(x[0][0])>;
        using types = device::call_types<contiguous_view<word>, contiguous_view<word>, device::move_only>;
        const auto l = chunk_layout::blocks(x[0].size(), 1);
        t.run<types, decltype(protocol)>(
            algo::linear_broadcast{}, l, l,
            [&](int r) {
                const contiguous_view<word> v{x[static_cast<unsigned>(r)].data(), x[static_cast<unsigned>(r)].size()};
                return device::rank_operands<types>{v, v, {}};
            },
            {.timeout_ns = timeout_ns});
    };
    const auto finds_nothing = [&](auto before, auto word) {
        twin_machine machine;
        team<twin_machine> t(machine, small_shape(2, 1));
        using words = std::vector<decltype(word)>;
        std::vector<words> x(2, words(256 / sizeof word, word)), few(2, words(4, word)); // x fills a slot
        for (int i = 0; i < 2; ++i) send(before, t, x, 60'000'000'000);
        t.check();
        machine.leave_out(0);
        send(TestType{}, t, few, 100'000'000); // nothing arrives, however slow the machine is
        CHECK_THROWS_AS(t.check(), timed_out);
    };
    finds_nothing(simple_protocol{}, 3u);
    finds_nothing(simple_protocol{}, std::uint64_t{3});
    if constexpr (!std::is_same_v<TestType, packet_protocol>) finds_nothing(packet_protocol{}, 3u);
    else finds_nothing(line_protocol{}, 3u);
}

TEST_CASE("one-shot over windows, and pushed with flags") {
    check<simple_protocol>(algo::one_shot_all_reduce{});
    check<packet_protocol>(algo::one_shot_all_reduce{});
}

TEST_CASE("two-shot with its strands in turn and side by side") {
    check<simple_protocol>(algo::two_shot_all_reduce{});
    check<simple_protocol, 2>(algo::two_shot_all_reduce{});
    check<simple_protocol, 4>(algo::two_shot_all_reduce{}, {3});
}

TEST_CASE("two-shot with flags: contributions go to who sums them, sums to all") {
    check<packet_protocol>(algo::two_shot_all_reduce{});
    check<packet_protocol>(algo::two_shot_all_reduce{}, {2, 3, 5}, 3);
}

TEST_CASE("two-shot whose sums a switch makes and stores to all") {
    check<device::multicast_protocol>(algo::multicast_two_shot_all_reduce{});
    check<device::multicast_protocol, 2>(algo::multicast_two_shot_all_reduce{}, {3});
    check<device::multicast_protocol>(algo::multicast_two_shot_all_reduce{}, {2, 5}, 3);
    check<simple_protocol>(algo::multicast_two_shot_all_reduce{}, {2, 3});  // the same algorithm without a switch
    check<device::multicast_protocol>(algo::two_shot_all_reduce{}, {2, 3}); // a rank's own operands are in no window
}

TEST_CASE("several threads per block: barriers stand where they must") {
    check<simple_protocol>(algo::ring_all_reduce{}, {2, 3}, 3);
    check<packet_protocol>(algo::ring_all_reduce{}, {2, 3}, 3);
    check<packet_protocol>(algo::one_shot_all_reduce{}, {3}, 4);
    check<packet_protocol>(algo::two_shot_all_reduce{}, {3}, 4);
    check<simple_protocol, 2>(algo::two_shot_all_reduce{}, {2, 3}, 2);
}

TEST_CASE("every rank's buffers, read and written where they lie") {
    check<simple_protocol>(algo::zero_copy_all_reduce{});
    check<simple_protocol>(algo::zero_copy_all_gather{}, {2, 5});
    check<simple_protocol>(algo::zero_copy_all_to_all{}, {2, 5});
    check<simple_protocol>(algo::zero_copy_reduce_scatter{}, {2, 5});
}

TEST_CASE("the other collectives over windows and with flags") {
    check<simple_protocol>(algo::direct_all_to_all{}, {2, 5});
    check<packet_protocol>(algo::one_shot_all_gather{}, {2, 5});
    check<packet_protocol>(algo::one_shot_reduce_scatter{}, {2, 5});
    check<simple_protocol>(algo::direct_broadcast{}, {2, 5});
}

TEST_CASE("scratch, several chunks in one message, operands in rank order") {
    check<simple_protocol>(algo::recursive_doubling_all_reduce{}, {2, 3, 4, 5});
    check<simple_protocol>(algo::binomial_scatter{}, {4, 5});
    check<simple_protocol>(algo::chain_reduce{.root = 1}, {3, 5}); // no scratch memory if the root is at an end
}

TEST_CASE("ranks in launches of their own wait for the last call's readers") {
    twin_machine machine(1, true);
    constexpr int n = 3;
    team<twin_machine> t(machine, small_shape(n));
    const algo::one_shot_all_reduce first{};
    const algo::two_shot_all_reduce second{};
    const algo::zero_copy_all_reduce third{};
    buffers<algo::one_shot_all_reduce> a(first, n, 500, 0);
    buffers<algo::two_shot_all_reduce> b(second, n, 170, 0);
    buffers<algo::zero_copy_all_reduce> c(third, n, 170, 0);
    a.fill(0, 0);
    b.fill(0, 0);
    c.fill(0, 0);
    for (int i = 0; i < 20; ++i) {
        run_once<simple_protocol, 1>(t, first, a);
        run_once<simple_protocol, 1>(t, second, b);
        run_once<simple_protocol, 1>(t, third, c);
    }
    machine.synchronize();
    t.check();
    CHECK(a.wrong() + b.wrong() + c.wrong() == 0);
}

namespace {

// Memory that is slow to write.
struct slow_view {
    using value_type = float;
    [[maybe_unused]] static constexpr bool is_contiguous = false, is_output = true, is_window = false;
    float* p;
    std::size_t n;
    bool is_slow;
    std::size_t size() const { return n; }
    float& operator[](std::size_t i) const {
        if (is_slow) std::this_thread::sleep_for(std::chrono::microseconds(200));
        return p[i];
    }
};

} // namespace

// When a broadcast ends, its root may be three pieces ahead of a reader. The next call's first pieces reuse that
// memory, and nothing in the algorithm checks that they were read.
TEST_CASE("a window that is still read is not written over by the next call") {
    twin_machine machine(1, true);
    auto s = small_shape(2, 1);
    s.stages = 4;
    team<twin_machine> t(machine, s);
    constexpr std::size_t n = 192;
    std::vector<float> in[2], out[2];
    using types = device::call_types<floats, slow_view, device::move_only>;
    const auto l = chunk_layout::blocks(n, 1);
    for (int call = 0; call < 2; ++call) {
        in[call].assign(n, static_cast<float>(call + 1));
        out[call].assign(n, 0.0f);
        t.run<types, simple_protocol>(
            algo::one_shot_broadcast{}, l, l,
            [&](int r) {
                return device::rank_operands<types>{
                    {in[call].data(), n}, {r == 1 ? out[call].data() : in[call].data(), n, r == 1}, {}};
            },
            {.timeout_ns = collx_test::patient(60'000'000'000), .piece_bytes = 128}); // six pieces
    }
    machine.synchronize();
    REQUIRE_NOTHROW(t.check());
    for (int call = 0; call < 2; ++call) CHECK(out[call] == in[call]);
}

// Rank 0 pushes three long pieces, while rank 1 answers with empty words from one thread. The other threads of rank 0
// wait for no rank; only the barrier at the end of a piece stops them from pushing the third over the first.
TEST_CASE("words with flags are not pushed over words that are still to be read") {
    twin_machine machine(4);
    team<twin_machine> t(machine, small_shape(2, 1));
    constexpr std::size_t longest = 96, size = longest + 1;
    std::vector<float> in[2], out[2];
    for (int r = 0; r < 2; ++r) {
        in[r].resize(size);
        out[r].resize(size);
        for (std::size_t i = 0; i < size; ++i) in[r][i] = element(r, i);
    }
    using types = device::call_types<floats, floats, device::move_only, float, device::table_cuts>;
    const device::table_cuts cuts{.sizes = {longest, 1}, .in_at = {0, longest}, .out_at = {0, longest}};
    int wrong = 0;
    for (int repeat = 0; repeat < 50; ++repeat) {
        for (auto& o : out) o.assign(size, -1.0f);
        t.run<types, packet_protocol>(
            algo::one_shot_all_gather{}, cuts,
            [&](int r) {
                return device::rank_operands<types>{{in[r].data(), size}, {out[r].data(), size}, {}};
            },
            {.timeout_ns = collx_test::patient(60'000'000'000)});
        REQUIRE_NOTHROW(t.check());
        for (const auto& o : out)
            for (std::size_t i = 0; i < size; ++i) wrong += o[i] != element(i < longest ? 0 : 1, i);
    }
    CHECK(wrong == 0);
}

namespace {

// A machine that lets the test read its memory.
struct open_machine : twin_machine {
    std::vector<std::byte*> memory;
    std::byte* allocate(int rank, std::size_t bytes) {
        memory.push_back(twin_machine::allocate(rank, bytes));
        return memory.back();
    }
    device::lane_control& lane(const device::exchange_shape& s, int rank) {
        return *reinterpret_cast<device::lane_control*>(memory[static_cast<unsigned>(rank)] + s.lane_at(0));
    }
};

// Runs short calls from message number `first` on; initially all words of all cells hold an old flag.
template <class A>
void run_from(std::uint64_t first, int calls, const A& a, open_machine& machine, team<open_machine>& t) {
    const auto& s = t.shape();
    constexpr std::uint64_t old = std::uint64_t{0x7777'7777} << 32;
    for (int r = 0; r < s.ranks; ++r) {
        auto& c = machine.lane(s, r);
        for (auto* counts : {c.tail, c.head, c.sent, c.received}) std::fill_n(counts, device::max_ranks, first);
        c.packets = first;
        auto* lane = machine.memory[static_cast<unsigned>(r)] + s.lane_at(0);
        const std::size_t cells = s.windows_at() - s.packets_at(), slots = s.lane_bytes() - s.slots_at();
        std::fill_n(reinterpret_cast<std::uint64_t*>(lane + s.packets_at()), cells / 8, old);
        std::fill_n(reinterpret_cast<std::uint64_t*>(lane + s.slots_at()), slots / 8, old);
    }
    buffers<A> b(a, s.ranks, 3, 0);
    using types = types_of<A>;
    const auto l = chunk_layout::blocks(b.each, b.chunks);
    for (int i = 0; i < calls; ++i) {
        b.fill(0, 0);
        t.template run<types, packet_protocol>(a, l, l,
                                               [&](int r) {
                                                   return device::rank_operands<types>{b.in_view(r), b.out_view(r), {}};
                                               },
                                               {.timeout_ns = collx_test::patient(60'000'000'000)});
        REQUIRE_NOTHROW(t.check());
        REQUIRE(b.wrong() == 0);
    }
}
// The number of words from `at` on whose flag is still the old one.
int old_words(const std::byte* at, std::size_t bytes) {
    int count = 0;
    for (std::size_t i = 0; i < bytes / 8; ++i)
        count += reinterpret_cast<const std::uint64_t*>(at)[i] >> 32 == 0x7777'7777;
    return count;
}

} // namespace

TEST_CASE("flags wrap around after 2^32 messages, and old ones are cleared away long before") {
    open_machine machine;
    team<open_machine> t(machine, small_shape(2, 1));
    const auto& s = t.shape();
    const auto* lane = machine.memory[0] + s.lane_at(0);
    const auto *cells = lane + s.packets_at() + s.cell_number(0, 1, 0) * s.packet_bytes,
               *other = lane + s.packets_at() + s.cell_number(0, 1, 1) * s.packet_bytes,
               *slots = lane + s.words_at() + s.slot_number(1, 0) * s.flag_slot_bytes;
    run_from((std::uint64_t{1} << 32) - 3, 6, algo::one_shot_all_reduce{}, machine, t);
    run_from((std::uint64_t{1} << 32) - 3, 6, algo::ring_all_reduce{}, machine, t);
    run_from((std::uint64_t{1} << 32) - 3, 6, algo::two_shot_all_reduce{}, machine, t);

    run_from(1000, 6, algo::one_shot_all_reduce{}, machine, t); // at other numbers, flags that do not matter stay
    CHECK(old_words(cells, s.packet_bytes) > 0);
    run_from((1u << 24) - 2, 6, algo::one_shot_all_reduce{}, machine, t);
    CHECK(old_words(cells, s.packet_bytes) + old_words(other, s.packet_bytes) == 0);
    const std::size_t all_cells = s.windows_at() - s.packets_at(); // half of them are not cells of a peer
    const int own = 4 * static_cast<int>(s.packet_bytes / 8);      // the words that this rank would push to itself
    CHECK(old_words(lane + s.packets_at(), all_cells) == own);     // the second segment, too
    run_from((1u << 24) - 2, 6, algo::two_shot_all_reduce{}, machine, t);
    CHECK(old_words(lane + s.packets_at(), all_cells) == own);
    run_from((1u << 24) - 2, 6, algo::ring_all_reduce{}, machine, t);
    CHECK(old_words(slots, s.slots * s.flag_slot_bytes) == 0);
}

namespace {

struct sum_that_may_be_slow {
    bool is_slow = false;
    float operator()(float a, float b) const {
        if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        return a + b;
    }
};

} // namespace

// In a chain nothing holds the first rank back but its successor. While rank 2 sums, ranks 0 and 1 make all other
// calls, and the words of these calls come to lie where rank 2 looks for those of the sum.
TEST_CASE("a rank that is many calls ahead of a peer does not end the peer's call") {
    constexpr int n = 3, later = 20;
    twin_machine machine(1, true);
    auto s = small_shape(n);
    s.slots = 16;
    team<twin_machine> t(machine, s);
    float in[n] = {1, 2, 3}, sum[n] = {}, out[n] = {7, 0, 0};
    const auto words = [](collective what, std::uint64_t hash) {
        return device::fused_options{.timeout_ns = collx_test::patient(5'000'000'000),
                                     .words = device::call_words::of(what, 0, hash, 1)};
    };
    const auto l = chunk_layout::blocks(1, 1);
    using sums = device::call_types<floats, floats, sum_that_may_be_slow>;
    t.run<sums, packet_protocol>(
        algo::one_shot_all_reduce{}, l, l,
        [&](int r) {
            return device::rank_operands<sums>{{in + r, 1}, {sum + r, 1}, {r == 2}};
        },
        words(collective::all_reduce, 1));
    using moves = device::call_types<floats, floats, device::move_only>;
    for (int i = 0; i < later; ++i)
        t.run<moves, packet_protocol>(
            algo::chain_broadcast{}, l, l,
            [&](int r) {
                return device::rank_operands<moves>{{out + r, 1}, {out + r, 1}, {}};
            },
            words(collective::broadcast, 2));
    machine.synchronize();
    REQUIRE_NOTHROW(t.check());
    for (int r = 0; r < n; ++r) CHECK((sum[r] == 6 && out[r] == 7));
}

TEST_CASE("a rank that is missing ends a call with its name, and the team with it") {
    twin_machine machine;
    machine.leave_out(1);
    team<twin_machine> t(machine, small_shape(3, 1));
    const algo::ring_all_reduce a{};
    buffers<algo::ring_all_reduce> b(a, 3, 50, 0);
    b.fill(0, 0);
    // All cores spend it.
    const std::chrono::nanoseconds limit = collx_test::heard_within(std::chrono::milliseconds(500));
    run_once<simple_protocol, 1>(t, a, b, {.timeout_ns = limit.count()});
    std::string said;
    int peer = -1;
    try {
        t.check();
    } catch (const timed_out& e) {
        said = e.what();
        peer = e.peer();
    }
    INFO(said);
    CHECK(peer == 1);
    CHECK(said.find("waited too long for ") != std::string::npos);
    CHECK(said.find(" from rank 1, at step ") != std::string::npos);
    CHECK_THROWS_AS((run_once<simple_protocol, 1>(t, a, b)), error); // no second launch
}

namespace {
struct counting_host : twin_machine {
    using twin_machine::twin_machine;
    std::uint64_t load_host(const std::uint64_t* p) const {
        ++loads;
        return twin_machine::load_host(p);
    }
    mutable int loads = 0;
};
} // namespace

TEST_CASE("a call that follows others looks at two words of the host's memory, however many blocks may have given up") {
    counting_host machine;
    team<counting_host> t(machine, small_shape(8, 16));
    t.check();
    CHECK(machine.loads == 2);
}

namespace {
// Its kernels have all given up, in this call of a group.
struct given_up_host : twin_machine {
    using twin_machine::twin_machine;
    std::uint64_t load_host(const std::uint64_t*) const {
        const device::wait_report said{device::wait_state::timed_out, device::waits_for::message, 1, 2, 3, call};
        return loads++ == 0 ? 0 : said.pack(); // the first word that a team looks at is another one
    }
    unsigned call = 0;
    mutable int loads = 0;
};
} // namespace

TEST_CASE("the call of a group in which a kernel gave up is named, also one of many") {
    const std::pair<unsigned, const char*> calls[] = {
        {0, ": a kernel waited"},
        {1, "call 1 of the group: "},
        {255, "call 255 of the group: "},
        {256, "call 256 of the group: "},
        {4711, "call 4711 of the group: "},
        {65534, "call 65534 of the group: "},
        {65535, "call 65535 of the group or later: "},
    };
    for (const auto& one : calls) {
        given_up_host machine;
        team<given_up_host> t(machine, small_shape(2, 1));
        machine.call = one.first;
        CHECK_THROWS_WITH(t.check(), Catch::Contains(one.second) && Catch::Contains("for a message from rank 1"));
    }
}

TEST_CASE("while a kernel waits, the host can read for whom, and end it") {
    twin_machine machine;
    machine.leave_out(1);
    team<twin_machine> t(machine, small_shape(2, 1));
    const algo::ring_all_reduce a{};
    buffers<algo::ring_all_reduce> b(a, 2, 50, 0);
    b.fill(0, 0);
    std::thread kernel(
        [&] { run_once<simple_protocol, 1>(t, a, b, {.timeout_ns = collx_test::patient(60'000'000'000)}); });
    device::wait_report seen;
    for (int i = 0; i < 20'000 && seen.state == device::wait_state::idle; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        seen = t.report(0, 0);
    }
    t.abort();
    kernel.join();
    CHECK((seen.state == device::wait_state::waiting && seen.what == device::waits_for::message));
    CHECK((seen.peer == 1 && seen.step == 2 && seen.piece == 0)); // step 1 only sends
    CHECK_THROWS_AS(t.check(), aborted);
}

TEST_CASE("an abort by the host ends the waits") {
    twin_machine machine;
    machine.leave_out(0);
    team<twin_machine> t(machine, small_shape(2, 1));
    t.abort();
    const algo::one_shot_all_reduce a{};
    buffers<algo::one_shot_all_reduce> b(a, 2, 50, 0);
    b.fill(0, 0);
    run_once<packet_protocol, 1>(t, a, b, {.timeout_ns = collx_test::patient(60'000'000'000)});
    CHECK(t.report(1, 0).state == device::wait_state::aborted);
    CHECK(t.report(1, 0).what == device::waits_for::packet);
    CHECK_THROWS_AS(t.check(), aborted);
}

TEST_CASE("shapes that cannot be are refused") {
    twin_machine machine;
    const auto refuses = [&](auto change) {
        device::exchange_shape s = small_shape(2);
        change(s);
        CHECK_THROWS_AS(team<twin_machine>(machine, s), invalid_argument);
    };
    refuses([](auto& s) { s.ranks = 17; });
    refuses([](auto& s) { s.slots = 1; }); // a ring of fused steps would hang
    refuses([](auto& s) { s.stages = 3; });
    refuses([](auto& s) { s.slot_bytes = 100; });
}

namespace {
// Has memory for so many allocations.
struct little_memory : twin_machine {
    std::byte* allocate(int r, std::size_t bytes) {
        if (left-- == 0) fail(errc::resource, -1, -1, "", "no memory");
        ++live;
        return twin_machine::allocate(r, bytes);
    }
    void free(int r, std::byte* p) {
        --live;
        twin_machine::free(r, p);
    }
    std::byte* allocate_host(std::size_t bytes) { return allocate(0, bytes); }
    void free_host(std::byte* p) { free(0, p); }
    std::byte* on_device(std::byte* p) {
        if (left-- == 0) fail(errc::resource, -1, -1, "", "not mapped");
        return p;
    }
    int left = 0, live = 0;
};
} // namespace

TEST_CASE("a team that cannot be made keeps no memory") {
    for (int has = 0; has < 6; ++has) { // of four ranks, of the host, and its address on the device
        little_memory machine;
        machine.left = has;
        CHECK_THROWS_AS(team<little_memory>(machine, small_shape(4)), error);
        CHECK(machine.live == 0);
    }
    little_memory machine;
    machine.left = 6;
    team<little_memory>(machine, small_shape(4));
    CHECK(machine.live == 0);
}

TEST_CASE("a report is one word") {
    const device::wait_report r{device::wait_state::timed_out, device::waits_for::room, 13, 4711, 65535};
    const auto back = device::wait_report::unpack(r.pack());
    CHECK(
        (back.state == r.state && back.what == r.what && back.peer == 13 && back.step == 4711 && back.piece == 65535));
    CHECK(device::wait_report::unpack(0).state == device::wait_state::idle);
}
