// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Three programs written with puts and signals instead of collectives: a stencil whose neighbours put halos into each
// other's windows, work that ranks take from a shared counter, and a ring all_reduce by hand. Each is compared with
// its serial program.
// collx-example: everywhere timeout=60
// Next: docs/windows.md, which has the rules.
#include <collx/collx.hpp>
#include <collx/comm/window.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "check.hpp"

namespace {

using numbers = std::vector<double>;

// ---------------------------------------------------------------------------------------------- halo exchange
constexpr std::size_t width = 64, height = 24; // of each rank's rows

// One step of heat in a plate whose upper and lower edges are joined. Row 0 and the last row are halos.
void warm(const numbers& now, numbers& next, std::size_t rows) {
    for (std::size_t y = 1; y <= rows; ++y)
        for (std::size_t x = 0; x < width; ++x) {
            const double left = now[y * width + (x + width - 1) % width], right = now[y * width + (x + 1) % width];
            const double up = now[(y - 1) * width + x], down = now[(y + 1) * width + x];
            next[y * width + x] = 0.2 * (now[y * width + x] + left + right + up + down);
        }
}
double begin_at(std::size_t y, std::size_t x) { return std::sin(0.3 * static_cast<double>(y * 7 + x)); }

numbers serial_plate(std::size_t rows, int steps) {
    numbers now((rows + 2) * width), next(now.size());
    for (std::size_t y = 0; y < rows; ++y)
        for (std::size_t x = 0; x < width; ++x) now[(y + 1) * width + x] = begin_at(y, x);
    for (int s = 0; s < steps; ++s) {
        for (std::size_t x = 0; x < width; ++x) {
            now[x] = now[rows * width + x];
            now[(rows + 1) * width + x] = now[width + x];
        }
        warm(now, next, rows);
        now.swap(next);
    }
    return now;
}

void plate(collx::communicator& world, int steps) {
    const int n = world.size(), me = world.rank(), above = (me + n - 1) % n, below = (me + 1) % n;
    numbers now((height + 2) * width), next(now.size());
    for (std::size_t y = 0; y < height; ++y)
        for (std::size_t x = 0; x < width; ++x)
            now[(y + 1) * width + x] = begin_at(static_cast<std::size_t>(me) * height + y, x);
    const auto row = [&](std::size_t y) { return std::span(now).subspan(y * width, width); };
    // [doc:halo]
    // Places for the row from above and the row from below: a pair for even steps, a pair for odd steps. A neighbour
    // that is a step ahead writes into the other pair. It cannot be two ahead, for it waits for this rank's rows.
    collx::window<double> halo(world, 4 * width);
    for (int s = 0; s < steps; ++s) {
        const std::size_t from_above = static_cast<std::size_t>(s % 2) * 2 * width, from_below = from_above + width;
        halo.put_signal(below, from_above, row(height));
        halo.put_signal(above, from_below, row(1));
        if (above == below) halo.wait(above, 2); // one or two ranks: both signals come from the same rank
        else {
            halo.wait(above);
            halo.wait(below);
        }
        std::copy_n(&halo.local()[from_above], width, &now[0]);
        std::copy_n(&halo.local()[from_below], width, &now[(height + 1) * width]);
        warm(now, next, height);
        now.swap(next);
    }
    // [doc:end]
    const numbers all = serial_plate(height * static_cast<std::size_t>(n), steps);
    bool is_same = true;
    for (std::size_t i = width; i < (height + 1) * width; ++i)
        is_same &= now[i] == all[static_cast<std::size_t>(me) * height * width + i];
    example::expect(is_same, "the plate of all ranks is that of the serial program, to the bit");
    halo.fence(); // no rank destroys its window while another puts
}

// ---------------------------------------------------------------------------------------------- work stealing
// The number of steps until 1, which is large for some numbers.
long collatz(long i) {
    long steps = 0;
    for (; i != 1; ++steps) i = i % 2 == 0 ? i / 2 : 3 * i + 1;
    return steps;
}

void shared_work(collx::communicator& world, long last) {
    long sum = 0, taken = 0;
    // [doc:counter]
    collx::window<long> next(world, world.rank() == 0 ? 1 : 0); // one number, on rank 0
    constexpr long piece = 64;
    for (long first; (first = next.fetch_add(0, 0, piece)) < last; ++taken)
        for (long i = first; i < first + piece && i < last; ++i) sum += collatz(i + 1);
    collx::all_reduce(world, collx::value(sum)); // meanwhile rank 0 serves ranks that still ask for work
    // [doc:end]
    long serial = 0;
    for (long i = 0; i < last; ++i) serial += collatz(i + 1);
    example::expect(sum == serial, "each piece of work was done once");
    std::printf("rank %d took %ld of %ld pieces\n", world.rank(), taken, (last + piece - 1) / piece);
    next.fence();
}

// ---------------------------------------------------------------------------------------------- a ring by hand
void ring(collx::communicator& world, std::size_t part) {
    const int n = world.size(), me = world.rank(), to = (me + 1) % n, from = (me + n - 1) % n;
    numbers x(part * static_cast<std::size_t>(n)), expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
        for (int r = 0; r < n; ++r) {
            const auto value = static_cast<double>((i * 7 + static_cast<std::size_t>(r)) % 13);
            expected[i] += value;
            if (r == me) x[i] = value;
        }
    // [doc:ring]
    // A place for each step, so that no rank waits for room. First partial sums go round, then complete ones.
    collx::window<double> in(world, part * static_cast<std::size_t>(2 * n));
    const auto chunk = [&](int k) {
        return std::span(x).subspan(static_cast<std::size_t>((k % n + n) % n) * part, part);
    };
    for (int s = 0; s < 2 * (n - 1); ++s) {
        const std::size_t place = static_cast<std::size_t>(s) * part;
        in.put_signal(to, place, chunk(me - s));
        in.wait(from);
        const auto got = in.local().subspan(place, part), mine = chunk(me - s - 1);
        for (std::size_t i = 0; i < part; ++i) mine[i] = s < n - 1 ? mine[i] + got[i] : got[i];
    }
    // [doc:end]
    example::expect(x == expected, "the ring by hand sums as all_reduce does");
    in.fence();
}

void run(collx::communicator& world) {
    plate(world, example::is_short() ? 50 : 400);
    shared_work(world, example::is_short() ? 20'000 : 300'000);
    ring(world, 1);
    ring(world, 10'000);
    if (world.rank() == 0) std::printf("plate, shared counter and ring: %d ranks\n", world.size());
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
