// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// The flight recorder: which calls it keeps, what it records of calls that wait or fail, and the observer.
#include "comm/support.hpp"

#include <collx/comm/progress.hpp>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include <sys/resource.h>

#include "support/caught_stderr.hpp"

using namespace collx_test;
using collx::call_kind;
using collx::call_outcome;
using collx::call_record;
using collx::errc;

namespace {

bool is(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

struct seen {
    std::vector<call_record> begun, ended;
    static void see(void* to, const call_record& r) {
        auto& all = *static_cast<seen*>(to);
        (r.end_ns == 0 ? all.begun : all.ended).push_back(r);
    }
};

std::string new_folder() {
    std::string path = (std::filesystem::temp_directory_path() / "collx_records_XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    return path;
}

// An operation that stands still in its third step.
struct standing final : collx::operation {
    collx::task_state advance() override { return collx::task_state::blocked; }
    place where() const override { return {2, 5, 0, 1}; }
};

} // namespace

TEST_CASE("a record says which call it was, how it was made and when") {
    on_ranks(3, [](collx::communicator& w) {
        EXPECT(w.recent_calls().empty());
        collx::barrier(w);
        w.record_calls(8);
        std::vector<float> x(1024, 1.0f), y(3072);
        const std::int64_t before = collx::now_ns();
        collx::all_reduce(w, x);
        collx::all_reduce(w, x); // already prepared
        const auto first = w.recent_calls();
        EXPECT(first.size() == 2);
        for (const call_record& r : first) {
            EXPECT(is(r.verb, "all_reduce") && r.algorithm[0] != '\0');
            EXPECT(r.bytes == 4096 && r.kind == call_kind::blocking && r.outcome == call_outcome::done);
            EXPECT(before <= r.begin_ns && r.begin_ns <= r.end_ns && r.end_ns <= collx::now_ns());
            EXPECT(r.peer == -1 && r.collective == r.number);
        }
        EXPECT(first[1].number == w.sequence() && first[0].number + 1 == first[1].number);

        auto gathered = collx::async::all_gather(w, x, y);
        EXPECT(is(w.recent_calls()[2].verb, "all_gather") && w.recent_calls()[2].kind == call_kind::async);
        gathered.wait();
        EXPECT(w.recent_calls()[2].outcome == call_outcome::done);

        long one = 1;
        auto sum = collx::persistent::all_reduce(w, collx::value(one));
        sum();
        sum.start();
        sum.wait();
        const auto all = w.recent_calls();
        EXPECT(all.size() == 6);
        EXPECT(all[3].kind == call_kind::made && all[4].kind == call_kind::persistent && all[5].bytes == 8);
        EXPECT(is(all[4].algorithm, all[5].algorithm) && all[5].outcome == call_outcome::done);

        const auto before_split = w.sequence();
        auto other = w.split(0);
        EXPECT(is(w.recent_calls()[6].verb, "split") && w.recent_calls()[6].number == before_split + 1);
        collx::barrier(other);
        EXPECT(other.recent_calls().size() == 1 && is(other.recent_calls()[0].verb, "barrier"));
        w.record_calls(0);
        EXPECT(w.recent_calls().empty());
    });
}

TEST_CASE("messages, groups and parts of own counts are recorded, too") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false); // in checked mode the comparison of counts is a call, too
        w.record_calls(32);
        const int other = 1 - w.rank();
        std::vector<int> small(4, w.rank()), large(400'000, w.rank()), in(large);
        if (w.rank() == 0) {
            collx::send(w, small, other);
            collx::send(w, large, other);
        } else {
            collx::recv(w, small, other);
            collx::recv(w, in, other);
        }
        auto calls = w.recent_calls();
        EXPECT(calls.size() == 2);
        for (const auto& r : calls) {
            EXPECT(is(r.verb, w.rank() == 0 ? "send" : "recv") && r.collective == 0);
            EXPECT(r.outcome == call_outcome::done);
        }
        EXPECT(calls[0].bytes == 16 && calls[1].bytes == 1'600'000);
        collx::async::sendrecv(w, large, other, in, other).wait();
        EXPECT(is(w.recent_calls()[2].verb, "sendrecv") && w.recent_calls()[2].outcome == call_outcome::done);

        std::vector<long> sum(1, 1);
        std::vector<float> norm(1, 1);
        collx::group(w).all_reduce(sum).all_reduce(norm).launch();
        EXPECT(is(w.recent_calls()[3].verb, "group") && w.recent_calls()[3].collective != 0);
        std::vector<int> from(5), to(4 + 2 * static_cast<std::size_t>(w.rank()));
        const std::vector<std::size_t> sent{2, 3}, received(2, to.size() / 2);
        collx::all_to_all_v(w, from, sent, to, received);
        EXPECT(is(w.recent_calls().back().verb, "all_to_all_v"));
        EXPECT(w.recent_calls().back().outcome == call_outcome::done);

        w.record_calls(8);
        const auto before = w.sequence();
        collx::group messages(w);
        std::vector<int> theirs(5);
        std::vector<long> their_sum(1);
        messages.send(from, other);
        messages.recv(theirs, other);
        messages.send(sum, other);
        messages.recv(their_sum, other);
        messages.launch();
        calls = w.recent_calls();
        EXPECT(calls.size() == 2 && w.sequence() == before + 2); // one message to the peer, one from it
        for (const auto& r : calls) {
            EXPECT((is(r.verb, "send") || is(r.verb, "recv")) && r.collective == 0 && r.bytes == 32);
            EXPECT(r.outcome == call_outcome::done && r.number > before);
        }
    });
}

TEST_CASE("the ring keeps the last calls") {
    on_ranks(2, [](collx::communicator& w) {
        w.record_calls(3);
        auto late = collx::async::barrier(w); // its record is overwritten before it ends
        for (int i = 0; i < 4; ++i) collx::barrier(w);
        late.wait();
        const auto calls = w.recent_calls();
        EXPECT(calls.size() == 3);
        for (std::size_t i = 0; i < 3; ++i) EXPECT(calls[i].ordinal == 3 + i && calls[i].outcome == call_outcome::done);
    });
}

TEST_CASE("a call that runs into its deadline has failed, and names the rank that it waited for and the step") {
    const auto limit = heard_within(std::chrono::milliseconds(1500));
    std::atomic<int> come{0};
    on_ranks(3, [&](collx::communicator& w) {
        w.set_checked(false);
        w.record_calls(16);
        std::vector<double> x(100'000, 1.0);
        collx::all_reduce(w, x);
        collx::barrier(w);
        ++come;
        until([&] { return come == 3; }); // a rank that is late to the call has no step in it when the other ends it
        if (w.rank() == 2) {              // does not make the next call
            until([&] { return w.internals().net.failed(); });
            EXPECT(w.recent_calls().back().outcome == call_outcome::done);
            return;
        }
        w.set_timeout(limit);
        bool has_thrown = false;
        try {
            collx::all_reduce(w, x);
        } catch (const collx::error& e) {
            has_thrown = true;
            const auto calls = w.recent_calls();
            const call_record& r = calls[calls.size() - 1];
            EXPECT(r.number == e.sequence() && is(r.verb, "all_reduce") && r.bytes == 800'000);
            EXPECT(r.outcome == call_outcome::failed && r.code == e.code() && r.end_ns > r.begin_ns);
            at("%s %s peer %d step %d/%d outcome %d: %s", r.verb, r.algorithm, r.peer, r.step, r.steps, int(r.outcome),
               e.what());
            EXPECT(r.peer >= 0 && r.peer < 3 && r.peer != w.rank());
            EXPECT(r.step >= 0 && r.step < r.steps && r.piece >= 0 && r.piece < r.pieces);
        }
        EXPECT(has_thrown);
    });
}

TEST_CASE("a rank that waits for the comparison of a checked call is in that call, and the record names the other") {
    struct compared {
        const char* verb;
        call_kind kind;
        std::function<void(collx::communicator&)> call;
    };
    std::vector<int> x(4), y(4);
    const collx::neighbors both_ways{{1}, {1}};
    const compared all[] = {
        {"all_reduce", call_kind::async, [&](auto& w) { collx::async::all_reduce(w, x).wait(); }},
        {"neighbor_all_gather", call_kind::blocking, [&](auto& w) { collx::neighbor_all_gather(w, both_ways, x, y); }},
        {"neighbor_all_gather", call_kind::made,
         [&](auto& w) { (void)collx::persistent::neighbor_all_gather(w, both_ways, x, y); }},
        {"group", call_kind::blocking, [&](auto& w) { collx::group(w).all_reduce(x).launch(); }},
        {"group", call_kind::made, [&](auto& w) { (void)collx::persistent::group(w).all_reduce(x).launch(); }}};
    for (const compared& c : all)
        on_ranks(2, [&](collx::communicator& world) {
            auto w = world.dup();
            w.set_checked(true);
            w.record_calls(8);
            if (w.rank() == 0) { // alone
                w.set_timeout(heard_within(std::chrono::milliseconds(300)));
                (void)thrown<collx::timed_out>(w, [&] { c.call(w); });
                const auto calls = w.recent_calls();
                EXPECT(calls.size() == 1 && is(calls[0].verb, c.verb) && calls[0].kind == c.kind);
                EXPECT(calls[0].outcome == call_outcome::failed && calls[0].peer == 1 && calls[0].collective == 1);
            } else {
                EXPECT(w.recent_calls().empty());
            }
            collx::barrier(world);
        });
}

TEST_CASE("what a checked neighbourhood call exchanges to compare its edges is a part of its record") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(true);
        w.record_calls(16);
        const int next = (w.rank() + 1) % 3, last = (w.rank() + 2) % 3;
        const collx::neighbors ring{{last, next}, {last, next}};
        std::vector<int> one(2, w.rank()), two(4);
        collx::neighbor_all_gather(w, ring, one, two);
        EXPECT(two == std::vector<int>({last, last, next, next}));
        collx::async::neighbor_all_to_all(w, ring, std::vector<int>(2, w.rank()), one).wait();
        (void)collx::persistent::neighbor_all_gather(w, ring, one, two);
        collx::barrier(w);
        const auto calls = w.recent_calls();
        const char* const verbs[] = {"neighbor_all_gather", "neighbor_all_to_all", "neighbor_all_gather", "barrier"};
        const call_kind kinds[] = {call_kind::blocking, call_kind::async, call_kind::made, call_kind::blocking};
        EXPECT(calls.size() == 4);
        for (std::size_t i = 0; i < 4; ++i) {
            EXPECT_AT(i, is(calls[i].verb, verbs[i]) && calls[i].kind == kinds[i] && calls[i].collective != 0);
            EXPECT_AT(i, calls[i].outcome == call_outcome::done && calls[i].peer == -1);
            EXPECT_AT(i, calls[i].bytes == (i < 3 ? 8 : 0) && (calls[i].algorithm[0] == '\0') == (i < 3));
        }
    });
}

TEST_CASE("what becomes of a call whose record was overwritten says nothing of the call that has its place") {
    on_ranks(1, [](collx::communicator& w) {
        w.record_calls(1);
        auto& to = *w.internals().recorder;
        standing first, second, third;
        for (standing* op : {&first, &second, &third}) {
            to.begin_async({"probe"});
            to.started(*op);
            EXPECT(op->recorded != 0);
        }
        first.waiting_for = second.waiting_for = 7;
        to.ended(first, collx::task_state::done);
        to.ended(second, collx::task_state::failed);
        const call_record r = w.recent_calls()[0];
        EXPECT(r.ordinal == 3 && r.outcome == call_outcome::under_way && r.peer == -1 && r.step == -1);
        to.ended(third, collx::task_state::done);
        EXPECT(w.recent_calls()[0].outcome == call_outcome::done);
    });
}

TEST_CASE("a record belongs to the operation that is started next, unless its call is refused before") {
    on_ranks(1, [](collx::communicator& w) {
        w.record_calls(4);
        auto& to = *w.internals().recorder;
        standing op;
        to.fail(to.begin_async({"refused"}), errc::mismatch);
        to.started(op);
        EXPECT(op.recorded == 0);
        to.begin_async({"started"});
        to.started(op);
        EXPECT(op.recorded == 2);
        to.started(op); // a second operation of one call has no record of its own
        EXPECT(op.recorded == 0);
        EXPECT(w.recent_calls()[0].code == errc::mismatch && w.recent_calls()[0].outcome == call_outcome::failed);
    });
}

TEST_CASE("the place of a call is kept when it fails, and a rank does not wait for itself") {
    on_ranks(2, [](collx::communicator& w) {
        w.record_calls(8);
        auto& to = *w.internals().recorder;
        const int other = 1 - w.rank();
        for (const int peer : {w.rank(), other}) { // one strand of a rank may wait for another one
            standing op;
            to.begin_async({"probe"});
            to.started(op);
            op.waiting_for = peer;
            to.ended(op, collx::task_state::failed);
            const call_record r = w.recent_calls().back();
            EXPECT(r.outcome == call_outcome::failed && r.peer == (peer == other ? other : -1));
            EXPECT(r.step == 2 && r.steps == 5 && r.piece == 0 && r.pieces == 1);
        }
        standing run;
        const std::uint64_t blocking = to.begin({"blocking"});
        to.watch(&run);
        to.fail(blocking, errc::timeout);
        to.look(other); // a call that has ended is nowhere any more
        EXPECT(w.recent_calls().back().step == -1 && w.recent_calls().back().peer == -1);
        to.end(to.begin({"blocking"}));
        to.look(other);
        EXPECT(w.recent_calls().back().step == -1 && w.recent_calls().back().peer == -1);
    });
}

TEST_CASE("a failure ends all records under way, and says of a blocking call whose failure it is") {
    on_ranks(2, [](collx::communicator& w) {
        const int other = 1 - w.rank();
        for (const int guilty : {w.rank(), other}) {
            w.record_calls(4);
            auto& to = *w.internals().recorder;
            to.end(to.begin({"done"}));
            to.end(to.begin({"done"}));
            for (int i = 0; i < 3; ++i) to.begin_async({"probe"}); // the first record is overwritten
            to.begin({"blocking"});
            to.fail_all(collx::failure(errc::aborted, guilty), -1);
            const auto calls = w.recent_calls();
            EXPECT(calls.size() == 4 && calls[0].ordinal == 3);
            for (const call_record& r : calls)
                EXPECT(r.outcome == call_outcome::failed && r.code == errc::aborted && r.end_ns >= r.begin_ns);
            EXPECT(calls[0].peer == -1 && calls[3].peer == (guilty == other ? other : -1));
        }
        w.record_calls(4);
        w.internals().recorder->end(w.internals().recorder->begin({"done"}));
        w.internals().recorder->fail_all(collx::failure(errc::aborted, other), other);
        EXPECT(w.recent_calls()[0].outcome == call_outcome::done);
    });
}

TEST_CASE("a failure names the directory of the records once") {
    std::string said;
    const std::string directory = new_folder();
    {
        caught_stderr err;
        on_ranks(1, [&](collx::communicator& w) {
            w.record_calls(4, directory.c_str());
            for (int i = 0; i < 2; ++i) w.internals().recorder->fail_all(collx::failure(errc::aborted, 0), -1);
            EXPECT(w.recent_calls().empty());
        });
        said = err.text();
    }
    std::filesystem::remove_all(directory);
    const std::size_t at = said.find("the last calls are recorded in " + directory);
    CHECK(at != std::string::npos);
    CHECK(said.find("the last calls", at + 1) == std::string::npos);
}

TEST_CASE("a file of records that finds no room is not left behind") {
    const std::string directory = new_folder();
    rlimit usual{};
    ::getrlimit(RLIMIT_FSIZE, &usual);
    const rlimit low{4096, usual.rlim_max};
    const auto before = std::signal(SIGXFSZ, SIG_IGN);
    errc code{};
    std::size_t files = 0;
    on_ranks(1, [&](collx::communicator& w) {
        ::setrlimit(RLIMIT_FSIZE, &low);
        try {
            w.record_calls(1000, directory.c_str());
        } catch (const collx::error& e) {
            code = e.code();
        }
        ::setrlimit(RLIMIT_FSIZE, &usual);
        for (const auto& entry : std::filesystem::directory_iterator(directory)) files += !entry.path().empty();
        EXPECT(w.recent_calls().empty());
    });
    std::signal(SIGXFSZ, before);
    std::filesystem::remove_all(directory);
    CHECK(code == errc::resource);
    CHECK(files == 0);
}

TEST_CASE("an observer sees each call begin and end") {
    on_ranks(2, [](collx::communicator& w) {
        bool is_refused = false;
        try {
            w.on_calls({&seen::see, nullptr});
        } catch (const collx::invalid_argument&) {
            is_refused = true;
        }
        EXPECT(is_refused);
        seen all;
        w.record_calls(4);
        w.on_calls({&seen::see, &all});
        collx::barrier(w);
        auto later = collx::async::barrier(w);
        later.wait();
        EXPECT(all.begun.size() == 2 && all.ended.size() == 2);
        EXPECT(all.ended[1].kind == call_kind::async && all.ended[1].outcome == call_outcome::done);
        w.on_calls({});
        collx::barrier(w);
        EXPECT(all.begun.size() == 2);
    });
}

TEST_CASE("an observer stays when records begin anew, and sees the calls of communicators that split makes") {
    on_ranks(2, [](collx::communicator& w) {
        seen all;
        w.record_calls(4);
        w.on_calls({&seen::see, &all});
        w.record_calls(16);
        collx::barrier(w);
        EXPECT(all.begun.size() == 1 && all.ended.size() == 1);
        auto half = w.split(0);
        const std::size_t begun = all.begun.size(), ended = all.ended.size(); // split may count
        collx::barrier(half);
        EXPECT(all.begun.size() == begun + 1 && all.ended.size() == ended + 1);
    });
}

TEST_CASE("what an observer throws ends the communicator, and its own calls are refused") {
    for (const bool calls : {false, true})
        on_ranks(2, [calls](collx::communicator& w) {
            struct state {
                collx::communicator& w;
                bool calls, is_refused = false;
            } s{w, calls};
            w.record_calls(4);
            w.on_calls({[](void* to, const call_record& r) {
                            auto& mine = *static_cast<state*>(to);
                            if (mine.w.rank() != 0 || r.outcome != call_outcome::under_way) return;
                            if (!mine.calls) throw 17;
                            try {
                                collx::barrier(mine.w);
                            } catch (const collx::invalid_argument&) {
                                mine.is_refused = true;
                                throw;
                            }
                        },
                        &s});
            errc code{};
            int thrown = 0;
            try {
                collx::barrier(w);
            } catch (const collx::error& e) {
                code = e.code();
            } catch (int what) {
                thrown = what;
            }
            if (w.rank() == 0) EXPECT(calls ? s.is_refused && code == errc::invalid_argument : thrown == 17);
            else EXPECT(code == errc::aborted);
            // The other rank may have been notified before its call.
            if (w.rank() == 0) EXPECT(w.recent_calls()[0].outcome == call_outcome::failed);
        });
}

TEST_CASE("a progress thread ends records, and what an observer throws there is thrown by the wait") {
    on_ranks(2, [](collx::communicator& w) {
        struct state {
            std::atomic<int> ended{0};
            std::atomic<bool> throws{false};
        } s;
        w.record_calls(8);
        w.on_calls({[](void* to, const call_record& r) {
                        auto& mine = *static_cast<state*>(to);
                        if (r.outcome == call_outcome::done) ++mine.ended;
                        if (r.outcome == call_outcome::done && mine.throws) throw 18;
                    },
                    &s});
        (void)w.with(collx::progress::thread{});
        std::vector<float> x(1000, 1.0f);
        auto first = collx::async::all_reduce(w, x);
        until([&] { return s.ended == 1; }); // no call of this rank advances it
        EXPECT(w.recent_calls()[0].outcome == call_outcome::done);
        first.wait();
        collx::barrier(w);
        s.throws = w.rank() == 0;
        int thrown = 0;
        try {
            collx::async::all_reduce(w, x).wait();
        } catch (int what) {
            thrown = what;
        } catch (const collx::error&) { // the other rank's error
        }
        EXPECT(w.rank() != 0 || thrown == 18);
    });
}

TEST_CASE("a bad number of records, and a directory that cannot be written, are typed errors") {
    collx::run_threads(1, [](collx::communicator& w) {
        for (const int bad : {-1, (1 << 20) + 1}) CHECK_THROWS_AS(w.record_calls(bad), collx::invalid_argument);
        try {
            w.record_calls(4, "/proc/none");
            fail_check("recorded in /proc");
        } catch (const collx::error& e) {
            if (e.code() != errc::resource || std::string(e.what()).find("COLLX_RECORD_DIR") == std::string::npos)
                fail_check(e.what());
        }
        collx::barrier(w); // works without the recorder
    });
}
