// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 optimised sanitize=thread,nightly
//
// The allocator of memory that peers may read directly.
#include "support.hpp"
#include <collx/transport/memory.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

using namespace collx_test;

TEST_CASE("a shared vector behaves as any vector") {
    on_ranks(3, [](collx::communicator& w) {
        collx::shared_vector<int> v{collx::shared_allocator<int>(w)};
        for (int i = 0; i < 10'000; ++i) v.push_back(i);
        auto copy = v;
        v.resize(100);
        v.shrink_to_fit();
        EXPECT(copy.size() == 10'000 && copy[9999] == 9999 && v[99] == 99 && copy.get_allocator() == v.get_allocator());
        auto moved = std::move(copy);
        collx::all_reduce(w, moved);
        EXPECT(moved[9999] == 3 * 9999);
        collx::shared_allocator<double> other(v.get_allocator());
        double* const p = other.allocate(5);
        EXPECT(reinterpret_cast<std::uintptr_t>(p) % alignof(double) == 0 &&
               w.membership()->memory->contains(p, 5 * sizeof(double)));
        other.deallocate(p, 5);
    });
}

TEST_CASE("shared memory outlives the communicator it was made with, and serves the others of the job") {
    on_ranks(2, [](collx::communicator& w) {
        auto v = [&] {
            auto c = w.split(0);
            return collx::make_shared_vector<int>(c, 5000, w.rank() + 1);
        }();
        auto c = w.split(0, -w.rank());
        collx::all_reduce(c, v);
        EXPECT(v.front() == 3 && v.back() == 3);
    });
}

TEST_CASE("freed shared memory is zero pages again and is reused: no growth over many rounds") {
    on_ranks(2, [](collx::communicator& w) {
        const auto& header = w.membership()->memory->header();
        collx::barrier(w);
        const auto ranges = header.free_count;
        for (int i = 0; i < 500; ++i) {
            auto v = collx::make_shared_vector<char>(w, 100'000 + static_cast<std::size_t>(i) * 4096, 'x');
            auto u = collx::make_shared_vector<char>(w, 10, 'y');
            EXPECT(v.back() == 'x' && u[9] == 'y');
        }
        collx::barrier(w);
        EXPECT_AT(header.free_count, header.free_count == ranges);
    });
}

TEST_CASE("a rank that asks for more shared memory than is left is named, with the remedy") {
    on_ranks(2, [](collx::communicator& w) {
        auto c = w.split(0, -w.rank());
        const std::size_t too_many = w.membership()->memory->bytes();
        const auto e = thrown<collx::error>(w, [&] { (void)collx::make_shared_vector<int>(c, too_many); });
        const std::string text = "rank " + std::to_string(c.rank()) + ": no ";
        EXPECT(e.code() == collx::errc::resource && e.rank() == c.rank() && says(e, text.c_str()) &&
               says(e, "raise COLLX_ARENA_BYTES"));
        collx::shared_allocator<double> other{collx::shared_allocator<int>(c)};
        EXPECT(thrown<collx::error>(w, [&] { (void)other.allocate(too_many / 8 - 1); }).rank() == c.rank());
        collx::barrier(c); // the communicator goes on
    });
}

TEST_CASE("memory of another job is refused") {
    on_ranks(2, [](collx::communicator& w) {
        const auto foreign = collx::make_memory_arena(1);
        const auto at = foreign->take(4096);
        auto* p = reinterpret_cast<int*>(foreign->at(at));
        const auto e =
            thrown<collx::invalid_argument>(w, [&] { collx::all_reduce(w, collx::window_view<int>(p, 1000)); });
        EXPECT(says(e, "does not lie in shared memory"));
    });
}

#if !COLLX_TEST_TSAN // which does not support a fork of a process with threads
TEST_CASE("a forked child takes no shared memory of its parent's job") {
    on_ranks(1, [](collx::communicator& w) {
        const auto ranges = w.membership()->memory->header().free_count;
        const pid_t child = ::fork();
        if (child == 0) {
            int code = 1;
            try {
                (void)collx::make_shared_vector<int>(w, 1000);
            } catch (const collx::error& e) {
                code = e.code() == collx::errc::forked ? 0 : 2;
            }
            ::_exit(code);
        }
        int status = -1;
        EXPECT(::waitpid(child, &status, 0) == child && status == 0);
        EXPECT(w.membership()->memory->header().free_count == ranges);
        EXPECT(collx::make_shared_vector<int>(w, 1000, 5)[999] == 5);
    });
}
#endif
