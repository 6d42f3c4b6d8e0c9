// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One range of memory that all ranks of a host see. Channels, windows and shared buffers lie in it. Threads share an
// anonymous mapping (memory.hpp), processes a sealed memfd (shm.hpp). It is sparse: only touched pages cost memory. It
// knows no schedule and no communicator.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/atomic.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/error.hpp>
#include <collx/transport/wait.hpp>

COLLX_BEGIN_NAMESPACE

// Sizes that layouts of shared memory are rounded to, and the most ranks that share an arena. The system's pages may be
// larger: 64 KiB on many machines with ARM cores.
inline constexpr std::size_t cache_line_bytes = 64;
inline constexpr std::size_t page_bytes = 4096;
inline constexpr int max_local_ranks = 1024;

// The next multiple of `to`.
constexpr std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

// The start of the mapping, with a free list of ranges under one lock. Ranges are taken when communicators and shared
// buffers are made, never in a call.
struct arena_header {
    static constexpr std::uint64_t magic_value = 0x3178'6c6c'6f63'0002; // "collx1", layout 2
    static constexpr int max_free = 8000;
    struct range {
        std::uint64_t offset, bytes;
    };
    std::uint64_t magic;
    std::uint64_t bytes;
    std::int32_t ranks;
    alignas(64) atomic<std::uint32_t> arrived; // written by: each rank once; read by: all, acquire
    alignas(64) atomic<std::uint32_t> lock;    // 0 free, else holder's pid (see acquire())
    std::int32_t free_count;
    range free[max_free];                                         // sorted by offset; under lock
    static constexpr std::int32_t has_left = -2, has_failed = -3; // has_failed: a thread that ended with an exception
    alignas(64) atomic<std::int32_t> pid[max_local_ranks]; // written by: its rank before arrived, has_left at its
                                                           // end; read by: all
    alignas(64) atomic<std::uint64_t> cores[16]; // that any rank may run on; each rank adds its own before it attaches
    alignas(64) std::byte board[page_bytes];     // for users of the arena: a page at a known place
};

// The ranges that a communicator has taken from the arena since it was made; kept in its own shared memory. Each is at
// least as long as all before it together, so there are few ranges for any number of pieces. Under the arena's lock.
struct arena_room {
    static constexpr int max_ranges = 100;
    static constexpr std::uint64_t first_bytes = std::uint64_t{1} << 20;
    struct range {
        std::uint64_t offset, bytes, used;
    };
    std::int32_t count;
    range at[max_ranges];

    std::uint64_t bytes() const {
        std::uint64_t sum = 0;
        for (int i = 0; i < count; ++i) sum += at[i].bytes;
        return sum;
    }
};

// A mapped arena. The mapping lives as long as this object is shared; the last process that unmaps it frees the memory.
class arena {
public:
    arena(void* base, std::size_t bytes, int fd) : base_(static_cast<std::byte*>(base)), bytes_(bytes), fd_(fd) {}
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;
    ~arena() {
        ::munmap(base_, bytes_);
        if (fd_ >= 0) ::close(fd_);
    }

    // Called by the first rank only, on fresh zeroed memory.
    void format(int ranks) {
        auto& h = header();
        h.bytes = bytes_;
        h.ranks = ranks;
        const std::uint64_t first = round_up(sizeof(arena_header), page_bytes);
        h.free[0] = {first, bytes_ - first};
        h.free_count = 1;
        h.magic = arena_header::magic_value;
    }

    arena_header& header() const { return *reinterpret_cast<arena_header*>(base_); }
    std::byte* at(std::uint64_t offset) const { return base_ + offset; }
    // Whether so many bytes lie there.
    bool has(std::uint64_t offset, std::size_t bytes) const {
        return offset % page_bytes == 0 && offset <= bytes_ && bytes <= bytes_ - offset;
    }
    std::uint64_t offset_of(const void* p) const {
        return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - base_);
    }
    bool contains(const void* p, std::size_t bytes) const {
        const auto* b = static_cast<const std::byte*>(p);
        return b >= base_ && b < base_ + bytes_ && bytes <= static_cast<std::size_t>(base_ + bytes_ - b);
    }
    // The process number of rank r as rank `me` may use it; -1 where it would name another process or none. Ranks in
    // another pid namespace than rank 0 have not written their numbers, and cannot use those of other ranks. What is
    // not a number of a process (0: not written yet, has_left, has_failed) is returned as it is.
    int process_of(int r, int me) const {
        const int number = header().pid[r].load(memory_order::acquire);
        return number <= 0 || header().pid[me].load(memory_order::relaxed) == ::getpid() ? number : -1;
    }
    // Other ranks know this process by another number, so this one does not show whether a holder of the lock lives.
    void hide_number() { is_number_hidden_ = true; }
    std::size_t bytes() const { return bytes_; }
    int fd() const { return fd_; }
    std::byte* board() const { return header().board; }

    // Takes `bytes` of address space (page aligned). No page is touched. me: here and below, the rank that errors name.
    [[gnu::cold]] std::uint64_t take(std::size_t bytes, int me = -1) {
        auto& h = header();
        if (bytes > bytes_) fail_too_large(h, bytes, me); // before rounding, which could wrap
        bytes = round_up(bytes > 0 ? bytes : 1, page_bytes);
        require_lock(h, me);
        const std::uint64_t offset = cut(h, bytes);
        const auto left = offset == none ? free_now(h) : free_bytes{};
        release(h);
        if (offset == none) fail_full(bytes, left, me);
        return offset;
    }

    // The piece of `bytes` that `word` names, the same for all ranks. The first process that asks for it takes it. Its
    // pages are zero.
    [[gnu::cold]] std::uint64_t take_once(atomic<std::uint64_t>& word, arena_room& room, std::size_t bytes,
                                          int me = -1) {
        if (const std::uint64_t there = word.load(memory_order::acquire); there != none) return there;
        auto& h = header();
        if (bytes > bytes_) fail_too_large(h, bytes, me);
        require_lock(h, me);
        std::uint64_t offset = word.load(memory_order::acquire);
        if (offset == none) {
            offset = cut(h, room, round_up(bytes > 0 ? bytes : 1, page_bytes));
            if (offset != none) word.store(offset, memory_order::release);
        }
        const auto left = offset == none ? free_now(h) : free_bytes{};
        release(h);
        if (offset == none) fail_full(bytes, left, me);
        return offset;
    }

    // Gives back what a communicator has taken. Called by the last of its ranks.
    [[gnu::cold]] void give_back(const arena_room& room) noexcept {
        for (int i = 0; i < room.count; ++i) give_back(room.at[i].offset, room.at[i].bytes);
    }

    // Gives back a range and its pages.
    [[gnu::cold]] void give_back(std::uint64_t offset, std::size_t bytes) noexcept {
        bytes = round_up(bytes > 0 ? bytes : 1, page_bytes);
        if (!clear(offset, bytes)) return; // the next owner counts on zeros
        auto& h = header();
        if (acquire(h) != locked::yes) return; // leaks address space
        int i = 0;
        while (i < h.free_count && h.free[i].offset < offset) ++i;
        const bool joins_left = i > 0 && h.free[i - 1].offset + h.free[i - 1].bytes == offset;
        const bool joins_right = i < h.free_count && offset + bytes == h.free[i].offset;
        if (joins_left) {
            h.free[i - 1].bytes += bytes + (joins_right ? h.free[i].bytes : 0);
            if (joins_right) remove(h, i);
        } else if (joins_right) {
            h.free[i].offset = offset;
            compiler_barrier();
            h.free[i].bytes += bytes;
        } else if (h.free_count < arena_header::max_free) { // a full list leaks address space, nothing else
            insert(h, i, {offset, bytes});
        }
        release(h);
    }

    // Repairs the table after a process died while it held the lock: see assign(). Called by the new holder of the
    // lock.
    static void repair(arena_header& h) {
        int kept = 0;
        for (int k = 0; k < h.free_count; ++k) {
            const arena_header::range r = h.free[k];
            const std::uint64_t end = kept > 0 ? h.free[kept - 1].offset + h.free[kept - 1].bytes : 0;
            if (r.bytes == 0 || r.offset < end) continue;
            if (k != kept) assign(h.free[kept], r);
            ++kept;
        }
        h.free_count = kept;
    }

    // Makes sure that the pages exist, so that a full machine is an error here and not a SIGBUS later.
    // In pieces: fallocate() undoes its work when a signal arrives, so one call for a large range might never end.
    void reserve(std::uint64_t offset, std::size_t bytes, int me = -1) {
        if (fd_ < 0) return;
        constexpr std::size_t piece_bytes = std::size_t{1} << 20;
        for (std::size_t done = 0; done < bytes;) {
            const std::size_t piece = bytes - done < piece_bytes ? bytes - done : piece_bytes;
            if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset + done), static_cast<off_t>(piece)) ==
                0)
                done += piece;
            else if (errno != EINTR)
                fail(errc::resource, me, -1, "free memory or raise the memory limit of this job",
                     "cannot reserve %zu bytes of shared memory: %s", bytes, std::strerror(errno));
        }
    }

    // Clears and maps reserved pages at once. A page that is first touched in a call costs its writer a fault and each
    // reader another. Of clear pages the kernel maps sixteen at a reader's first touch. (8 ranks on 2 cores, first lap
    // of a ring: all_reduce of 512 bytes takes 29 us instead of 8.) Advice only: not every kernel takes it.
    void populate(std::uint64_t offset, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
        const std::uint64_t first = offset - offset % system_page_bytes(); // madvise() refuses the middle of a page
        if (fd_ >= 0) (void)::madvise(at(first), bytes + (offset - first), MADV_POPULATE_WRITE);
#endif
    }

private:
    static std::size_t system_page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
    // Gives the pages of a range to the system, so that they are zero when they are touched again. Parts of pages are
    // set to zero: fallocate() does so itself, madvise() would take the whole page, and with it what lies beside.
    bool clear(std::uint64_t offset, std::size_t bytes) noexcept {
        if (fd_ >= 0)
            return ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                               static_cast<off_t>(bytes)) == 0;
        const std::uint64_t page = system_page_bytes(), end = offset + bytes;
        const std::uint64_t first = round_up(offset, page), last = end - end % page;
        if (first >= last) {
            std::memset(at(offset), 0, bytes);
            return true;
        }
        std::memset(at(offset), 0, first - offset);
        std::memset(at(last), 0, end - last);
        if (::madvise(at(first), last - first, MADV_DONTNEED) == 0) return true;
        // Where a program locks its memory (mlockall), the system keeps the pages, but lets a new mapping replace them.
        return ::mmap(at(first), last - first, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    struct free_bytes {
        std::uint64_t all = 0, in_a_row = 0;
    };
    static free_bytes free_now(const arena_header& h) {
        free_bytes f;
        for (int i = 0; i < h.free_count; ++i) {
            f.all += h.free[i].bytes;
            if (h.free[i].bytes > f.in_a_row) f.in_a_row = h.free[i].bytes;
        }
        return f;
    }
    [[noreturn, gnu::cold]] void fail_too_large(arena_header& h, std::size_t bytes, int me) {
        require_lock(h, me);
        const auto left = free_now(h);
        release(h);
        fail_full(bytes, left, me);
    }
    [[noreturn, gnu::cold]] void fail_full(std::size_t bytes, free_bytes left, int me) const {
        // Where a limit made the arena smaller than COLLX_ARENA_BYTES asks for, raising COLLX_ARENA_BYTES cannot help.
        rlimit space{}, file{};
        const auto is_in_the_way = [&](int r, const rlimit& l) { return r == 0 && l.rlim_cur / 2 < bytes_; };
        const char* remedy =
            is_in_the_way(::getrlimit(RLIMIT_AS, &space), space)
                ? "destroy communicators or shared buffers, or raise the address space limit (ulimit -v)"
            : fd_ >= 0 && is_in_the_way(::getrlimit(RLIMIT_FSIZE, &file), file)
                ? "destroy communicators or shared buffers, or raise the file size limit (ulimit -f)"
                : "destroy communicators or shared buffers, or raise COLLX_ARENA_BYTES";
        fail(errc::resource, me, -1, remedy,
             "no %zu bytes of shared address space left: of %zu bytes %llu are free, at most %llu in a row", bytes,
             bytes_, static_cast<unsigned long long>(left.all), static_cast<unsigned long long>(left.in_a_row));
    }
    enum class locked : unsigned char { yes, by_another, damaged };
    [[gnu::cold]] void require_lock(arena_header& h, int me) const {
        const locked now = acquire(h);
        if (now == locked::by_another)
            fail(errc::timeout, me, -1, "is a rank stopped?", "the table of shared address space stays locked");
        if (now == locked::damaged)
            fail(errc::protocol, me, -1, "find the rank of this host that writes outside of its memory (sanitizers do)",
                 "the table of shared address space was overwritten");
    }
    // What this process walks through, and what it takes from there, lies in the arena. A death leaves that so.
    bool is_sound(const arena_header& h) const {
        if (h.free_count < 0 || h.free_count > arena_header::max_free) return false;
        for (int i = 0; i < h.free_count; ++i)
            if (h.free[i].offset > bytes_ || h.free[i].bytes > bytes_ - h.free[i].offset) return false;
        return true;
    }

    static constexpr std::uint64_t none = 0; // the header lies there
    // Cuts `bytes` off the first range that is long enough; `none` if there is no such range.
    static std::uint64_t cut(arena_header& h, std::uint64_t bytes) {
        for (int i = 0; i < h.free_count; ++i) {
            auto& f = h.free[i];
            if (f.bytes < bytes) continue;
            const std::uint64_t offset = f.offset;
            f.bytes -= bytes;
            compiler_barrier();
            f.offset += bytes;
            if (f.bytes == 0) remove(h, i);
            return offset;
        }
        return none;
    }
    // The same from the room of a communicator, which grows where it is too small. A process that dies in here leaves
    // address space unused: each piece counts as used before its offset is given away.
    static std::uint64_t cut(arena_header& h, arena_room& room, std::uint64_t bytes) {
        arena_room::range* last = room.count > 0 ? &room.at[room.count - 1] : nullptr;
        if (last == nullptr || last->bytes - last->used < bytes) {
            if (room.count == arena_room::max_ranges) return none;
            std::uint64_t more = room.bytes() > arena_room::first_bytes ? room.bytes() : arena_room::first_bytes;
            if (more < bytes) more = bytes;
            std::uint64_t offset = cut(h, more);
            if (offset == none) offset = cut(h, more = bytes); // nearly full
            if (offset == none) return none;
            last = &room.at[room.count];
            *last = {offset, more, 0};
            compiler_barrier();
            ++room.count;
        }
        last->used += bytes;
        compiler_barrier();
        return last->offset + last->used - bytes;
    }

    // ------------------------------------------------------------------ changes of the table
    // The holder of the lock may die anywhere in them. Stores are made in this order. After each of them the table
    // holds no byte that is in use, and repair() makes it hold each byte once: it drops entries of no bytes, and
    // entries that lie in an earlier one.
    static void compiler_barrier() { asm volatile("" ::: "memory"); }
    static void assign(arena_header::range& to, arena_header::range from) {
        to.bytes = 0;
        compiler_barrier();
        to.offset = from.offset;
        compiler_barrier();
        to.bytes = from.bytes;
        compiler_barrier();
    }
    static void remove(arena_header& h, int i) {
        compiler_barrier();
        for (int k = i; k + 1 < h.free_count; ++k) assign(h.free[k], h.free[k + 1]);
        --h.free_count;
    }
    static void insert(arena_header& h, int i, arena_header::range r) {
        for (int k = h.free_count; k > i; --k) {
            assign(h.free[k], h.free[k - 1]);
            if (k == h.free_count) {
                ++h.free_count;
                compiler_barrier();
            }
        }
        assign(h.free[i], r);
        if (i == h.free_count) ++h.free_count;
    }

    // Gives up after ten seconds. The lock is held for a few hundred instructions. After a second it is taken over from
    // a holder that died with it.
    [[gnu::cold]] locked acquire(arena_header& h) const {
        const std::uint32_t me = static_cast<std::uint32_t>(::getpid()) | (is_number_hidden_ ? hidden : 0);
        const auto checked = [&] {
            if (is_sound(h)) return locked::yes;
            release(h);
            return locked::damaged;
        };
        for (const std::int64_t begin = now_ns();;) {
            std::uint32_t holder = 0;
            if (h.lock.compare_exchange_strong(holder, me, memory_order::acquire)) return checked();
            sched_yield();
            const std::int64_t waited_ns = now_ns() - begin;
            if (waited_ns > 10'000'000'000) return locked::by_another;
            if (waited_ns < 1'000'000'000 || ((holder | me) & hidden) != 0 || !has_ended(holder)) continue;
            if (!h.lock.compare_exchange_strong(holder, me, memory_order::acquire)) continue;
            const locked now = checked();
            if (now == locked::yes) repair(h);
            return now;
        }
    }
    // True also for a process that its parent has not waited for yet.
    static bool has_ended(std::uint32_t process) {
        const descriptor fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0)));
        if (!fd.is_open()) return ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
        return detail::events_now(fd.get(), POLLIN) != 0;
    }
    static void release(arena_header& h) { h.lock.store(0, memory_order::release); }

    std::byte* base_;
    std::size_t bytes_;
    int fd_;
    static constexpr std::uint32_t hidden = 1u << 31; // in the lock: the holder's number means nothing to others
    bool is_number_hidden_ = false;
};

COLLX_END_NAMESPACE
