// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 serial sanitize=no optimised
//
// More elements than 32 bits can count. Inputs are computed as they are read, and outputs map one piece of memory
// repeatedly, so little memory is needed.
#include "support.hpp"

#include <sys/mman.h>
#include <unistd.h>

using namespace collx_test;

namespace {

// `bytes` of address space over 2 MiB of memory: a value written at i also appears at i + 2 MiB.
class repeated_memory {
public:
    static constexpr std::size_t period = std::size_t{2} << 20;
    explicit repeated_memory(std::size_t bytes) : bytes_((bytes + period - 1) / period * period) {
        const int fd = ::memfd_create("collx test", MFD_CLOEXEC);
        if (fd < 0 || ::ftruncate(fd, period) != 0) throw wrong("no memory file");
        void* p = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) throw wrong("no address space");
        base_ = static_cast<unsigned char*>(p);
        // Populated, because a million page faults take seconds.
        for (std::size_t at = 0; at < bytes_; at += period)
            if (::mmap(base_ + at, period, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) ==
                MAP_FAILED)
                throw wrong("cannot map again");
        ::close(fd);
    }
    repeated_memory(const repeated_memory&) = delete;
    ~repeated_memory() { ::munmap(base_, bytes_); }
    unsigned char* data() { return base_; }

private:
    std::size_t bytes_;
    unsigned char* base_;
};

constexpr std::size_t huge = (std::size_t{1} << 32) + 100;

// Whether all elements equal `value`: with a count cut to 32 bits, only the first hundred elements would change.
bool is_all(repeated_memory& x, int value) {
    for (std::size_t i = 0; i < repeated_memory::period; ++i)
        if (x.data()[i] != value) return false;
    return true;
}

} // namespace

TEST_CASE("all_reduce and broadcast of more than 2^32 elements") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_timeout(collx_test::patient(std::chrono::seconds(200)));
        repeated_memory x(huge);
        const auto v = collx::view(x.data(), huge);
        std::fill_n(x.data(), repeated_memory::period, static_cast<unsigned char>(w.rank() == 0 ? 7 : 0));
        collx::broadcast(w, v);
        EXPECT(is_all(x, 7));
        // Where memory repeats, a sum would be added several times; a maximum is not affected.
        x.data()[123'456] = static_cast<unsigned char>(w.rank() + 20);
        collx::all_reduce(w, v, collx::max{});
        EXPECT(x.data()[123'456] == 21);
        x.data()[123'456] = 7;
        EXPECT(is_all(x, 7));
    });
}

TEST_CASE("messages and parts of more than 2^31 elements") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_timeout(collx_test::patient(std::chrono::seconds(200)));
        constexpr std::size_t part = (std::size_t{1} << 31) + 50;
        repeated_memory x(2 * part), y(2 * part);
        std::fill_n(x.data(), repeated_memory::period, static_cast<unsigned char>(w.rank() + 1));
        collx::sendrecv(w, collx::view(x.data(), part), 1 - w.rank(), collx::view(y.data(), part), 1 - w.rank());
        EXPECT(is_all(y, 2 - w.rank()));
        const std::vector<std::size_t> counts = {part, part - 7};
        const auto mine = counts[static_cast<std::size_t>(w.rank())];
        std::fill_n(x.data(), repeated_memory::period, static_cast<unsigned char>(9));
        collx::all_gather_v(w, collx::view(x.data(), mine), collx::view(y.data(), 2 * part), counts);
        EXPECT(is_all(y, 9));
    });
}
