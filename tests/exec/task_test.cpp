// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=240
//
// The cursor over recorded steps, with all ranks in one thread. In whatever order the ranks advance, the results are
// the same, and no rank advances that must wait. The order is random, so schedules meet interleavings that threads
// rarely produce.
#include <collx/exec/task.hpp>

#include <collx/exec/composed.hpp>
#include <collx/exec/composed_messages.hpp>
#include <collx/exec/mover.hpp>

#include <memory>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include <collx/algo/algorithms.hpp>
#include <collx/plan/schedules.hpp>
#include <collx/transport/memory.hpp>

namespace {

using view = collx::contiguous_view<int>;
using sum_mover = collx::mover<view, view, collx::plus, int>;
using sum_task = collx::typed_operation<collx::task, sum_mover>;
constexpr std::uint64_t agreed = 0x7000'0000'0000'0007; // the agreed number of a call; signals carry its uppermost bits
constexpr std::uint64_t of_another = agreed << 1;

// n ranks that share an arena, each with its links and schedules.
struct ranks {
    explicit ranks(int n)
        : memory(collx::make_memory_arena(n)), offset(memory->take(collx::links_layout::for_ranks(n).bytes())) {
        for (int r = 0; r < n; ++r) {
            net.push_back(std::make_unique<collx::links>(*memory, offset, r, n));
            cache.push_back(std::make_unique<collx::schedule_cache>(*net.back()));
        }
    }
    int size() const { return static_cast<int>(net.size()); }
    collx::counted_ptr<collx::arena> memory;
    std::uint64_t offset;
    std::vector<std::unique_ptr<collx::links>> net;
    std::vector<std::unique_ptr<collx::schedule_cache>> cache;
};

// One all_reduce: a task and a buffer for each rank.
template <class A>
struct call {
    call(ranks& all, const A& a, std::size_t size, std::size_t piece_elems, int at_port, int astray = -1)
        : data(static_cast<std::size_t>(all.size())) { // astray: a rank that makes another call
        for (int r = 0; r < all.size(); ++r) {
            auto& x = data[static_cast<std::size_t>(r)];
            for (std::size_t i = 0; i < size; ++i) x.push_back(r * 100 + static_cast<int>(i));
            auto& plan = all.cache[static_cast<std::size_t>(r)]->bind(a, at_port);
            const auto l = collx::chunk_layout::even(size, plan.chunks);
            if (plan.tmp_chunks != 0)
                all.cache[static_cast<std::size_t>(r)]->provide_scratch(
                    plan, static_cast<std::size_t>(plan.tmp_chunks) * piece_elems * sizeof(int));
            const view v(x.data(), x.size());
            tasks.push_back(std::make_unique<sum_task>(*all.net[static_cast<std::size_t>(r)], plan,
                                                       sum_mover(v, v, collx::plus{}, all.size()), l, l, piece_elems,
                                                       r == astray ? of_another : agreed));
        }
    }
    bool is_right() const {
        const int n = static_cast<int>(data.size());
        for (const auto& x : data)
            for (std::size_t i = 0; i < x.size(); ++i)
                if (x[i] != n * (n - 1) / 2 * 100 + n * static_cast<int>(i)) return false;
        return true;
    }
    std::vector<std::vector<int>> data;
    std::vector<std::unique_ptr<sum_task>> tasks;
};

template <class F>
void for_each_copying_all_reduce(F&& f) {
    collx::algo::algorithms<collx::collective::all_reduce>::for_each([&](auto a) {
        if (std::string(decltype(a)::name) != "zero_copy") f(a);
    });
}

} // namespace

TEST_CASE("the order in which ranks are moved on does not matter") {
    std::mt19937 random(Catch::rngSeed());
    for (const int n : {1, 2, 3, 4, 5, 8}) {
        ranks all(n);
        for_each_copying_all_reduce([&](auto a) {
            for (int round = 0; round < 30; ++round) {
                const std::size_t size = random() % 200, piece = 1 + random() % 40;
                call c(all, a, size, piece, collx::port::blocking);
                std::vector<int> left;
                for (int r = 0; r < n; ++r) left.push_back(r);
                for (int idle = 0; !left.empty();) {
                    // Mostly advances one rank for a long time, as a scheduler does.
                    const std::size_t k = random() % left.size();
                    collx::task_state s = collx::task_state::moved;
                    for (unsigned turns = random() % 5 + 1; turns > 0 && s != collx::task_state::done; --turns)
                        s = c.tasks[static_cast<std::size_t>(left[k])]->advance();
                    if (s == collx::task_state::failed || ++idle > 100'000)
                        FAIL(a.name << " n=" << n << " size=" << size << " piece=" << piece);
                    if (s != collx::task_state::done) continue;
                    left.erase(left.begin() + static_cast<std::ptrdiff_t>(k));
                    idle = 0;
                }
                if (!c.is_right()) FAIL(a.name << " n=" << n << " size=" << size << " piece=" << piece);
            }
        });
    }
    SUCCEED();
}

namespace {

// Where pieces must be in a window's ring: one behind the other, and at the start again if the end is too near.
struct ring_model {
    std::size_t ring_bytes, position = 0;
    std::vector<std::pair<std::size_t, std::size_t>> parts; // first byte and end of each piece so far
    void add_call(std::size_t pieces, std::size_t bytes) {
        for (; pieces > 0; --pieces) {
            if (position + bytes > ring_bytes) position = 0;
            parts.emplace_back(position, position + bytes);
            position += bytes;
        }
    }
    bool lie_apart(std::size_t in_a_row) const {
        for (std::size_t i = 0; i < parts.size(); ++i)
            for (std::size_t j = i + 1; j < parts.size() && j < i + in_a_row; ++j)
                if (parts[i].first < parts[j].second && parts[j].first < parts[i].second) return false;
        return true;
    }
};

} // namespace

TEST_CASE("pieces of any size go round a window's ring, wherever its end falls") {
    constexpr std::size_t stage_bytes = 4096;
    std::mt19937 random(Catch::rngSeed() + 2);
    for (const int n : {2, 3, 5})
        for (const int depth : {1, 2, 3}) {
            INFO(n << " ranks, depth " << depth);
            ranks all(n);
            const collx::algo::two_shot_all_reduce a{.depth = depth};
            std::vector<collx::bound_window*> windows;
            for (int r = 0; r < n; ++r) { // a ring that fills soon
                auto& w = *all.cache[static_cast<std::size_t>(r)]->bind(a, 0).window;
                auto shape = w.memory.shape();
                shape.stage_bytes = stage_bytes;
                w.memory = all.net[static_cast<std::size_t>(r)]->make_window(shape);
                windows.push_back(&w);
            }
            const auto chunks = static_cast<std::size_t>(a.chunks(n)),
                       most = stage_bytes / chunks / 64 * 64 / sizeof(int);
            ring_model model{windows[0]->memory.chunk_ring_bytes()}; // the ring of each chunk
            REQUIRE(model.ring_bytes == static_cast<std::size_t>(depth + 1) * stage_bytes / chunks / 64 * 64);
            for (int round = 0; round < 150; ++round) {
                // One piece, exactly as many as fill the ring, or many.
                const std::size_t piece = round % 5 == 0 ? most : 1 + random() % most;
                const std::size_t size = 1 + random() % (chunks * piece *
                                                         (round % 3 == 0   ? 1
                                                          : round % 3 == 1 ? 3
                                                                           : 20));
                call c(all, a, size, piece, 0);
                const std::size_t longest = (size + chunks - 1) / chunks, bytes = piece * sizeof(int);
                if (bytes * chunks > collx::signal_line::inline_bytes)
                    model.add_call((longest + piece - 1) / piece, windows[0]->memory.shape().step_bytes(bytes));
                for (const auto* w : windows) REQUIRE(w->position == model.position);
                std::vector<int> left;
                for (int r = 0; r < n; ++r) left.push_back(r);
                for (int idle = 0; !left.empty();) { // one rank runs as far ahead as possible, another lags
                    const std::size_t k = random() % 4 == 0 ? random() % left.size() : 0;
                    if (c.tasks[static_cast<std::size_t>(left[k])]->advance() != collx::task_state::done) {
                        if (k == 0 && left.size() > 1) std::swap(left[0], left[1 + random() % (left.size() - 1)]);
                        REQUIRE(++idle < 100'000);
                        continue;
                    }
                    left.erase(left.begin() + static_cast<std::ptrdiff_t>(k));
                }
                REQUIRE(c.is_right());
            }
            CHECK(model.parts.size() > 500);
            CHECK(model.lie_apart(static_cast<std::size_t>(depth)));
        }
}

TEST_CASE("calls on different ports do not disturb each other, whichever rank is ahead") {
    std::mt19937 random(Catch::rngSeed() + 1);
    ranks all(4);
    for_each_copying_all_reduce([&](auto a) {
        for (int round = 0; round < 10; ++round) {
            std::vector<std::unique_ptr<call<decltype(a)>>> calls;
            for (int p = 0; p < 4; ++p)
                calls.push_back(std::make_unique<call<decltype(a)>>(all, a, random() % 300, 7, p));
            std::vector<sum_task*> left;
            for (auto& c : calls)
                for (auto& t : c->tasks) left.push_back(t.get());
            for (int turns = 0; !left.empty() && turns < 200'000; ++turns) {
                const std::size_t k = random() % left.size();
                if (left[k]->advance() == collx::task_state::done)
                    left.erase(left.begin() + static_cast<std::ptrdiff_t>(k));
            }
            CHECK(left.empty());
            for (auto& c : calls) CHECK(c->is_right());
        }
    });
}

TEST_CASE("a task that waits says for whom, and does not end before its peers have done their part") {
    ranks all(3);
    for_each_copying_all_reduce([&](auto a) {
        INFO(a.name);
        call c(all, a, 60, 1000, collx::port::blocking);
        while (c.tasks[0]->advance() == collx::task_state::moved) {
        }
        CHECK(c.tasks[0]->advance() == collx::task_state::blocked);
        CHECK((c.tasks[0]->waiting_for == 1 || c.tasks[0]->waiting_for == 2));
        for (int turns = 0; turns < 100; ++turns) {
            c.tasks[0]->advance();
            c.tasks[1]->advance();
        }
        CHECK(c.tasks[0]->advance() == collx::task_state::blocked);
        CHECK(c.tasks[1]->advance() == collx::task_state::blocked);
        int done = 0;
        for (int turns = 0; turns < 100 && done < 3; ++turns) {
            done = 0;
            for (auto& t : c.tasks) done += t->advance() == collx::task_state::done;
        }
        CHECK(done == 3);
        CHECK(c.is_right());
        for (auto& t : c.tasks) CHECK(t->advance() == collx::task_state::done); // and stays done
    });
}

TEST_CASE("a message of another size fails the task and names the sender") {
    ranks all(2);
    auto plan = [&](int r) -> collx::bound_schedule& {
        return all.cache[static_cast<std::size_t>(r)]->bind(collx::algo::ring_all_reduce{}, 0);
    };
    std::vector<int> x(64), y(62);
    const auto make = [&](int r, std::vector<int>& v) {
        const auto l = collx::chunk_layout::even(v.size(), 2);
        return sum_task(*all.net[static_cast<std::size_t>(r)], plan(r),
                        sum_mover(view(v.data(), v.size()), view(v.data(), v.size()), collx::plus{}, 2), l, l, 1000,
                        agreed);
    };
    auto a = make(0, x), b = make(1, y);
    bool failed = false;
    for (int turns = 0; turns < 50 && !failed; ++turns) {
        a.advance();
        failed = b.advance() == collx::task_state::failed;
    }
    CHECK(failed);
    CHECK((b.error.code() == collx::errc::mismatch && b.error.rank() == 0));
}

TEST_CASE("a message or signal of another call fails the task and names the rank that makes it") {
    const auto check = [](auto a) {
        INFO(a.name);
        ranks all(2);
        call c(all, a, 60, 1000, 0, 1);
        int seen = 0;
        for (int turns = 0; turns < 50 && seen == 0; ++turns)
            for (int r = 0; r < 2; ++r) {
                auto& t = *c.tasks[static_cast<std::size_t>(r)];
                if (t.advance() != collx::task_state::failed) continue;
                ++seen;
                CHECK((t.error.code() == collx::errc::mismatch && t.error.rank() == 1 - r));
            }
        CHECK(seen != 0);
    };
    check(collx::algo::ring_all_reduce{});     // messages
    check(collx::algo::one_shot_all_reduce{}); // signals
}

TEST_CASE("a window remembers the calls that it has had, and says whether a signal is of the right one") {
    using collx::signal_word;
    ranks all(2);
    auto& w = *all.cache[0]->bind(collx::algo::one_shot_all_reduce{}, 0).window;
    const auto first = w.take(1, 8, true, agreed), second = w.take(1, 8, true, of_another);
    REQUIRE((first.first == 0 && second.first == 1 && first.tag != second.tag));
    for (const auto* then : {&first, &second}) { // signals of `second` itself and of the call before it
        const std::uint64_t at = then->first, number = at + 1;
        CHECK(w.agrees(second, signal_word::of(number, then->tag), at));
        CHECK_FALSE(w.agrees(second, signal_word::of(number, then == &first ? second.tag : first.tag), at));
        CHECK(w.agrees(second, signal_word::of(number + 1, 0), at)); // the peer is ahead
    }
}

TEST_CASE("a window remembers all iterations of a call in pieces") {
    using collx::signal_word;
    ranks all(2);
    auto& w = *all.cache[0]->bind(collx::algo::one_shot_all_reduce{}, 0).window;
    const auto first = w.take(3, 8, true, agreed), second = w.take(1, 8, true, of_another);
    REQUIRE((second.first == first.first + 3 && first.tag != second.tag));
    for (std::uint64_t at = first.first; at < second.first; ++at) {
        CHECK(w.agrees(second, signal_word::of(at + 1, first.tag), at));
        CHECK_FALSE(w.agrees(second, signal_word::of(at + 1, second.tag), at));
    }
}

namespace {

struct other_call {
    int peer;
};

// Waits in one rank's composed run: only the awaited rank advances.
struct moving_peer {
    std::vector<std::unique_ptr<sum_task>>& tasks;
    std::uint64_t operator()(collx::atomic<std::uint64_t>& word, std::uint64_t least, int peer) {
        for (int turns = 0; turns < 1000; ++turns) {
            const std::uint64_t is = word.load(collx::memory_order::acquire);
            if (collx::signal_word::has_reached(is, least)) return is;
            (void)tasks[static_cast<std::size_t>(peer)]->advance();
        }
        throw std::runtime_error("the peer does not come");
    }
    void disagree(int peer) { throw other_call{peer}; }
    void give_up(collx::failure) { throw std::runtime_error("the communicator has failed"); }
};

// Rank 0 uses a composed run, the other ranks are tasks.
template <class A>
void run_composed(ranks& all, const A& a, call<A>& c) {
    auto& plan = all.cache[0]->bind(a, 0);
    REQUIRE(collx::is_composable(plan));
    auto& x = c.data[0];
    const view v(x.data(), x.size());
    sum_mover mover(v, v, collx::plus{}, all.size());
    const auto l = collx::chunk_layout::even(x.size(), plan.chunks);
    const collx::composed_call<sum_mover> shared(*all.net[0], plan, mover, l, l, 1000);
    moving_peer await{c.tasks};
    collx::composed_run<sum_mover, moving_peer> run(shared, await, agreed);
    a(run, 0, all.size());
}

} // namespace

TEST_CASE("a composed run waits for each rank, and its signals are those of a task") {
    for (const int n : {2, 3, 5}) {
        INFO(n << " ranks");
        const collx::algo::one_shot_all_reduce a;
        ranks all(n);
        call c(all, a, 60, 1000, 0);
        c.tasks[0] = nullptr; // its construction took an iteration of rank 0's window
        auto& w = *all.cache[0]->bind(a, 0).window;
        w.iteration = 0;
        w.position = 0;
        run_composed(all, a, c);
        for (std::size_t r = 1; r < c.tasks.size(); ++r) {
            for (int turns = 0; turns < 50 && c.tasks[r]->advance() == collx::task_state::blocked; ++turns) {
            }
            CHECK(c.tasks[r]->advance() == collx::task_state::done);
        }
        CHECK(c.is_right());
    }
}

TEST_CASE("a composed run names the rank that makes another call") {
    const collx::algo::one_shot_all_reduce a;
    ranks all(3);
    call c(all, a, 60, 1000, 0, 2);
    c.tasks[0] = nullptr;
    all.cache[0]->bind(a, 0).window->iteration = 0;
    all.cache[0]->bind(a, 0).window->position = 0;
    int named = -1;
    try {
        run_composed(all, a, c);
    } catch (const other_call& e) {
        named = e.peer;
    }
    CHECK(named == 2);
}

namespace {

// Waits in one rank's composed run: the other ranks' tasks advance.
struct moving_peers {
    std::vector<std::unique_ptr<sum_task>>& tasks;
    template <class Ready>
    void until(Ready&& ready) {
        for (int turns = 0; turns < 10'000; ++turns) {
            if (ready()) return;
            for (auto& t : tasks)
                if (t != nullptr) (void)t->advance();
        }
        throw std::runtime_error("the peers do not come");
    }
    void message(const collx::receiving_end& rx, std::size_t bytes, std::uint32_t tag, int peer) {
        until([&] { return rx.has_message(); });
        if (!rx.is_expected(bytes, tag)) throw other_call{peer};
    }
    void room(collx::sending_end& tx, std::size_t bytes, int) {
        until([&] { return tx.has_room(bytes); });
    }
};

// Rank 0 uses a composed run, the other ranks are tasks. False: this algorithm has no such form.
template <class A>
bool run_composed_messages(ranks& all, const A& a, call<A>& c, std::size_t piece_elems = 1000) {
    auto& plan = all.cache[0]->bind(a, 0);
    if (!collx::is_composable_of_messages(plan)) return false;
    auto& x = c.data[0];
    const view v(x.data(), x.size());
    sum_mover mover(v, v, collx::plus{}, all.size());
    const auto l = collx::chunk_layout::even(x.size(), plan.chunks);
    const collx::composed_messages<sum_mover> shared(*all.net[0], plan, mover, l, l, piece_elems);
    if (!shared.fits()) return false;
    moving_peers wait{c.tasks};
    collx::composed_message_run<sum_mover, moving_peers> run(shared, wait, agreed);
    a(run, 0, all.size());
    return true;
}

} // namespace

TEST_CASE("a composed run of messages is met by tasks, call after call") {
    int met = 0;
    for (const int n : {2, 3, 4, 5})
        for_each_copying_all_reduce([&](auto a) {
            if constexpr (collx::sched::signals_v<decltype(a)> == 0) {
                ranks all(n);
                for (int round = 0; round < 40; ++round) { // more than a channel has slots
                    call c(all, a, static_cast<std::size_t>(round * 7), 1000, 0);
                    c.tasks[0] = nullptr;
                    if (!run_composed_messages(all, a, c)) break;
                    for (std::size_t r = 1; r < c.tasks.size(); ++r) {
                        for (int turns = 0; turns < 50 && c.tasks[r]->advance() != collx::task_state::done; ++turns) {
                        }
                        CHECK(c.tasks[r]->advance() == collx::task_state::done);
                    }
                    INFO(decltype(a)::name << " of " << n << " ranks, round " << round);
                    CHECK(c.is_right());
                    ++met;
                }
            }
        });
    CHECK(met >= 4 * 40 * 3);
}

TEST_CASE("a composed run of messages names the rank that makes another call, and leaves long ones to tasks") {
    const collx::algo::ring_all_reduce a;
    ranks all(3);
    call c(all, a, 60, 1000, 0, 2);
    c.tasks[0] = nullptr;
    int named = -1;
    try {
        (void)run_composed_messages(all, a, c);
    } catch (const other_call& e) {
        named = e.peer;
    }
    CHECK(named == 2);
    ranks others(3);
    call in_pieces(others, a, 60, 10, 0), of_long_messages(others, a, 3 * 4096, 4096, 0);
    CHECK(!run_composed_messages(others, a, in_pieces, 10));
    CHECK(!run_composed_messages(others, a, of_long_messages, 4096));
    const collx::algo::one_shot_all_reduce over_windows;
    call by_windows(others, over_windows, 60, 1000, 0);
    CHECK(!run_composed_messages(others, over_windows, by_windows));
}
