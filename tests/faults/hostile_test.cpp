// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hundreds of hostile connections, to the store and to every rank's listener, while eight ranks on eight hosts start:
// scans, slow and truncated messages, messages of other jobs and recorded ones, HTTP, noise. The results are the same
// as without them, no stranger joins, and no descriptor or memory stays behind.
// collx-test: serial needs=sodium timeout=240
#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>
#include <collx/interop/sodium.hpp>
#include <collx/transport/socket_connector.hpp>

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <random>
#include <thread>

#include "faults/support.hpp"
#include "support/open_files.hpp"

using namespace collx_test;
using collx::descriptor;
using collx::detail::stream_hello;
using collx::detail::tcp_keyed_hello;
using collx::detail::tcp_request;
using collx::detail::tcp_word;

namespace {

constexpr int ranks = 8, hostile = 200, starts = 4;

// What the ranks report to the test.
struct page_of_ranks {
    std::atomic<int> port[ranks];        // of each rank's listener
    std::atomic<std::uint64_t> token[4]; // the job's name, as an eavesdropper has it
    std::atomic<std::int64_t> began_ns, took_ns[ranks][starts];
    std::atomic<int> descriptors[ranks][2], kilobytes[ranks][2];
    std::atomic<int> started;
    std::atomic<int> attacks; // hostile connections so far
};

int resident_kilobytes() {
    long pages = 0, shared = 0;
    if (FILE* f = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(f, "%*d %ld %ld", &pages, &shared) != 2) pages = shared = 0;
        std::fclose(f);
    }
    return static_cast<int>((pages - shared) * ::sysconf(_SC_PAGESIZE) / 1024);
}

int free_port() { return collx::tcp_server().port(); }

// A TCP connection to a port of this host.
descriptor connect_to(int port) {
    auto a = collx::detail::numeric_address("127.0.0.1", port);
    descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(s.get(), a.get(), a.bytes);
    return s;
}
template <class T>
std::string bytes_of(const T& x) {
    return {reinterpret_cast<const char*>(&x), sizeof x};
}

// Makes hostile connections, up to `hostile` for each start, to the ports that are known.
class attack {
public:
    attack(int store_port, page_of_ranks& page, bool is_on) : store_port_(store_port), page_(page) {
        std::mt19937_64 random(20261121);
        for (std::size_t i = 0; i < noise_.size(); i += 8) {
            const std::uint64_t some = random();
            std::memcpy(noise_.data() + i, &some, 8);
        }
        if (is_on) thread_ = std::thread([this] { run(); });
    }
    attack(const attack&) = delete;
    int end() {
        is_over_ = true;
        if (thread_.joinable()) thread_.join();
        return page_.attacks;
    }
    ~attack() { (void)end(); }

private:
    // Everything that a stranger may have: the protocol and a hello recorded from the network, but no key.
    std::string words_of(int kind) {
        stream_hello h;
        h.from = 1 + kind % 7;
        h.communicator = 42;
        h.protected_by = 1;
        for (std::size_t i = 0; i < 4 && kind != 5; ++i) {
            const std::uint64_t part = page_.token[i].load();
            std::memcpy(h.token + 8 * i, &part, 8);
        }
        tcp_keyed_hello keyed;
        keyed.head.number = 3;
        tcp_request get;
        get.word = tcp_word::get;
        get.key_bytes = 4;
        switch (kind) {
            case 0: return {};                                     // a port scan
            case 1: return bytes_of(h);                            // slow: byte by byte, see drip()
            case 2: return bytes_of(h).substr(0, 50);              // half a hello
            case 3: return bytes_of(h) + std::string(32, 't');     // a wrong tag
            case 4: return bytes_of(h) + bytes_of(h);              // a recorded hello, twice
            case 5: return bytes_of(h);                            // another job
            case 6: return "GET / HTTP/1.1\r\nHost: rank\r\n\r\n"; // a browser
            case 7: return bytes_of(keyed) + std::string(32, 'p'); // messages of the store's protocol
            case 8: return bytes_of(get) + "host";                 // without a proof
            default: return noise_;
        }
    }
    int some_port(int i) {
        const int p = page_.port[i % ranks].load();
        return i % 3 == 0 || p == 0 ? store_port_ : p;
    }
    void run() {
        struct open_one {
            descriptor socket;
            std::string words;
            std::size_t sent = 0;
            bool is_slow = false;
        };
        std::vector<open_one> open;
        for (int turn = 0; !is_over_; ++turn) {
            for (int i = 0; i < 4 && page_.attacks < hostile * starts; ++i) {
                const int made = page_.attacks, kind = made % 10;
                open.push_back({connect_to(some_port(made)), words_of(kind), 0, kind == 1});
                ++page_.attacks;
            }
            for (auto& o : open) {
                if (o.sent >= o.words.size()) continue;
                const std::size_t n = o.is_slow ? 1 : o.words.size() - o.sent;
                const ssize_t sent = ::send(o.socket.get(), o.words.data() + o.sent, n, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (sent > 0) o.sent += static_cast<std::size_t>(sent);
                else if (sent < 0 && errno != EAGAIN && errno != ENOTCONN) o.sent = o.words.size();
                char heard[256]; // the strangers discard the replies
                (void)!::recv(o.socket.get(), heard, sizeof heard, MSG_DONTWAIT);
            }
            if (page_.attacks % 10 == 0 && !open.empty()) open.front().socket.close(); // scans disconnect
            if (open.size() > hostile) open.erase(open.begin(), open.begin() + 50);
            ::usleep(1000);
        }
    }

    int store_port_;
    page_of_ranks& page_;
    std::atomic<bool> is_over_{false};
    std::string noise_ = std::string(1 << 20, '\0');
    std::thread thread_;
};

// One rank: joins and computes, `starts` times; the first time does not count for memory. Each start sees its part of
// the hostile connections, also on a machine where their thread gets little time.
int start_often(page_of_ranks& page, int r, int store_port, bool is_attacked) {
    ::setenv("COLLX_HOST_ID", ("host" + std::to_string(r)).c_str(), 1);
    ::setenv("COLLX_KEY", std::string(64, 'k').c_str(), 1);
    const collx::job_key key = collx::detail::process_protection().key;
    if (!key) return 9;
    for (int i = 0; i < starts; ++i) {
        while (page.started.load() < i * ranks) ::usleep(200);
        const std::int64_t begin = collx::now_ns();
        {
            collx::sole_ptr<collx::tcp_server> server;
            if (r == 0) server = collx::make_sole<collx::tcp_server>("127.0.0.1", store_port, key);
            collx::tcp_store store("127.0.0.1", store_port, collx::deadline::in_ns(collx_test::patient(40'000 * ms)), r,
                                   key);
            auto job = collx::detail::join_by_store(r, ranks, store, 40'000 * ms, {});
            const auto& hub = *static_cast<collx::socket_connector&>(*job->connector).hub();
            for (std::size_t k = 0; k < 4; ++k) {
                std::uint64_t part;
                std::memcpy(&part, hub.token() + 8 * k, 8);
                page.token[k].store(part);
            }
            page.port[r].store(hub.port());
            collx::communicator world(job);
            for (int turn = 0; turn < 20; ++turn) {
                std::vector<int> x(1000, r);
                collx::all_reduce(world, x);
                if (x[999] != ranks * (ranks - 1) / 2) return 3;
            }
            page.took_ns[r][i].store(collx::now_ns() - begin);
            ::usleep(20'000); // some attacks reach a running job
            const collx::deadline until = collx::deadline::in_ns(collx_test::patient(20'000 * ms));
            while (is_attacked && page.attacks < hostile * (i + 1) / starts && !until.passed()) ::usleep(200);
            collx::barrier(world);
            if (r != 0) store.wait_for_end(collx::deadline::in_ns(collx_test::patient(20'000 * ms)));
        }
        if (i == 0 || i == starts - 1) {
            page.descriptors[r][i != 0].store(open_files());
            page.kilobytes[r][i != 0].store(resident_kilobytes());
        }
        page.started.fetch_add(1);
    }
    return 0;
}

// The median over the starts of the longest time of any rank.
double run_starts(bool is_attacked) {
    shared_page<page_of_ranks> page;
    const int store_port = free_port();
    processes all;
    for (int r = 0; r < ranks; ++r) all.start(r, [&, r] { return start_often(*page, r, store_port, is_attacked); });
    attack hostile_ones(store_port, *page, is_attacked); // after the forks, so that they do not inherit its sockets
    all.wait(60'000);
    const int made = hostile_ones.end();
    std::vector<std::int64_t> times;
    for (int r = 0; r < ranks; ++r) {
        INFO("rank " << r << (is_attacked ? ", attacked: " : ": ") << all[r].exit_code << " " << all[r].what);
        CHECK(all[r].is_ok());
        CHECK(page->descriptors[r][1].load() == page->descriptors[r][0].load());
        CHECK(page->kilobytes[r][1].load() - page->kilobytes[r][0].load() < 2048);
    }
    for (int i = 0; i < starts; ++i) {
        std::int64_t longest = 0;
        for (int r = 0; r < ranks; ++r) longest = std::max(longest, page->took_ns[r][i].load());
        times.push_back(longest);
    }
    if (is_attacked) CHECK(made >= hostile);
    if (is_attacked) std::printf("%d hostile connections in %d starts\n", made, starts);
    std::sort(times.begin(), times.end());
    return static_cast<double>(times[times.size() / 2]) / 1e6;
}

} // namespace

TEST_CASE("eight ranks start and compute among two hundred hostile connections") {
    const double alone = run_starts(false), attacked = run_starts(true);
    std::printf("start and 20 calls of %d ranks: %.0f ms, among %d hostile connections %.0f ms, ratio %.2f\n", ranks,
                alone, hostile, attacked, attacked / alone);
    CHECK(attacked < 40'000); // only the deadline is checked, not the measured time
}
