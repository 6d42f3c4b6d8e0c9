// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A window beside what it should cost: one_sided [ROUNDS], under collx_run -n 2, with --hosts 2 over sockets. All ways
// in turn in each round; Markdown, medians of one way or one message. Near: a put of 8 bytes with its signal beside a
// cache line that two ranks hand to each other, a put of 1 MiB beside one copy. Everywhere: beside send and recv.
#include <collx/collx.hpp>
#include <collx/comm/window.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/clock.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct way {
    std::string name;
    std::function<void()> trip; // there and back, or one message and, once in a while, an answer
    int ways;                   // that one trip has
    std::vector<double> ns{};
};

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

// In turn; all ranks do the same. Returns the medians, of one way.
std::vector<double> measure(collx::communicator& w, std::vector<way> ways, int rounds, int trips) {
    for (int r = 0; r <= rounds; ++r)
        for (way& x : ways) {
            collx::barrier(w);
            const std::int64_t begin = collx::now_ns();
            for (int i = 0; i < trips; ++i) x.trip();
            const double ns = static_cast<double>(collx::now_ns() - begin) / trips / x.ways;
            if (r != 0) x.ns.push_back(ns); // the first meets fresh pages
        }
    std::vector<double> out;
    for (const way& x : ways) {
        out.push_back(median(x.ns));
        if (w.rank() == 0)
            std::printf("| %-34s | %10.1f | %5.2f |\n", x.name.c_str(), out.back(), out.back() / out.front());
    }
    return out;
}
void head(const collx::communicator& w, const char* what) {
    if (w.rank() == 0) std::printf("\n| %-34s |         ns | ratio |\n|---|---:|---:|\n", what);
}

using word = collx::atomic<std::uint64_t>;
constexpr std::int64_t most_looks = 4'000'000'000; // some seconds

void round_trips(collx::communicator& w, collx::window<std::uint64_t>& x, int rounds, int trips) {
    const bool leads = w.rank() == 0;
    const int other = 1 - w.rank();
    std::uint64_t count = 0, value = 7, got = 0, wrong = 0;
    const auto turn = [&](auto&& give, auto&& take) {
        return [leads, give, take] {
            if (leads) {
                give();
                take();
            } else {
                take();
                give();
            }
        };
    };
    std::vector<way> ways;
    std::uint64_t trip = 0;
    if (x.is_shared(other)) {
        // Words 64 and 80 of rank 0's part, in lines that are not fetched together: each written by one rank.
        auto& mine = *reinterpret_cast<word*>(&x.shared(0)[leads ? 64 : 80]);
        auto& theirs = *reinterpret_cast<word*>(&x.shared(0)[leads ? 80 : 64]);
        ways.push_back({"cache line there and back",
                        [&trip, &mine, &theirs, leads] {
                            ++trip;
                            if (leads) mine.store(trip, collx::memory_order::release);
                            for (std::int64_t i = 0; theirs.load(collx::memory_order::acquire) != trip; ++i)
                                if (i == most_looks) throw std::runtime_error("one_sided: the other rank is gone");
                            if (!leads) mine.store(trip, collx::memory_order::release);
                        },
                        2});
    }
    const std::span<std::uint64_t> local = x.local();
    const auto send = [&] { collx::send(w, collx::view(&value, 1), other); };
    const auto recv = [&] { collx::recv(w, collx::view(&got, 1), other); };
    ways.push_back({"send, recv", turn(send, recv), 2});
    const auto put_signal = [&] { x.put_signal(other, 0, ++count); };
    const auto wait_read = [&] {
        x.wait(other);
        wrong += local[0] != (leads ? count : count + 1);
    };
    ways.push_back({"put_signal, wait, read", turn(put_signal, wait_read), 2});
    const auto put = [&] {
        x.put(other, 8, ++count);
        x.signal(other);
    };
    const auto wait_for_signal = [&] {
        x.wait(other);
        wrong += local[8] != (leads ? count : count + 1);
    };
    ways.push_back({"put, signal, wait, read", turn(put, wait_for_signal), 2});
    ways.push_back({"signal, wait", turn([&] { x.signal(other); }, [&] { x.wait(other); }), 2});
    head(w, "8 bytes, one way");
    measure(w, std::move(ways), rounds, trips);
    if (wrong != 0) throw std::runtime_error("one_sided: a put was not there");
}

[[gnu::noinline]] void copy(std::vector<std::uint64_t>& to, const std::vector<std::uint64_t>& from) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof from[0]);
}

// Rank 0 gives, rank 1 takes and answers after the last of a row.
void stream(collx::communicator& w, collx::window<std::uint64_t>& x, std::size_t bytes, int rounds, int row) {
    const bool gives = w.rank() == 0;
    std::vector<std::uint64_t> from(bytes / 8, bytes), to(bytes / 8), answer(1);
    const auto in_row = [&](auto&& give, auto&& take) {
        return [&, gives, row, give, take] {
            for (int i = 0; i < row; ++i)
                if (gives) give();
                else take();
            if (gives) collx::recv(w, answer, 1);
            else collx::send(w, answer, 0);
        };
    };
    std::vector<way> ways;
    if (x.is_shared(1 - w.rank()))
        ways.push_back({"memcpy by rank 0 alone", in_row([&] { copy(to, from); }, [] {}), row});
    ways.push_back({"send, recv", in_row([&] { collx::send(w, from, 1); }, [&] { collx::recv(w, to, 0); }), row});
    ways.push_back({"put_signal, wait", in_row([&] { x.put_signal(1, 0, from); }, [&] { x.wait(0); }), row});
    head(w, (std::to_string(bytes) + " bytes, a row of " + std::to_string(row)).c_str());
    measure(w, std::move(ways), rounds, 4);
    const auto put = x.local().first(bytes / 8);
    if (!gives && (to != from || !std::equal(put.begin(), put.end(), from.begin())))
        throw std::runtime_error("one_sided: what was sent or put did not arrive");
}

} // namespace

int main(int argc, char** argv) try {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 21;
    if (rounds < 1) {
        std::puts("one_sided [ROUNDS]: 1 or more");
        return 2;
    }
    collx::communicator world;
    world.set_timeout(collx::duration::from_ns(10000000000));
    if (world.size() != 2) {
        std::puts("one_sided: run it under collx_run -n 2");
        return 2;
    }
    collx::window<std::uint64_t> x(world, std::size_t{8} << 17);
    const bool near = x.is_shared(1 - world.rank());
    round_trips(world, x, rounds, near ? 20'000 : 1'000);
    for (const std::size_t bytes :
         {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{8} << 20})
        stream(world, x, bytes, rounds, bytes > (std::size_t{1} << 20) ? 4 : 16);
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
