// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks on two real hosts: network namespaces joined by a veth pair, found through COLLX_* variables and a TCP store
// across the link. Checks results, which ranks exchange messages, and what happens when the link goes down. Needs
// root and iproute2; the program makes the namespaces and deletes them.
// collx-test: serial timeout=240
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include <collx/algo/pairwise.hpp>
#include <collx/transport/socket_connector.hpp>

#include "faults/hosts.hpp"
#include "support/patience.hpp"
#include "support/skip.hpp"

using namespace collx_test;

namespace {

bool runs(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

// Two namespaces, left and right, each with an address on the link between them.
class two_hosts {
public:
    two_hosts() : why_not_(make()) {}
    two_hosts(const two_hosts&) = delete;
    ~two_hosts() {
        for (int h = 0; h < 2; ++h) (void)runs("ip netns del " + name(h));
    }
    const char* why_not() const { return why_not_; }
    static bool has_v6() { return has_v6_; }

    static std::string name(int host) { return "collx-" + std::to_string(owner) + (host == 0 ? "-left" : "-right"); }
    static std::string address(int host) { return "10.231.77." + std::to_string(host + 1); }
    static std::string second_address(int host) { return "10.231.78." + std::to_string(host + 1); }
    static std::string v6_address(int host) { return "fd00:231::" + std::to_string(host + 1); }
    void cut() const { (void)runs("ip -n " + name(1) + " link set l0 down"); }
    // Moves this process to a host, as a rank of the job whose store is at `port`.
    static void enter(int host, int rank, int n, int port, const char* timeout_s) {
        const std::string path = "/run/netns/" + name(host);
        const collx::descriptor d(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (::setns(d.get(), CLONE_NEWNET) != 0) std::abort();
        const auto set = [](const char* key, const std::string& value) { ::setenv(key, value.c_str(), 1); };
        set("COLLX_RANK", std::to_string(rank));
        set("COLLX_SIZE", std::to_string(n));
        set("COLLX_STORE", "tcp:" + address(0) + ":" + std::to_string(port));
        set("COLLX_ADDRESS", address(host));
        set("COLLX_INSECURE", "1");
        set("COLLX_TIMEOUT", timeout_s);
    }

private:
    static const char* make() {
        if (::geteuid() != 0) return "network namespaces need root";
        if (!runs("ip -V >/dev/null")) return "no ip command (Debian: iproute2)";
        if (!runs("ip netns add " + name(0)) || !runs("ip netns add " + name(1)))
            return "this machine does not allow network namespaces";
        if (!runs("ip link add l0 netns " + name(0) + " type veth peer name l0 netns " + name(1)))
            return "this machine does not allow veth pairs";
        for (int h = 0; h < 2; ++h)
            if (!runs("ip -n " + name(h) + " addr add " + address(h) + "/24 dev l0") ||
                !runs("ip -n " + name(h) + " addr add " + second_address(h) + "/24 dev l0") ||
                !runs("ip -n " + name(h) + " link set l0 up") || !runs("ip -n " + name(h) + " link set lo up"))
                return "this machine does not allow addresses in namespaces";
        for (int h = 0; h < 2; ++h)
            has_v6_ = runs("ip -n " + name(h) + " addr add " + v6_address(h) + "/64 dev l0 nodad");
        return nullptr;
    }

    static inline bool has_v6_ = false;
    static inline const int owner = static_cast<int>(::getpid());
    const char* why_not_; // null: the namespaces exist
};

// Runs body(world, rank) as n ranks of two hosts; host_of gives the host of each rank.
struct job_of_two_hosts {
    processes all;
    // more: environment variables as NAME=VALUE, or the NAME of one to unset.
    template <class HostOf, class Body>
    void start(int n, HostOf host_of, int port, const char* timeout_s, Body body, std::vector<std::string> more = {}) {
        for (int r = 0; r < n; ++r)
            all.start(r, [=] {
                two_hosts::enter(host_of(r), r, n, port, timeout_s);
                for (const std::string& m : more) {
                    const std::size_t equals = m.find('=');
                    if (equals == m.npos) ::unsetenv(m.c_str());
                    else ::setenv(m.substr(0, equals).c_str(), m.c_str() + equals + 1, 1);
                }
                collx::communicator world;
                return body(world, r);
            });
    }
};

bool is_here(collx::communicator& w, int peer) { return w.internals().net.is_here(peer); }

// Returns the number of the first check that failed, 0 if none.
int check_results(collx::communicator& w, std::size_t m) {
    const int n = w.size(), me = w.rank();
    const auto u = static_cast<std::size_t>(n);
    const auto value = [](int rank, std::size_t i) { return static_cast<int>(i % 1000) * (rank + 1); };
    const auto filled = [&](int rank, std::size_t count) {
        std::vector<int> v(count);
        for (std::size_t i = 0; i < count; ++i) v[i] = value(rank, i);
        return v;
    };
    const int ranks = n * (n + 1) / 2; // the sum of rank + 1
    auto sum = filled(me, m);
    collx::all_reduce(w, sum);
    for (std::size_t i = 0; i < m; ++i)
        if (sum[i] != static_cast<int>(i % 1000) * ranks) return 1;
    const auto mine = filled(me, m), whole = filled(me, m * u);
    std::vector<int> all(m * u), part(m), exchanged(m * u);
    collx::all_gather(w, mine, all);
    for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i] != value(static_cast<int>(i / m), i % m)) return 2;
    collx::reduce_scatter(w, whole, part);
    for (std::size_t i = 0; i < m; ++i)
        if (part[i] != static_cast<int>((static_cast<std::size_t>(me) * m + i) % 1000) * ranks) return 3;
    for (const int root : {0, n - 1}) {
        auto told = filled(me, m);
        collx::broadcast(w, told, {.root = root});
        if (told != filled(root, m)) return 4;
        std::vector<int> got(m, -1);
        collx::reduce(w, mine, got, collx::plus{}, {.root = root});
        if (me == root && got != sum) return 5;
    }
    collx::all_to_all(w, whole, exchanged);
    for (std::size_t i = 0; i < exchanged.size(); ++i)
        if (exchanged[i] != value(static_cast<int>(i / m), static_cast<std::size_t>(me) * m + i % m)) return 6;
    auto moved = filled(me, m);
    std::vector<int> from_left(m);
    collx::sendrecv(w, moved, (me + 1) % n, from_left, (me + n - 1) % n);
    if (from_left != filled((me + n - 1) % n, m)) return 7;
    collx::barrier(w);
    return 0;
}

// The number of messages sent to the other host so far.
std::uint64_t sent_to_hosts(collx::communicator& w) {
    std::uint64_t count = 0;
    for (int p = 0; p < w.size(); ++p)
        if (!is_here(w, p)) count += w.internals().net.sent_to(p).messages;
    return count;
}

} // namespace

TEST_CASE("two hosts, four ranks each: results, and an all-to-all that crosses once per host or per rank") {
    const two_hosts hosts;
    if (hosts.why_not() != nullptr) return skip(hosts.why_not());
    constexpr int n = 8;
    int port = 29'600;
    for (const bool alternating : {false, true}) {
        job_of_two_hosts job;
        job.start(
            n, [=](int r) { return alternating ? r % 2 : r / 4; }, ++port, "30",
            [=](collx::communicator& w, int me) {
                const collx::node_map* nodes = w.internals().net.crowded_hosts();
                if (w.size() != n || nodes == nullptr || nodes->view().nodes() != 2) return 20;
                for (int p = 0; p < n; ++p)
                    if (is_here(w, p) != (alternating ? p % 2 == me % 2 : p / 4 == me / 4)) return 21;
                for (const std::size_t m : {1u, 100u, 20'000u, 300'000u})
                    if (const int failed = check_results(w, m); failed != 0) return failed;
                w.set_checked(false);
                // Short parts cross as one message, the leader's. Longer parts are gathered in the host, one message
                // per rank. Parts sent one by one take four messages.
                const auto crossing = [&](auto&& comm, std::size_t elems) {
                    std::vector<int> in(n * elems, me), out(n * elems);
                    const std::uint64_t before = sent_to_hosts(w);
                    collx::all_to_all(comm, in, out);
                    return sent_to_hosts(w) - before;
                };
                if (crossing(w, 16) != (nodes->view().local_of(me) == 0 ? 1u : 0u)) return 22;
                if (crossing(w, 4000) != 1) return 23;
                if (crossing(w.with(collx::algo::pairwise_all_to_all{}), 16) != 4) return 24;
                return 0;
            });
        job.all.wait(60'000);
        for (int r = 0; r < n; ++r) {
            INFO("alternating " << alternating << ", rank " << r << ": exit code " << job.all[r].exit_code << " "
                                << job.all[r].what);
            CHECK(job.all[r].is_ok());
        }
    }
}

TEST_CASE("ranks listen where COLLX_ADDRESS says, in each of its forms, or on their way to the store") {
    const two_hosts hosts;
    if (hosts.why_not() != nullptr) return skip(hosts.why_not());
    constexpr int n = 4;
    const store_directory shared;
    const std::string files = "unix:" + shared.path();
    struct form {
        std::string entry;
        std::string (*expected)(int);
        bool is_unix = false;
    };
    std::vector<form> forms = {{"COLLX_ADDRESS", &two_hosts::address},
                               {"COLLX_ADDRESS=route", &two_hosts::address},
                               {"COLLX_ADDRESS=l0", &two_hosts::address},
                               {"COLLX_ADDRESS=10.231.78.0/24", &two_hosts::second_address},
                               {"COLLX_ADDRESS=" + files, nullptr, true}};
    if (hosts.has_v6()) forms.push_back({"COLLX_ADDRESS=fd00:231::/64", &two_hosts::v6_address});
    else skip("no IPv6 in namespaces here");
    int port = 29'640;
    for (const form& f : forms) {
        job_of_two_hosts job;
        job.start(
            n, [](int r) { return r / 2; }, ++port, "30",
            [=](collx::communicator& w, int me) {
                const auto h = collx::describe_host(collx::environment(), {}, two_hosts::address(0));
                if (h.address != (f.is_unix ? files : f.expected(me / 2))) return 50;
                if (w.internals().net.is_one_host() || is_here(w, (me + 2) % n)) return 51;
                const auto& hub = *static_cast<collx::socket_connector&>(*w.internals().home->connector).hub();
                if (hub.is_unix() != f.is_unix) return 52;
                return check_results(w, 20'000);
            },
            {f.entry});
        job.all.wait(60'000);
        for (int r = 0; r < n; ++r) {
            INFO(f.entry << ", rank " << r << ": exit code " << job.all[r].exit_code << " " << job.all[r].what);
            CHECK(job.all[r].is_ok());
        }
    }
    // Abstract names are not visible outside the namespace. The error for a missing interface lists the existing ones.
    for (const char* entry : {"COLLX_ADDRESS=unix", "COLLX_ADDRESS=l7"}) {
        job_of_two_hosts job;
        job.start(
            2, [](int r) { return r; }, ++port, "30", [](collx::communicator&, int) { return 53; }, {entry});
        job.all.wait(60'000);
        for (int r = 0; r < 2; ++r) {
            INFO(entry << ", rank " << r << ": exit code " << job.all[r].exit_code << " " << job.all[r].what);
            CHECK(job.all[r].code == collx::errc::environment);
            CHECK(job.all[r].says(entry[14] == 'u' ? "within its own" : "l0 10.231.77."));
        }
    }
}

namespace {

// A job whose ranks repeat one verb when the link goes down.
struct cut_job {
    verb what;
    int left; // ranks on the left host; the others are on the right one
    int side(int r) const { return r < left ? 0 : 1; }
};
constexpr int cut_ranks = 4;

int call_until_cut(collx::communicator& world, const cut_job& c, report& seen, int me,
                   std::chrono::milliseconds limit) {
    caller calls(world, 5000);
    for (int salt = 1; salt < 5; ++salt) calls.call(c.what, salt);
    collx::barrier(world);
    world.set_timeout(limit);
    seen.ready.fetch_add(1);
    until_error(
        seen, me, [&](int salt) { calls.call(c.what, salt); }, 60'000);
    world = world.shrink(); // each side continues with the ranks it can reach
    if (world.size() != (me < c.left ? c.left : cut_ranks - c.left)) return 40 + world.size();
    check_works(world, 5000);
    return 0;
}

} // namespace

TEST_CASE("a link that goes down in the middle of any call: both sides name the other one in time, and go on apart") {
    const two_hosts hosts;
    if (hosts.why_not() != nullptr) return skip(hosts.why_not());
    constexpr cut_job jobs[] = {{verb::all_reduce, 2},     {verb::broadcast, 2},  {verb::all_gather, 2},
                                {verb::reduce_scatter, 2}, {verb::all_to_all, 2}, {verb::sendrecv, 2},
                                {verb::barrier, 3},        {verb::all_reduce, 1}};
    constexpr int count = static_cast<int>(std::size(jobs)); // all at once: they share the link that goes down
    const auto limit = heard_within(std::chrono::milliseconds(6000));
    shared_page<report> pages[count];
    job_of_two_hosts running[count];
    for (int j = 0; j < count; ++j)
        running[j].start(
            cut_ranks, [&](int r) { return jobs[j].side(r); }, 29'610 + j, "60",
            [&, j](collx::communicator& w, int me) { return call_until_cut(w, jobs[j], *pages[j], me, limit); });
    const auto are_ready = [&] {
        int ready = 0;
        for (const auto& page : pages) ready += page->ready.load();
        return ready == count * cut_ranks;
    };
    for (int i = 0; i < 120'000 && !are_ready(); ++i) ::usleep(500);
    REQUIRE(are_ready());
    ::usleep(50'000);
    hosts.cut();
    const std::int64_t struck_ns = collx::now_ns();
    stopwatch watch{"link down, time-out 6 s"};
    for (int j = 0; j < count; ++j) {
        running[j].all.wait(60'000);
        bool names_other_side[2] = {};
        for (int r = 0; r < cut_ranks; ++r) {
            const auto& mine = pages[j]->ranks[r];
            INFO(verb_names[static_cast<int>(jobs[j].what)]
                 << ", " << jobs[j].left << " on the left, rank " << r << ": error " << mine.code << " about "
                 << mine.peer << ", exit code " << running[j].all[r].exit_code << " " << running[j].all[r].what);
            CHECK(running[j].all[r].is_ok());
            CHECK((mine.code == static_cast<int>(collx::errc::timeout) ||
                   mine.code == static_cast<int>(collx::errc::peer_failed)));
            CHECK((mine.peer >= 0 && mine.peer < cut_ranks));
            CHECK(mine.ended_ns - struck_ns < collx_test::patient(2 * 6000 * ms));
            names_other_side[jobs[j].side(r)] |= jobs[j].side(mine.peer) != jobs[j].side(r);
            watch.add(mine.ended_ns - struck_ns);
        }
        // At least one rank of each side reports that a rank beyond the link does not answer.
        CHECK(names_other_side[0]);
        CHECK(names_other_side[1]);
    }
}
