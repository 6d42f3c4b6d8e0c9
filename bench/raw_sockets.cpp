// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What TCP sockets of this machine move without any library: the bytes that each rank of a collective must send and
// receive, between neighbours in a ring (2 ranks: both ways over the same sockets), with no data worked on and nothing
// waited for but the bytes. One thread per process sends what fits and receives what is there, in turn. The options,
// samples and columns of `collx_perf --ops`, so that collx may be put beside it; --write, --read, --buffer, --pace,
// --congestion, --lanes, --split, --zerocopy, --uring and --uring-waits say how the sockets are used. --works also does
// what a collective must do with the bytes (ring_by_hand.hpp); --stage: how many it adds at once. Each
// process keeps to a core of its own, as far as there are cores; with --unbound to none.
#include <time.h> // which the next one needs and does not include

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <memory>

#include "forked.hpp"
#include "ring_by_hand.hpp"
#if COLLX_BENCH_URING
#include "uring_engine.hpp"
#endif
#include "perf/csv.hpp"
#include "perf/harness.hpp"
#include "perf/sampling.hpp"
#include "support/format.hpp"

namespace {

using namespace collx::bench;
using namespace collx::tools;
using namespace collx::tools::perf;

struct settings {
    std::vector<operation> operations{operation::all_reduce};
    std::vector<std::size_t> sizes_bytes{std::size_t{1} << 20};
    std::size_t write_bytes = std::size_t{256} << 10, read_bytes = 0; // of one call; read_bytes 0: as write_bytes
    std::size_t buffer_bytes = 0;                                     // 0: left to the system
    std::size_t pace_bytes = 0; // never more than so much ahead of what was received; 0: as far as the system lets
    std::string congestion = "reno", peer = "raw", variant = "tcp";
    int ranks = 2, lanes = 1;
    bool zero_copy = false, split = false, header = true;
    bool uring = false, uring_waits = false;
    bool works = false, unbound = false; // unbound: on whichever core the system likes
    cpu_set_t allowed;
    std::size_t stage_bytes = std::size_t{512} << 10;
    sampling_rules rules;
};

[[noreturn]] void give_up(const char* what) {
    throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

void tune(int fd, const settings& s) {
    const int on = 1, bytes = static_cast<int>(s.buffer_bytes);
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!s.congestion.empty() && ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, s.congestion.data(),
                                              static_cast<socklen_t>(s.congestion.size())) != 0)
        give_up("TCP_CONGESTION");
    if (bytes != 0) {
        ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    if (s.zero_copy && ::setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0) give_up("SO_ZEROCOPY");
}

struct pair_of_sockets {
    int a, b;
};
pair_of_sockets connected(const settings& s) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int a = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    tune(listener, s);
    tune(a, s);
    if (::bind(listener, address, sizeof at) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, address, &length) != 0 || ::connect(a, address, sizeof at) != 0)
        give_up("a connection on loopback");
    const int b = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ::close(listener);
    tune(b, s);
    return {a, b};
}

// One direction of one lane.
struct stretch {
    int fd;
    std::byte* at;
    std::size_t bytes, done = 0;
    std::uint32_t posted = 0, completed = 0; // sends without a copy
    std::size_t left() const { return bytes - done; }
};

class rank_of_ring {
public:
    rank_of_ring(const settings& s, const std::vector<pair_of_sockets>& links, int me, bool shares_cores,
                 bool is_rooted, std::size_t send_bytes, std::size_t receive_bytes)
        : s_(s), me_(me), shares_cores_(shares_cores), is_rooted_(is_rooted) {
        const auto lanes = static_cast<std::size_t>(s.lanes);
        const auto lane_of = [&](int link, std::size_t l) { return links[static_cast<std::size_t>(link) * lanes + l]; };
        std::byte *out = pages(send_bytes + 1, false), *in = pages(receive_bytes + 1, false);
        const bool two = s.ranks == 2;
        for (std::size_t l = 0; l < lanes; ++l) {
            const auto to = lane_of(two ? 0 : me, l), from = lane_of(two ? 0 : (me + s.ranks - 1) % s.ranks, l);
            const bool is_mine = !s.split || l % 2 == static_cast<std::size_t>(me), // else the lane only brings
                is_theirs = !s.split || !is_mine;
            if (is_mine) sends_.push_back(part(two && me == 1 ? to.b : to.a, out, send_bytes, l, lanes, s.split));
            if (is_theirs)
                receives_.push_back(part(two && me == 0 ? from.a : from.b, in, receive_bytes, l, lanes, s.split));
        }
        send_bytes_ = send_bytes;
        receive_bytes_ = receive_bytes;
#if COLLX_BENCH_URING
        if (s.uring) uring_ = std::make_unique<uring_engine>(s.uring_waits);
#endif
    }
    void operator()(int calls) {
        for (int k = 0; k < calls; ++k) once(k % s_.ranks);
    }

private:
    static stretch part(int fd, std::byte* at, std::size_t bytes, std::size_t lane, std::size_t lanes, bool split) {
        if (split) {
            lane /= 2;
            lanes /= 2;
        }
        const std::size_t begin = bytes * lane / lanes;
        return {fd, at + begin, bytes * (lane + 1) / lanes - begin};
    }
    // A rooted operation has another root in each call, so that no root runs ahead of the others.
    void once(int root) {
        const bool is_last = (me_ + 1) % s_.ranks == root;
        std::size_t to_send = is_rooted_ && is_last ? 0 : send_bytes_;
        std::size_t to_receive = is_rooted_ && me_ == root ? 0 : receive_bytes_;
        for (auto& x : sends_) x.done = to_send != 0 ? 0 : x.bytes;
        for (auto& x : receives_) x.done = to_receive != 0 ? 0 : x.bytes;
#if COLLX_BENCH_URING
        if (uring_) {
            uring_->move(sends_, receives_, s_.write_bytes, s_.read_bytes != 0 ? s_.read_bytes : s_.write_bytes);
            return;
        }
#endif
        while (to_send != 0 || to_receive != 0) {
            std::size_t moved = 0;
            for (auto& x : sends_) {
                if (x.left() == 0) continue;
                if (s_.pace_bytes != 0 && to_receive != 0 && // sent, less received
                    send_bytes_ - to_send >= receive_bytes_ - to_receive + s_.pace_bytes)
                    continue;
                const std::size_t n = send(x);
                to_send -= n;
                moved += n;
            }
            for (auto& x : receives_) {
                if (x.left() == 0) continue;
                const std::size_t n = receive(x);
                to_receive -= n;
                moved += n;
            }
            if (moved == 0 && shares_cores_) ::sched_yield();
        }
        for (auto& x : sends_)
            while (x.completed != x.posted) complete(x);
    }
    std::size_t send(stretch& x) {
        const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (s_.zero_copy ? MSG_ZEROCOPY : 0);
        const ssize_t n = ::send(x.fd, x.at + x.done, std::min(s_.write_bytes, x.left()), flags);
        if (n < 0 && errno == ENOBUFS && s_.zero_copy) { // too many under way
            complete(x);
            return 0;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) give_up("send");
        if (n <= 0) return 0;
        x.posted += s_.zero_copy;
        x.done += static_cast<std::size_t>(n);
        return static_cast<std::size_t>(n);
    }
    std::size_t receive(stretch& x) const {
        const std::size_t most = s_.read_bytes != 0 ? s_.read_bytes : s_.write_bytes;
        const ssize_t n = ::recv(x.fd, x.at + x.done, std::min(most, x.left()), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) give_up("recv");
        if (n < 0) return 0;
        x.done += static_cast<std::size_t>(n);
        return static_cast<std::size_t>(n);
    }
    static void complete(stretch& x) {
        char control[256];
        msghdr m{};
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        if (::recvmsg(x.fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
        for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
            sock_extended_err e;
            std::memcpy(&e, CMSG_DATA(c), sizeof e);
            if (e.ee_origin == SO_EE_ORIGIN_ZEROCOPY) x.completed += e.ee_data - e.ee_info + 1;
        }
    }

    const settings& s_;
    int me_;
    bool shares_cores_, is_rooted_;
    std::vector<stretch> sends_, receives_;
    std::size_t send_bytes_, receive_bytes_;
#if COLLX_BENCH_URING
    std::unique_ptr<uring_engine> uring_;
#endif
};

// What each rank must send and receive at least. A broadcast goes down a chain, whose last rank sends nothing and whose
// first receives nothing; its bytes need not be the same ones.
std::size_t needed(operation op, std::size_t bytes, int ranks) {
    return is_rooted(op) ? bytes : static_cast<std::size_t>(static_cast<double>(bytes) * bus_factor(op, ranks));
}

ring_by_hand::neighbours neighbours_of(const std::vector<pair_of_sockets>& links, int me, int ranks) {
    if (ranks == 2) return {me == 0 ? links[0].a : links[0].b, me == 0 ? links[0].a : links[0].b};
    return {links[static_cast<std::size_t>(me)].a, links[static_cast<std::size_t>((me + ranks - 1) % ranks)].b};
}

void measure(forked& by, const settings& s, operation op, std::size_t bytes) {
    std::vector<pair_of_sockets> links;
    for (int k = 0; k < (s.ranks == 2 ? 1 : s.ranks) * s.lanes; ++k) links.push_back(connected(s));
    auto* const shared = pages(harness::bytes(s.ranks), true);
    by.run(s.ranks, [&](shared_words&, int me) {
        if (s.unbound) ::sched_setaffinity(0, sizeof s.allowed, &s.allowed);
        harness meeting(shared, me, s.ranks, by.cores());
        sampler sample(meeting, s.rules, [&] { meeting.barrier(); });
        const auto take = [&](auto&& ring) { return sample.measure(ring, 1.0); };
        const std::size_t n = needed(op, bytes, s.ranks);
        const bool shares_cores = s.ranks > by.cores();
        const timing t = s.works ? take(ring_by_hand(op, bytes, me, s.ranks, neighbours_of(links, me, s.ranks),
                                                     {s.write_bytes, s.stage_bytes, shares_cores}))
                                 : take(rank_of_ring(s, links, me, shares_cores, is_rooted(op), n, n));
        if (me == 0) {
            const csv_row row{op, bytes, s.ranks, "tcp", s.peer, s.variant, false, t};
            std::fputs(csv_text(row).c_str(), stdout);
            std::fflush(stdout);
        }
        return numbers{};
    });
    ::munmap(shared, harness::bytes(s.ranks));
    for (const auto& l : links) ::close(l.a), ::close(l.b);
}

void read_option(settings& s, const std::string& word, const std::string& value) {
    if (word == "--ops") {
        s.operations.clear();
        for (const auto& name : split_list(value)) {
            const auto op = parse_operation(name);
            if (!op || *op == operation::barrier) throw std::invalid_argument("'" + name + "' moves no known bytes.");
            s.operations.push_back(*op);
        }
    } else if (word == "--sizes") {
        s.sizes_bytes.clear();
        for (const auto& size : split_list(value)) s.sizes_bytes.push_back(parse_size(size));
    } else if (word == "--write") s.write_bytes = parse_size(value);
    else if (word == "--read") s.read_bytes = parse_size(value);
    else if (word == "--buffer") s.buffer_bytes = parse_size(value);
    else if (word == "--stage") s.stage_bytes = parse_size(value);
    else if (word == "--pace") s.pace_bytes = parse_size(value);
    else if (word == "--congestion") s.congestion = value == "system" ? "" : value;
    else if (word == "--ranks") s.ranks = std::stoi(value);
    else if (word == "--lanes") s.lanes = std::stoi(value);
    else if (word == "--peer") s.peer = value;
    else if (word == "--variant") s.variant = value;
    else if (word == "--budget-ms") s.rules.budget_ms = std::stod(value);
    else if (word != "--place") throw std::invalid_argument("'" + word + "' is unknown.");
}

settings read_settings(int argc, char** argv) {
    settings s;
    ::sched_getaffinity(0, sizeof s.allowed, &s.allowed);
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--zerocopy") s.zero_copy = true;
        else if (word == "--split") s.split = true;
        else if (word == "--works") s.works = true;
        else if (word == "--unbound") s.unbound = true;
        else if (word == "--uring") s.uring = true;
        else if (word == "--uring-waits") s.uring = s.uring_waits = true;
        else if (word == "--no-header") s.header = false;
        else if (++i == argc) throw std::invalid_argument("'" + word + "' lacks its value.");
        else read_option(s, word, argv[i]);
    }
    if (s.ranks < 2 || s.ranks > shared_words::most || s.lanes < 1 || s.lanes > 16 || s.write_bytes == 0)
        throw std::invalid_argument("There must be 2 to 64 ranks, 1 to 16 lanes and bytes to write.");
    if (s.works)
        for (const operation op : s.operations)
            if (!ring_by_hand::knows(op) || s.lanes != 1 || s.zero_copy || s.uring)
                throw std::invalid_argument(
                    "--works is for allreduce, reduce_scatter, allgather, broadcast and alltoall "
                    "over one ordinary lane.");
    if (s.uring && !COLLX_BENCH_URING) throw std::invalid_argument("--uring: built without liburing (liburing-dev).");
    if (s.split && (s.ranks != 2 || s.lanes % 2 != 0))
        throw std::invalid_argument("--split gives each direction half of the lanes: 2 ranks and an even number.");
    return s;
}

} // namespace

int main(int argc, char** argv) {
    try {
        const settings s = read_settings(argc, argv);
        forked by;
        if (s.header) std::fputs(csv_header().c_str(), stdout);
        for (const operation op : s.operations)
            for (const std::size_t bytes : rounded_sizes(op, s.sizes_bytes, sizeof(float), s.ranks))
                measure(by, s, op, bytes);
        return 0;
    } catch (const std::invalid_argument& e) {
        std::fprintf(stderr, "raw_sockets: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "raw_sockets: %s\n", e.what());
        return 1;
    }
}
