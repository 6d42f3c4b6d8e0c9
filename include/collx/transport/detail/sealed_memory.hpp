// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared memory without a name: a sparse memfd whose size is sealed, so that no process can truncate it under the
// others. Nothing is left when the last process is gone. /dev/shm and its size limit play no part. Makes an arena of
// this kind, and checks one that was received.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <collx/core/pointers.hpp>
#include <cstring>

#include <collx/core/descriptor.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/memory.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[gnu::cold]] inline descriptor make_memfd() {
    constexpr unsigned no_exec_seal =
        8; // MFD_NOEXEC_SEAL, Linux 6.3: some systems refuse a memfd without it, older ones with it
    int fd = ::memfd_create("collx", MFD_CLOEXEC | MFD_ALLOW_SEALING | no_exec_seal);
    if (fd < 0 && errno == EINVAL) fd = ::memfd_create("collx", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        fail(errno == ENOSYS ? errc::unsupported : errc::resource, 0, -1, remedy_for_descriptor(errno),
             "cannot make shared memory (memfd): %s", std::strerror(errno));
    return descriptor(fd);
}

// The largest file this process may make: beyond it ftruncate() would not only fail but also send SIGXFSZ.
inline std::size_t file_size_limit() {
    const std::size_t limit = limit_of(RLIMIT_FSIZE);
    return limit == SIZE_MAX ? limit : limit / page_bytes * page_bytes;
}

// Maps a memfd of `bytes` or, where the system refuses, half of that and so on. The result is formatted and sealed.
[[gnu::cold]] inline counted_ptr<arena> make_sealed_arena(int ranks, std::size_t bytes) {
    constexpr std::size_t least_bytes = round_up(sizeof(arena_header), page_bytes) + page_bytes;
    descriptor fd = make_memfd();
    bytes = round_up(bytes < least_bytes ? least_bytes : bytes, page_bytes);
    const std::size_t limit = file_size_limit();
    if (limit < least_bytes)
        fail(errc::resource, 0, -1, "raise the file size limit (ulimit -f)",
             "cannot make shared memory: files may have at most %zu bytes, and it needs %zu", limit, least_bytes);
    if (bytes > limit) bytes = limit;
    int trouble = 0; // of the last call that failed: later ones may change errno
    bool is_mapping = false;
    for (; bytes >= least_bytes; bytes = bytes / 2 / page_bytes * page_bytes) {
        if (without_eintr([&] { return ::ftruncate(fd.get(), static_cast<off_t>(bytes)); }) != 0) {
            trouble = errno;
            is_mapping = false;
            continue;
        }
        void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
        if (base == MAP_FAILED) {
            trouble = errno;
            is_mapping = true;
            continue;
        }
        auto a = make_counted<arena>(base, bytes, fd.release());
        a->reserve(0, sizeof(arena_header));
        a->format(ranks);
        if (::fcntl(a->fd(), F_ADD_SEALS, size_seals) != 0)
            fail(errc::unsupported, 0, -1, "use a kernel with memfd seals", "cannot seal shared memory: %s",
                 std::strerror(errno));
        return a;
    }
    fail(errc::resource, 0, -1, is_mapping ? remedy_for_mapping(trouble) : remedy_for_descriptor(trouble),
         "cannot %s shared memory: %s", is_mapping ? "map" : "make", std::strerror(trouble));
}

// Maps the memory that rank 0 sent, after comparing it with what rank 0 said about it.
[[gnu::cold]] inline counted_ptr<arena> open_sealed_arena(descriptor fd, std::size_t bytes, int rank, int ranks) {
    struct stat about {};
    const bool is_sound = ::fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode) &&
                          static_cast<std::size_t>(about.st_size) == bytes && bytes >= sizeof(arena_header) &&
                          (::fcntl(fd.get(), F_GET_SEALS) & size_seals) == size_seals;
    if (!is_sound)
        fail(errc::protocol, rank, 0, "is rank 0 the same program?",
             "rank 0 sent something that is not its sealed memory");
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
    if (base == MAP_FAILED)
        fail(errc::resource, rank, -1,
             errno == ENOMEM && limit_of(RLIMIT_AS) != SIZE_MAX
                 ? "raise the address space limit (ulimit -v), or give all ranks a COLLX_ARENA_BYTES that fits it"
                 : remedy_for_mapping(errno),
             "cannot map %zu bytes of shared memory: %s", bytes, std::strerror(errno));
    auto a = make_counted<arena>(base, bytes, fd.release());
    const auto& h = a->header();
    if (h.magic != arena_header::magic_value || h.bytes != bytes || h.ranks != ranks)
        fail(errc::protocol, rank, 0, "build all ranks with the same version of collx",
             "rank 0's shared memory has another layout");
    return a;
}

} // namespace detail

COLLX_END_NAMESPACE
