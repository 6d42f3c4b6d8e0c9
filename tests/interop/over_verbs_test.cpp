// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a job whose messages between hosts go only by RDMA: scripts/try_verbs starts several, each with its own
// device. Skipped without a launcher or a device.
//
//   test_interop_over_verbs           eight verbs, short and long; the device counts packets
//   test_interop_over_verbs windows   puts, gets, sums and signals in each other's memory
//   test_interop_over_verbs die       the last rank is killed in the middle: the others name it
//   test_interop_over_verbs cut       the last rank's cable is drawn (in the guest): no rank waits for ever
//   test_interop_over_verbs refused   no memory may be locked: everything goes over sockets, and right
//
// collx-test: needs=verbs main=own
#include <collx/collx.hpp>
#include <collx/comm/window.hpp>
#include <collx/interop/libibverbs.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace collx;

namespace {

int failures = 0;

void check(bool is_right, const char* what, std::size_t n) {
    if (is_right) return;
    std::printf("FAILED: %s of %zu elements\n", what, n);
    ++failures;
}

// The packets that the device has counted; 0 if it does not count.
long packets_sent() {
    const char* device = std::getenv("COLLX_VERBS_DEVICE");
    const std::string path = std::string("/sys/class/infiniband/") + (device != nullptr ? device : "none") +
                             "/ports/1/hw_counters/sent_pkts";
    long n = 0;
    if (std::FILE* f = std::fopen(path.c_str(), "r")) {
        if (std::fscanf(f, "%ld", &n) != 1) n = 0;
        std::fclose(f);
    }
    return n;
}

// Small integers, different for each rank, call and element, so that lost or repeated data is detected.
int number(int rank, std::size_t i) { return static_cast<int>((i * 31 + i / 977) % 1000) + 1000 * rank; }

void many_verbs(communicator& w, std::size_t n) {
    const int me = w.rank(), size = w.size();
    const auto u = static_cast<std::size_t>(size);
    std::vector<int> mine(n), out(n), all(n * u), all_out(n * u);
    for (std::size_t i = 0; i < n; ++i) mine[i] = number(me, i);
    const auto sum_at = [&](std::size_t i, int ranks) {
        int s = 0;
        for (int r = 0; r < ranks; ++r) s += number(r, i);
        return s;
    };
    const auto is = [&](const std::vector<int>& v, auto&& expected) {
        for (std::size_t i = 0; i < v.size(); ++i)
            if (v[i] != expected(i)) return false;
        return true;
    };
    all_reduce(w, mine, out);
    check(is(out, [&](std::size_t i) { return sum_at(i, size); }), "all_reduce", n);
    all_gather(w, mine, all);
    check(is(all, [&](std::size_t i) { return number(static_cast<int>(i / n), i % n); }), "all_gather", n);
    for (std::size_t i = 0; i < n * u; ++i) all[i] = number(me, i);
    reduce_scatter(w, all, out);
    check(is(out, [&](std::size_t i) { return sum_at(static_cast<std::size_t>(me) * n + i, size); }), "reduce_scatter",
          n);
    all_to_all(w, all, all_out);
    check(is(all_out,
             [&](std::size_t i) { return number(static_cast<int>(i / n), static_cast<std::size_t>(me) * n + i % n); }),
          "all_to_all", n);
    for (int root = 0; root < size; ++root) {
        out = mine;
        broadcast(w, out, {.root = root});
        check(is(out, [&](std::size_t i) { return number(root, i); }), "broadcast", n);
    }
    scan(w, mine, out);
    check(is(out, [&](std::size_t i) { return sum_at(i, me + 1); }), "scan", n);
    sendrecv(w, mine, (me + 1) % size, out, (me + size - 1) % size);
    check(is(out, [&](std::size_t i) { return number((me + size - 1) % size, i); }), "sendrecv", n);
    barrier(w);
}

// Puts and gets of 4 KiB and more go by the device only; shorter ones and sums are messages. All orders of kinds.
void windows(communicator& w) {
    constexpr std::size_t room = 300'000;
    window<int> x(w, room);
    const int to = (w.rank() + 1) % w.size(), from = (w.rank() + w.size() - 1) % w.size();
    for (int k = 0; k < 20; ++k) { // meanwhile slots are offered
        x.signal(to);
        x.wait(from);
    }
    x.fence();
    int turn = 0;
    for (const std::size_t n : {1u, 1023u, 1024u, 5000u, 40'000u, 299'990u, 12u, 32'769u}) {
        const std::size_t place = room - n;
        std::vector<int> out(n), got(n);
        ++turn;
        const auto element = [&](int rank, std::size_t i) { return number(rank, i + static_cast<std::size_t>(turn)); };
        for (std::size_t i = 0; i < n; ++i) out[i] = element(w.rank(), i);
        const std::vector<int> sent = out;
        x.put(to, place, out);
        std::fill(out.begin(), out.end(), -1); // the data was copied
        x.get(to, place, got);
        check(got == sent, "get behind put", n);
        x.accumulate(to, place, std::vector<int>(n, 7), plus{});
        x.get(to, place, got);
        for (std::size_t i = 0; i < n; ++i) got[i] -= 7;
        check(got == sent, "get behind accumulate", n);
        x.put_signal(to, place, sent);
        x.wait(from);
        bool is_right = true;
        for (std::size_t i = 0; i < n; ++i) is_right &= x.local()[place + i] == element(from, i);
        check(is_right, "put_signal", n);
        // it has been checked
        x.signal(from);
        x.wait(to);
        check(x.fetch_add(to, place, 1) == sent[0], "fetch_add", n);
        x.fence();
    }
    // A rank that makes no call is written nevertheless.
    if (w.rank() == 0) {
        x.put(1, 0, std::vector<int>(1024, 77));
    } else if (w.rank() == 1) {
        const std::int64_t began = now_ns();
        const std::atomic_ref<int> last(x.local()[1023]);
        while (last.load() != 77 && now_ns() - began < 10'000'000'000) ::usleep(1000);
        check(last.load() == 77, "a put to a rank that makes no call", 1024);
    }
    x.fence();
}

// Calls until one fails, which must happen within the time limit; is_right checks the error.
template <class F>
void until_failure(communicator& w, F&& is_right, const char* what) {
    std::vector<int> some(50'000, 1);
    const std::int64_t began = now_ns();
    try {
        while (now_ns() - began < 60'000'000'000) all_reduce(w, some);
        check(false, what, some.size());
    } catch (const error& e) {
        const double s = static_cast<double>(now_ns() - began) / 1e9;
        std::printf("%s after %.1f s: %s\n", what, s, e.what());
        check(is_right(e), what, some.size());
    }
}

int as_a_rank(const std::string& what) {
    const long before = packets_sent();
    if (what == "refused") {
        const rlimit none{0, 0};
        __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct may[2];
        if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0 || ::syscall(SYS_capget, &head, may) != 0) return 1;
        may[0].effective &= ~(1u << CAP_IPC_LOCK);
        if (::syscall(SYS_capset, &head, may) != 0) return 1;
        communicator w;
        many_verbs(w, 3000);
        check(packets_sent() == before, "nothing by RDMA", 3000);
        return failures != 0;
    }
    communicator w(per_peer{shm{}, verbs{}});
    const int last = w.size() - 1;
    many_verbs(w, 10);
    if (what == "die") {
        if (w.rank() == last && ::fork() == 0) { // during some call
            ::usleep(1'500'000);
            ::kill(::getppid(), SIGKILL);
            ::_exit(0);
        }
        until_failure(
            w, [&](const error& e) { return e.code() == errc::peer_failed && e.peer() == last; }, "a death");
        return failures != 0;
    }
    if (what == "cut") {
        const std::string line = "sleep 1; ip link set p" + std::to_string(w.size()) + " down";
        if (w.rank() == 0 && std::system(("(" + line + ") &").c_str()) != 0) return 1;
        until_failure(
            w, [&](const error& e) { return e.code() == errc::peer_failed || e.code() == errc::timeout; }, "a cut");
        return failures != 0;
    }
    if (what == "windows") {
        windows(w);
        std::printf("rank %d: %ld packets\n", w.rank(), packets_sent() - before);
        return failures != 0;
    }
    for (const std::size_t n : {1u, 28u, 29u, 1000u, 70'001u, 700'000u}) {
        many_verbs(w, n);
        if (w.rank() == 0) std::printf("%zu elements: %ld packets\n", n, packets_sent() - before);
    }
    std::vector<int> small(4, 1);
    const std::int64_t began = now_ns();
    for (int i = 0; i < 300; ++i) {
        small.assign(4, 1);
        all_reduce(w, small);
        if (small[3] != w.size()) {
            check(false, "short all_reduce", 4);
            return 1;
        }
    }
    const long packets = packets_sent() - before;
    std::printf("rank %d: %ld packets; 300 short calls in %.1f s\n", w.rank(), packets,
                static_cast<double>(now_ns() - began) / 1e9);
    if (before != 0 || packets != 0) check(packets > 1000, "packets by RDMA", static_cast<std::size_t>(packets));
    communicator part = w.split(w.rank() % 2);
    many_verbs(part, 500);
    return failures != 0;
}

} // namespace

int main(int count, char** words) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    int devices = 0;
    if (ibv_device** all = ::ibv_get_device_list(&devices)) ::ibv_free_device_list(all);
    if (devices == 0 || std::getenv("COLLX_RANK") == nullptr) {
        std::puts("SKIPPED: no RDMA device or no launcher: scripts/try_verbs runs this in a guest that has both");
        return 77;
    }
    try {
        return as_a_rank(count > 1 ? words[1] : "");
    } catch (const error& e) {
        std::printf("%s: %s\n", name_of(e.code()), e.what());
        return 1;
    }
}
