// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The snippets of README.md and docs/ that are not taken from examples: between `[doc:name]` and `[doc:end]`, compiled
// and run. tests/scripts/docs_test.py sees to it that the pages show exactly these lines.
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <collx/algo/aggregated.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/ring.hpp>
#include <collx/collx.hpp>
#include <collx/comm/bucketed.hpp>
#include <collx/comm/by_value.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/facts.hpp>
#include <collx/sched/races.hpp>
#include <collx/sched/verify.hpp>

// [doc:op_traits]
namespace theirs {
struct merge_bits { // an operator that you cannot change
    unsigned operator()(unsigned a, unsigned b) const { return a | b; }
};
} // namespace theirs

template <>
struct collx::op_traits<theirs::merge_bits> {
    static constexpr bool is_commutative = true;
    static constexpr bool is_exact = true;
    static constexpr unsigned identity() { return 0; }
};
// [doc:end]

// [doc:member_buffer]
class histogram {
public:
    auto collx_buffer() { return collx::view(counts_.data(), counts_.size()); }
    void add(int bin) { ++counts_[static_cast<std::size_t>(bin)]; }
    long count(int bin) const { return counts_[static_cast<std::size_t>(bin)]; }

private:
    std::array<long, 16> counts_{};
};
// [doc:end]

// [doc:flat]
namespace mine {
using collx::sched::copy, collx::sched::recv, collx::sched::send;
using collx::sched::from, collx::sched::to, collx::sched::in, collx::sched::out;

// Each rank sends its part to all others, first to the rank after it.
struct flat_all_gather {
    static constexpr collx::collective op = collx::collective::all_gather;
    static constexpr const char* name = "flat_all_gather";
    static constexpr int chunks(int n) { return n; }

    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const { // what rank r of n does
        ex.step(copy, in(r), out(r));
        for (int i = 1; i < n; ++i) ex.step(send, to((r + i) % n), in(r));
        for (int i = 1; i < n; ++i) ex.step(recv | copy, from((r + n - i) % n), out((r + n - i) % n));
    }
};
static_assert(collx::sched::verify(flat_all_gather{}, 5).ok());
} // namespace mine
// [doc:end]

namespace {

using namespace std::chrono_literals;

void expect(bool right) {
    if (!right) throw collx::error(collx::errc::protocol, -1, -1, "a documented snippet is wrong", "");
}

// A process has one list for all its communicators, so this is compiled and not run.
[[maybe_unused]] void choose_transports() {
    // [doc:per_peer]
    using namespace collx;
    communicator usual(per_peer{shm{}, verbs{}, sockets{}}); // what `communicator world;` means
    communicator no_rdma(per_peer{shm{}, sockets{}});        // although there may be devices
    communicator rdma(per_peer{shm{}, verbs{}});             // to other hosts, or an error that says what is missing
    communicator apart(per_peer{sockets{}});                 // sockets also inside a host
    communicator one_host(per_peer{shm{}});                  // or `unsupported`

    using wires = basic_communicator<shm, sockets>; // the same list as a type
    wires world;
    wires row = world.split(world.rank() % 2); // stays of that type; so do dup() and shrink()
    communicator& any_list = world;            // what every call takes
    // [doc:end]
    barrier(any_list);
}

void calls_on_nodes(collx::communicator& world) {
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<float> x(10, 1), parts(10 * n, static_cast<float>(world.rank())), received(10 * n);
    // [doc:nodes]
    const auto nodes = collx::node_map::blocks(world.size(), 2); // or say where each rank is: {0, 0, 1, 1, 1}
    collx::all_reduce(world.with(collx::algo::hierarchical_all_reduce<>{nodes}), x);
    collx::broadcast(world.with(collx::algo::hierarchical_broadcast<collx::algo::trees>{nodes}), x, {.root = 1});
    collx::all_to_all(world.with(collx::algo::aggregated_all_to_all{nodes}), parts, received);
    // [doc:end]
    expect(x[9] == static_cast<float>(n) && received.back() == static_cast<float>(n - 1));
}

void arrivals(collx::communicator& world) {
    const std::vector<float> x(1000, static_cast<float>(world.rank()));
    int taken = 0;
    const auto take = [&](const std::vector<float>& y) {
        expect(y.size() == 1000 && y[0] == y[999]);
        ++taken;
    };
    // [doc:wait_any]
    std::vector<collx::work<std::vector<float>>> arriving;
    for (int r = 0; r < world.size(); ++r)
        if (r != world.rank()) arriving.push_back(collx::async::recv(world, std::vector<float>(1000), r));
    for (int r = 0; r < world.size(); ++r)
        if (r != world.rank()) collx::send(world, x, r);
    for (std::size_t k; (k = collx::wait_any(arriving)) != collx::no_work;) take(arriving[k].wait());
    // [doc:end]
    expect(taken == world.size() - 1);
}

void calls(collx::communicator& world) {
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<float> x(10, 1), in(10, 1), out(10);
    // [doc:call_shape]
    collx::all_reduce(world, x);                     // in place, sum
    collx::all_reduce(world, in, out, collx::max{}); // from in to out, another operator
    collx::broadcast(world, x, {.root = 1});         // options by name, any subset
    collx::all_reduce(world, x, {.timeout = 5s});    // a deadline for this call
    // [doc:end]
    expect(out[3] == 1 && x[3] == static_cast<float>(n * n));

    int mine = world.rank() + 1, before = 0;
    // [doc:value]
    collx::exclusive_scan(world, collx::value(mine), collx::value(before)); // where my part begins; rank 0's 0 stays
    // [doc:end]
    expect(before == world.rank() * (world.rank() + 1) / 2);

    std::vector<int> found(world.rank() == 0 ? 7 : 0, 3);
    // [doc:by_value_messages]
    if (world.rank() == 0) collx::by_value::send(world, found, 1); // a vector of any size
    if (world.rank() == 1) found = collx::by_value::recv<std::vector<int>>(world, 0);
    // [doc:end]
    expect(found.size() == (world.rank() < 2 ? 7u : 0u));

    std::vector<float> cells(10, static_cast<float>(world.rank())), halo(2);
    // [doc:neighbors]
    // A ring: the first cell goes to the left neighbour, the last one to the right; halos come from the right and left.
    const int last = world.size() - 1, left = world.rank() == 0 ? last : world.rank() - 1,
              right = world.rank() == last ? 0 : world.rank() + 1;
    const collx::neighbors ring{{right, left}, {left, right}}; // sources, destinations
    const std::vector<float> border{cells.front(), cells.back()};
    collx::neighbor_all_to_all(world, ring, border, halo);
    // [doc:end]
    expect(halo[0] == static_cast<float>(right) && halo[1] == static_cast<float>(left));

    // [doc:grid]
    int rows = static_cast<int>(std::sqrt(world.size())); // of a grid as square as it can be
    while (world.size() % rows != 0) --rows;
    const int columns = world.size() / rows, row_here = world.rank() / columns, column = world.rank() % columns;
    std::vector<int> near; // at a border of the grid there is no neighbour, and so no edge
    if (row_here > 0) near.push_back(world.rank() - columns);
    if (row_here < rows - 1) near.push_back(world.rank() + columns);
    if (column > 0) near.push_back(world.rank() - 1);
    if (column < columns - 1) near.push_back(world.rank() + 1);
    const collx::neighbors grid{near, near};
    std::vector<float> to_each(near.size(), cells[0]), from_each(near.size());
    collx::neighbor_all_to_all(world, grid, to_each, from_each);
    // [doc:end]
    for (std::size_t i = 0; i < near.size(); ++i) expect(from_each[i] == static_cast<float>(near[i]));

    // [doc:split]
    auto row = world.split(world.rank() / 2); // ranks 0, 1 | 2, 3 | …, each group a communicator of its own
    collx::all_reduce(row, x);
    auto host = world.split_by_host(); // the ranks of this host; host.rank() is this rank's number there
    auto own = world.dup();            // all ranks again, for a library whose calls shall not meet its caller's
    // [doc:end]
    expect(own.size() == world.size() && host.size() == world.size());

    // [doc:shared]
    auto g = collx::make_shared_vector<float>(world, 1'000'000, 1.0f); // memory that all ranks of the host see
    collx::all_reduce(world, g);                                       // nothing is staged: read and written in place
    // [doc:end]
    expect(g[7] == static_cast<float>(n));

    std::vector<int> part(3, world.rank()), whole(3 * n);
    // [doc:flat_policy]
    collx::all_gather(world.with(mine::flat_all_gather{}), part, whole);
    // [doc:end]
    expect(whole[0] == 0 && whole.back() == world.size() - 1 &&
           collx::sched::misdeclared(mine::flat_all_gather{}, 5) == nullptr);

    // [doc:ring_policy]
    auto by_ring = world.with(collx::algo::ring_all_reduce{}, collx::piece{16 * 1024});
    collx::all_reduce(by_ring, x);
    // [doc:end]
}

// Each verb once. Rank r's numbers are r.
void every_verb(collx::communicator& world) {
    const auto n = static_cast<std::size_t>(world.size());
    const std::vector<float> mine(3, static_cast<float>(world.rank())), parts(3 * n, static_cast<float>(world.rank()));
    std::vector<float> x(mine), out(3), all(3 * n), y(mine);
    const int next = (world.rank() + 1) % world.size(), prev = (world.rank() + world.size() - 1) % world.size();
    // [doc:calls]
    collx::all_reduce(world, x);             // or (world, mine, out), and an operator: (world, x, collx::max{})
    collx::reduce(world, x, {.root = 1});    // or (world, mine, out, {.root = 1}); without options the root is 0
    collx::broadcast(world, x, {.root = 1}); // without options the root is 0
    collx::scan(world, mine, out);           // or (world, x)
    collx::exclusive_scan(world, mine, out); // or (world, x)
    collx::reduce_scatter(world, parts, out);
    collx::all_gather(world, mine, all);
    collx::all_to_all(world, parts, all);            // or (world, all)
    collx::gather(world, mine, all, {.root = 1});    // only rank 1 needs `all`; without options the root is 0
    collx::scatter(world, parts, out, {.root = 1});  // only rank 1 needs `parts`
    collx::barrier(world);                           // or (world, {.timeout = 5s})
    collx::sendrecv(world, mine, next, out, prev);   // sent, to whom, received, from whom
    if (world.rank() == 0) collx::send(world, y, 1); // the buffer, to whom
    if (world.rank() == 1) collx::recv(world, y, 0); // the buffer, from whom
    // [doc:end]
    expect(out[2] == static_cast<float>(prev) && (world.rank() != 1 || (y[0] == 0 && all[3] == 1)));
}
// Messages of different types and lengths to each rank in one call, as MPI_Alltoallw's.
void grouped_messages(collx::communicator& world) {
    const int next = (world.rank() + 1) % world.size(), prev = (world.rank() + world.size() - 1) % world.size();
    const std::vector<int> numbers(3, world.rank());
    const std::vector<double> weights(2, world.rank());
    std::vector<int> their_numbers(3);
    std::vector<double> their_weights(2);
    // [doc:alltoallw]
    collx::group exchange(world);
    exchange.send(numbers, next); // ints to one rank, doubles to another
    exchange.send(weights, prev);
    exchange.recv(their_numbers, prev);
    exchange.recv(their_weights, next);
    exchange.launch(); // all of them at once
    // [doc:end]
    expect(their_numbers[2] == prev && their_weights[1] == next);
}

// Parts of different sizes. Rank r contributes, or receives, r + 1 elements.
void counted_calls(collx::communicator& world) {
    const auto n = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
    const std::size_t total = n * (n + 1) / 2, sum_of_ranks = n * (n - 1) / 2;
    std::vector<std::size_t> counts(n), offsets(n), send_counts(n, me + 1), send_offsets(n), recv_counts(n),
        recv_offsets(n);
    for (std::size_t r = 0, at = 0; r < n; at += ++r) {
        counts[r] = recv_counts[r] = r + 1;
        offsets[r] = recv_offsets[r] = at;
        send_offsets[r] = r * (me + 1);
    }
    const auto mark = static_cast<float>(me);
    std::vector<float> part(me + 1, mark), parts(total), in(n * (me + 1), mark), out(total), x(n, mark);
    // [doc:counts]
    collx::all_gather_v(world, part, parts, counts, offsets); // the same counts on all ranks
    collx::gather_v(world, part, parts, counts, offsets, {.root = 1});
    collx::scatter_v(world, parts, part, counts, offsets, {.root = 1});
    collx::reduce_scatter_v(world, parts, part, counts, collx::max{}); // no offsets: parts lie one after the other
    collx::all_to_all_v(world, in, send_counts, send_offsets, out, recv_counts, recv_offsets);

    collx::all_gather_v(world, part, parts, counts);               // offsets are optional in the other calls, too
    collx::gather_v(world, part, parts, counts, {}, {.root = 1});  // {}: no offsets, but options
    collx::all_to_all_v(world, in, send_counts, out, recv_counts); // both lists of offsets or none
    collx::all_to_all_v(world, x, std::vector<int>(n, 1));         // in place: sends and receives as many
    // [doc:end]
    expect(part[me] == static_cast<float>(me) && out[0] == 0 && out.back() == static_cast<float>(n - 1));
    float sum = 0;
    for (const float v : x) sum += v;
    expect(sum == static_cast<float>(sum_of_ranks));
}
// Rank r sends r + 1 elements to the next rank.
void counted_neighbors(collx::communicator& world) {
    const int n = world.size(), left = (world.rank() + n - 1) % n, right = (world.rank() + 1) % n;
    const collx::neighbors ring{{left}, {right}};
    const std::vector<float> in(static_cast<std::size_t>(world.rank()) + 1, static_cast<float>(world.rank()));
    std::vector<float> out(static_cast<std::size_t>(left) + 1), theirs(out.size());
    const std::vector<std::size_t> send_counts{in.size()}, send_offsets{0}, recv_counts{out.size()}, recv_offsets{0};
    // [doc:neighbor_counts]
    collx::neighbor_all_gather_v(world, ring, in, theirs, recv_counts, recv_offsets); // one for each source
    collx::neighbor_all_to_all_v(world, ring, in, send_counts, send_offsets, out, recv_counts, recv_offsets);
    // [doc:end]
    expect(theirs[0] == static_cast<float>(left) && out == theirs);
}

struct layer {
    std::string name;
    std::vector<float> gradient;
    int number = 0;
    void backward() { gradient.assign(gradient.size(), 2); }
};
void train(collx::communicator& world) {
    const int steps = 2;
    std::vector<layer> layers{{"first", std::vector<float>(100)}, {"last", std::vector<float>(100)}};
    // [doc:training_loop]
    collx::bucketed<float> gradients(world, {.average = true});
    for (layer& l : layers) l.number = gradients.add(l.name, l.gradient); // in the order of the forward pass
    for (int step = 0; step < steps; ++step) {
        for (std::size_t k = layers.size(); k-- > 0;) { // the backward pass
            layers[k].backward();
            gradients.ready(layers[k].number); // starts the calls of the buckets that are complete
        }
        gradients.finish(); // waits; then the gradients are the averages over all ranks
    }
    // [doc:end]
    expect(layers[0].gradient[99] == 2);
}

void operators(collx::communicator& world) {
    const int n = world.size();
    std::vector<float> x(5, 3);
    // [doc:hooks]
    const auto norm = collx::with_post(collx::with_pre(collx::plus{}, [](float v) { return v * v; }),
                                       [](float sum) { return std::sqrt(sum); });
    collx::all_reduce(world, x, norm); // squares, sums and roots in one pass
    // [doc:end]
    expect(std::abs(x[0] - 3 * std::sqrt(static_cast<float>(n))) < 1e-4f);
    unsigned bits = 1u << world.rank();
    collx::all_reduce(world, collx::value(bits), theirs::merge_bits{});
    expect(bits == (1u << n) - 1);
    static_assert(collx::is_commutative_v<theirs::merge_bits, unsigned>);
    int product = world.rank() + 1;
    // [doc:commutative]
    const auto times = collx::commutative([](int a, int b) { return a * b; });
    collx::all_reduce(world.with(collx::algo::ring_all_reduce{}), collx::value(product), times);
    // [doc:end]
    expect(product == 24 || n != 4);

    const std::vector<float> scores(10, static_cast<float>(world.rank()));
    const std::int64_t first = 10 * world.rank();
    // [doc:statistics]
    collx::top_k_state<float, 3> best; // the three best scores of all ranks, with their places, best first
    for (std::size_t i = 0; i < scores.size(); ++i) best.insert(scores[i], first + static_cast<std::int64_t>(i));
    collx::all_reduce(world, collx::value(best), collx::top_k<3>{});

    auto spread = collx::welford_state<double>::of(scores[0]); // count, mean and variance of all ranks' scores
    for (std::size_t i = 1; i < scores.size(); ++i)
        spread = collx::welford{}(spread, collx::welford_state<double>::of(scores[i]));
    collx::all_reduce(world, collx::value(spread), collx::welford{});
    // [doc:end]
    expect(best.entries[0].value == static_cast<float>(n - 1) && best.entries[0].index == 10 * (n - 1) &&
           best.entries[2].index == 10 * (n - 1) + 2);
    expect(spread.count == scores.size() * static_cast<std::size_t>(n) &&
           std::abs(spread.mean - (n - 1) / 2.0) < 1e-12 && (n != 4 || std::abs(spread.variance() - 1.25) < 1e-12));
}

void tensors(collx::communicator& world) {
    const auto n = static_cast<std::size_t>(world.size());
    histogram h;
    h.add(world.rank());
    collx::all_reduce(world, h);
    expect(h.count(0) == 1 && h.count(world.size() - 1) == 1);

    std::vector<double> data(60, 1);
    // [doc:strided]
    collx::all_reduce(world, collx::view(data.data(), 10));                 // a pointer and a count
    collx::all_reduce(world, collx::strided(data.data() + 20, 5, 3));       // every third
    collx::all_reduce(world, collx::strided2d(data.data() + 40, 2, 3, 10)); // 2 rows of 3, 10 apart
    // [doc:end]
    const auto sum = static_cast<double>(n);
    expect(data[9] == sum && data[10] == 1 && data[23] == sum && data[24] == 1 && data[52] == sum && data[53] == 1);
}

void errors(collx::communicator& world) {
    std::vector<float> x(10, 1);
    // [doc:catch]
    try {
        collx::all_reduce(world, x);
    } catch (const collx::peer_failed& e) { // rank e.peer() died: save what you have, go on with the survivors
        std::fprintf(stderr, "%s\n", e.what());
    } catch (const collx::timed_out& e) { // e.peer() has not come
        std::fprintf(stderr, "%s\n", e.what());
    }
    // [doc:end]
    // [doc:try]
    if (auto done = collx::try_::all_reduce(world, x); !done) std::fprintf(stderr, "%s\n", done.error().what());
    // [doc:end]
    // [doc:checked]
    world.set_checked(true); // every call first compares its arguments across ranks
    world.set_timeout(10s);  // for all calls that do not say otherwise
    // [doc:end]
    world.set_timeout(60s);
    std::vector<int> odd(world.rank() == 1 ? 3 : 4);
    const auto refused = collx::try_::all_reduce(world, odd);
    expect(!refused && refused.error().code() == collx::errc::mismatch);
}

} // namespace

TEST_CASE("the snippets of the documentation do what their comments say") {
    collx::run_threads(4, [](collx::communicator& world) {
        calls(world);
        every_verb(world);
        grouped_messages(world);
        counted_calls(world);
        counted_neighbors(world);
        train(world);
        arrivals(world);
        calls_on_nodes(world);
        operators(world);
        tensors(world);
        errors(world); // last: it ends the communicator
    });
    SUCCEED();
}

namespace {

void train_one_epoch(collx::communicator& world) {
    if (world.size() == 4 && world.rank() == 2) throw std::runtime_error("no more memory");
    for (int step = 0; step < 3 || world.size() == 4; ++step) collx::barrier(world);
}
void load_checkpoint(collx::communicator&) {}

} // namespace

TEST_CASE("the survivors of a failure go on") {
    std::atomic<int> right{0};
    CHECK_THROWS_WITH(collx::run_threads(4,
                                         [&](collx::communicator& world) {
                                             for (int epoch = 0; epoch < 2; ++epoch) {
                                                 // [doc:shrink]
                                                 try {
                                                     train_one_epoch(world);
                                                 } catch (const collx::peer_failed&) { // every survivor gets here
                                                     world = world.shrink(); // the ranks that live, in the same order
                                                     load_checkpoint(world);
                                                 }
                                                 // [doc:end]
                                             }
                                             int sum = 1;
                                             collx::all_reduce(world, collx::value(sum));
                                             right += sum == 3 && world.size() == 3;
                                         }),
                      "no more memory");
    CHECK(right == 3);
}

TEST_CASE("a schedule can be asked what it costs") {
    // [doc:facts]
    constexpr auto ring = collx::sched::facts_of(collx::algo::ring_all_reduce{}, 5);
    static_assert(ring.ok && ring.messages == 2 * (5 - 1) && ring.min_depth == 2);
    // [doc:end]
    CHECK(ring.rounds == 8);
}

namespace {

// Stores each received part one place too far.
struct shifted_all_gather : mine::flat_all_gather {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        using mine::copy, mine::recv, mine::send, mine::from, mine::to, mine::in, mine::out;
        ex.step(copy, in(r), out(r));
        for (int i = 1; i < n; ++i) ex.step(send, to((r + i) % n), in(r));
        for (int i = 1; i < n; ++i) ex.step(recv | copy, from((r + n - i) % n), out((r + n - i + 1) % n));
    }
};

} // namespace

TEST_CASE("a refusal is explained, and races are looked for") {
    const shifted_all_gather all_gather;
    // [doc:sched_explain]
    const auto s = collx::sched::record_all(all_gather, 3); // the steps of all ranks
    const auto verdict = collx::sched::verify(s);
    std::puts(collx::sched::explain(s, verdict).c_str());
    // [doc:end]
    CHECK_FALSE(verdict.ok());
    CHECK(std::string(collx::sched::explain(s, verdict).c_str()).find("the data is another chunk's") !=
          std::string::npos);
    // [doc:races]
    static_assert(collx::sched::races(mine::flat_all_gather{}, 3).ok());
    // [doc:end]
}

TEST_CASE("ranks join with an id that the program ships") {
    const int rank = 0, size = 1;
    const auto ship = [](void*, std::size_t) {};
    // [doc:unique_id]
    collx::unique_id id;
    if (rank == 0) id = collx::unique_id::make();
    ship(&id, sizeof id); // from rank 0 to all, by what the program has
    collx::communicator world(id, rank, size);
    // [doc:end]
    CHECK(world.size() == 1);
}
