// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=no optimised alone timeout=240
//
// How the cost of starting a job on many hosts grows with its ranks: store requests, connections, messages,
// descriptors, time. Ranks are threads, one or a few per host; docs/design/startup.md has the figures.
#include "comm/support.hpp"
#include "support/night.hpp"
#include "support/skip.hpp"

#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/memory_store.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>
#include <collx/transport/detail/socket_calls.hpp>

#include "../bench/startup_model.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <thread>

using namespace collx_test;
using collx::errc;

namespace {

std::vector<int> hosts_of(int ranks, const std::vector<int>& sizes) {
    std::vector<int> host_of;
    for (std::size_t h = 0; static_cast<int>(host_of.size()) < ranks; ++h)
        for (int i = 0; i < sizes[h % sizes.size()] && static_cast<int>(host_of.size()) < ranks; ++i)
            host_of.push_back(static_cast<int>(h));
    return host_of;
}

int open_files() {
    DIR* d = ::opendir("/proc/self/fd");
    int n = 0;
    while (::readdir(d) != nullptr) ++n;
    ::closedir(d);
    return n - 3;
}
// Each rank needs a listening socket and about five more; all of them are in this process.
bool may_open(rlim_t files) {
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    if (now.rlim_cur < files && now.rlim_max >= files) {
        now.rlim_cur = files;
        (void)::setrlimit(RLIMIT_NOFILE, &now);
    }
    return now.rlim_cur >= files;
}

// Counts one rank's requests to its store.
struct counting_store {
    collx::memory_store* to;
    int sets = 0, gets = 0, adds = 0;
    std::size_t bytes = 0;
    explicit counting_store(collx::memory_store& s) : to(&s) {}
    void set(std::string_view k, std::string_view v) {
        ++sets;
        bytes += v.size();
        to->set(k, v);
    }
    std::string get(std::string_view k, const collx::deadline& d) {
        ++gets;
        std::string v = to->get(k, d);
        bytes += v.size();
        return v;
    }
    std::int64_t add(std::string_view k, std::int64_t n) {
        ++adds;
        return to->add(k, n);
    }
    void barrier(std::string_view n, int r, const collx::deadline& d) { to->barrier(n, r, d); }
};

std::atomic<int> connects{0};
constexpr collx::socket_calls counted_calls{::socket,
                                            [](int fd, const sockaddr* a, socklen_t n) {
                                                ++connects;
                                                return ::connect(fd, a, n);
                                            },
                                            ::accept4,
                                            ::sendmsg,
                                            ::recvmsg,
                                            ::epoll_wait};

// Runs f(rank) on n threads. Returns the text of each one's error.
template <class F>
std::vector<std::string> on_threads(int n, F&& f) {
    std::vector<std::string> thrown(static_cast<std::size_t>(n));
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r)
        threads.emplace_back([&, r] {
            try {
                f(r);
            } catch (const std::exception& e) {
                thrown[static_cast<std::size_t>(r)] = e.what();
            }
        });
    for (auto& t : threads) t.join();
    return thrown;
}

collx::host_description alone_on_host(int rank) {
    collx::host_description h = collx::describe_host();
    h.id = "host" + std::to_string(rank);
    return h;
}

template <class Store>
collx::counted_ptr<collx::job> join_alone(int rank, int n, Store& store,
                                          std::int64_t timeout_ns = collx_test::patient(60'000'000'000)) {
    collx::detail::store_face<Store> face(store);
    return collx::detail::join_by_store(rank, n, static_cast<collx::any_store&>(face), timeout_ns, alone_on_host(rank),
                                        counted_calls);
}

// Measures time, and how much of it this process would have needed alone. On a machine with no idle core that is its
// computing time, spread over the cores.
class stopwatch {
public:
    double seconds() const { return static_cast<double>(collx::now_ns() - begun_ns_) / 1e9; }
    double seconds_alone() const {
        const auto cores = static_cast<double>(std::thread::hardware_concurrency());
        const double idle = (idle_seconds() - idle_at_first_) / (seconds() * cores);
        return idle > 0.25 ? seconds() : std::min(seconds(), (own_seconds() - own_at_first_) / cores);
    }

private:
    static double own_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
    static double idle_seconds() {
        double idle = 0, waiting = 0;
        if (FILE* f = std::fopen("/proc/stat", "r")) {
            if (std::fscanf(f, "cpu %*f %*f %*f %lf %lf", &idle, &waiting) != 2) idle = waiting = 0;
            std::fclose(f);
        }
        return (idle + waiting) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }
    std::int64_t begun_ns_ = collx::now_ns();
    double idle_at_first_ = idle_seconds(), own_at_first_ = own_seconds();
};

// Starts a job of n threads with a tcp_store, each on its own host, up to the first collective. Returns seconds alone.
double start_through_store(int n) {
    collx::tcp_server server;
    const stopwatch watch;
    std::atomic<int> right{0};
    const auto thrown = on_threads(n, [&](int r) {
        collx::tcp_store store("127.0.0.1", server.port(), collx::deadline::in_ns(collx_test::patient(60'000'000'000)));
        collx::communicator world(join_alone(r, n, store));
        int one = 1;
        collx::all_reduce(world.with(collx::algo::binomial_all_reduce{}), collx::value(one)); // connects the tree
        right += one == n;
    });
    for (const auto& t : thrown) REQUIRE(t == "");
    CHECK(right == n);
    std::printf("%d ranks through a store over TCP: %.2f s, alone %.2f s\n", n, watch.seconds(), watch.seconds_alone());
    return watch.seconds_alone();
}

void start_threads(int n, const std::vector<int>& sizes, bool with_ring) {
    const auto host_of = hosts_of(n, sizes);
    std::atomic<int> tree_ends{0}, all_ends{0}, files{0};
    const int before = open_files();
    const stopwatch watch;
    double up = 0, up_alone = 0;
    collx::run_threads(host_of, [&](collx::communicator& w) {
        auto& remote = *w.internals().net.remote();
        int one = 1;
        collx::all_reduce(w.with(collx::algo::binomial_all_reduce{}), collx::value(one));
        EXPECT(one == n);
        if (w.rank() == 0) {
            up = watch.seconds();
            up_alone = watch.seconds_alone();
            files = open_files() - before;
        }
        tree_ends += remote.connections();
        if (!with_ring) return;
        std::vector<int> x(static_cast<std::size_t>(n), 1);
        collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), x);
        EXPECT(x[0] == n && x.back() == n);
        all_ends += remote.connections();
    });
    std::printf("%d ranks, %d a host: first all_reduce after %.2f s, %d descriptors; %d ends of connections", n,
                sizes[0], up, files.load(), tree_ends.load());
    if (with_ring) std::printf(", %d with a ring", all_ends.load());
    std::puts("");
    // Not n squared: a tree, then a ring. (A connection that yields to another may be half counted for a moment.)
    CHECK(tree_ends <= 2 * n);
    CHECK(all_ends <= 4 * n);
    CHECK(up_alone < 10);
}

// A store that derives from the library's own interface.
class asked_store final : public collx::any_store {
public:
    void set(collx::name_view key, collx::name_view value) override { all_.set(key, value); }
    collx::kept_text get(collx::name_view key, const collx::deadline& until) override { return all_.get(key, until); }
    std::int64_t add(collx::name_view key, std::int64_t delta) override { return all_.add(key, delta); }
    void barrier(collx::name_view name, int ranks, const collx::deadline& until) override {
        all_.barrier(name, ranks, until);
    }
    collx::store_alarm* alarm() override {
        ++asked;
        return nullptr;
    }
    int asked = 0;

private:
    collx::memory_store all_;
};

} // namespace

TEST_CASE("a store that has the library's own face is asked for what that face alone has") {
    asked_store store;
    collx::communicator w(0, 1, store);
    CHECK(store.asked > 0);
}

TEST_CASE("ranks that meet through a store or an id take the settings of the environment, and the time limit of an "
          "argument") {
    for (const char* name : {"COLLX_TIMEOUT", "COLLX_CHECKED", "COLLX_RECORD"}) ::setenv(name, "1", 1);
    collx::memory_store store;
    const collx::communicator by_store(0, 1, store), by_id(collx::unique_id::make_here(), 0, 1),
        patient_one(0, 1, store, collx::duration::from_ns(5'000'000'000));
    for (const char* name : {"COLLX_TIMEOUT", "COLLX_CHECKED", "COLLX_RECORD"}) ::unsetenv(name);
    for (const collx::communicator* w : {&by_store, &by_id, &patient_one}) {
        const collx::job_settings& s = const_cast<collx::communicator*>(w)->internals().settings;
        CHECK(s.timeout_ns == (w == &patient_one ? 5'000'000'000 : 1'000'000'000));
        CHECK((s.checked == 1 && s.record == 1));
    }
}

TEST_CASE("a rank's words in the store do not grow with the ranks, but for a logarithm on some") {
    for (const int n : {2, 5, 16, 64}) {
        collx::memory_store shared;
        std::vector<counting_store> store(static_cast<std::size_t>(n), counting_store(shared));
        connects = 0;
        std::atomic<std::uint64_t> messages{0};
        const auto thrown = on_threads(n, [&](int r) {
            auto& mine = store[static_cast<std::size_t>(r)];
            collx::communicator world(join_alone(r, n, mine));
            messages += world.sent().messages; // the messages of its own tree
            collx::barrier(world);
        });
        for (const auto& t : thrown) REQUIRE(t == "");
        // bench/startup.cpp relies on this for numbers of ranks that no machine here can run.
        const auto model = collx::bench::startup_model(n, 1, {}).run();
        CHECK(2 * messages == static_cast<std::uint64_t>(model.messages)); // the listener's tree has as many messages
        long requests = 0;
        for (int r = 0; r < n; ++r) {
            const auto& s = store[static_cast<std::size_t>(r)];
            INFO("rank " << r << " of " << n << ": " << s.sets << " sets, " << s.gets << " gets, " << s.adds
                         << " adds");
            const auto& expected = model.of_rank[static_cast<std::size_t>(r)];
            CHECK(s.gets == expected.gets);
            CHECK(s.adds == expected.adds);
            requests += s.sets + s.gets + s.adds; // the rank that reads the verdict last sets one more key
            CHECK(s.sets <= 3);
            CHECK(s.gets <= 7);
            CHECK(s.bytes < 2000); // so it is not a table of all ranks
        }
        CHECK(requests == model.requests);
        CHECK(model.root_waits <= 4 + 4 + 1);
        // The trees of the listener and of the communicator, and the rounds of the barrier; either end may connect.
        CHECK(connects >= 2 * (n - 1));
        int rounds = 0;
        for (int k = 1; k < n; k *= 2) ++rounds;
        CHECK(connects <= 2 * (2 * (n - 1) + rounds * n));
    }
}

TEST_CASE("64 ranks on many hosts start at once, whatever their spread") {
    if (!may_open(2000)) return skip("64 ranks in one process need 2000 descriptors: raise ulimit -n");
    for (const auto& sizes : {std::vector<int>{1}, {2}, {8}, {1, 7, 3}}) start_threads(64, sizes, true);
    (void)start_through_store(64);
}

TEST_CASE("512 ranks start in less than ten seconds") {
    if (!may_open(8'000)) return skip("512 ranks in one process need 8000 descriptors: raise ulimit -n");
    // A ring has n squared steps, read by each of n ranks: by night only.
    const bool with_ring = collx_test::is_night();
    for (const auto& sizes : {std::vector<int>{1}, {5, 1, 16}}) start_threads(512, sizes, with_ring);
    CHECK(start_through_store(512) < 10);
}

TEST_CASE("settings that differ are named, with the ranks that differ") {
    for (const int n : {3, 9}) {
        collx::memory_store shared;
        const auto thrown = on_threads(n, [&](int r) {
            (void)collx::come_together(
                shared, r, n, collx::deadline::in_ns(collx_test::patient(30'000'000'000)),
                {r == 1 || r == n - 1 ? "version=1 checked=1" : "version=1 checked=0", "a", "b"});
        });
        for (const auto& t : thrown) {
            CHECK(t.find("say checked=1, rank 0 says checked=0") != std::string::npos);
            CHECK(t.find("ranks 1, " + std::to_string(n - 1)) != std::string::npos);
        }
    }
}

TEST_CASE("a rank that goes between the store and the exchange of addresses is named by all") {
    struct leaving_store : counting_store {
        bool leaves;
        leaving_store(collx::memory_store& s, bool l) : counting_store(s), leaves(l) {}
        std::string get(std::string_view k, const collx::deadline& d) {
            if (leaves && k.find("/listener/") != k.npos) throw std::runtime_error("gone");
            return counting_store::get(k, d);
        }
    };
    constexpr int victims[] = {3, 4, 5}; // a leaf, a rank with others below it, the last one
    collx::memory_store shared[3];       // a job for each victim, at the same time: all of them wait for a limit
    const std::int64_t limit_ns =
        std::chrono::nanoseconds(collx_test::heard_within(std::chrono::milliseconds(3000))).count();
    const auto thrown = on_threads(18, [&](int i) {
        leaving_store mine(shared[i / 6], i % 6 == victims[i / 6]);
        (void)join_alone(i % 6, 6, mine, limit_ns);
    });
    for (int job = 0; job < 3; ++job) {
        const int victim = victims[job];
        for (int r = 0; r < 6; ++r) {
            const auto& t = thrown[static_cast<std::size_t>(6 * job + r)];
            INFO("victim " << victim << ", rank " << r << ": " << t);
            if (r == victim) CHECK(t == "gone");
            else
                CHECK((t.find("rank " + std::to_string(victim) + " did not come to exchange addresses") != t.npos ||
                       t.find("rank " + std::to_string(victim) + " ended, or cannot be reached") != t.npos));
        }
    }
}
