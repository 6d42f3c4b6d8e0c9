// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that peers may read and write directly. Collectives on it make no copies: they read every operand where it
// lies.
//
//   std::vector<float, collx::shared_allocator<float>> g(n, collx::shared_allocator<float>(world));
//
// shared_vector.hpp has a name for this type.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include <collx/comm/communicator.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

// A standard allocator over the job's shared arena. Local: allocating involves no other ranks; only using the memory
// in a collective does.
// Errors: error (resource) when shared memory is exhausted.
template <class T>
class shared_allocator {
public:
    // The type of the elements.
    using value_type = T;
    // Errors: forked in a child of the rank.
    explicit shared_allocator(communicator& c)
        : memory_(c.internals().home->memory), owner_(::getpid()), rank_(c.rank()) {
        c.internals().require_own();
    }
    template <class U>
    shared_allocator(const shared_allocator<U>& o) : memory_(o.memory()), owner_(o.owner()), rank_(o.rank()) {}

    // Uninitialised memory for n elements.
    // Errors: resource when shared memory is exhausted · forked in a child of the rank.
    T* allocate(std::size_t n) {
        if (owner_ != ::getpid())
            fail(errc::forked, rank_, -1, "use memory of its own in the child",
                 "shared memory is asked for in a fork() of the rank");
        const std::size_t bytes = n <= SIZE_MAX / sizeof(T) ? n * sizeof(T) : SIZE_MAX;
        const std::uint64_t at = memory_->take(bytes, rank_);
        try {
            memory_->reserve(at, bytes, rank_);
        } catch (const error&) { // its memory may have another owner now
            memory_->give_back(at, bytes);
            throw;
        }
        return reinterpret_cast<T*>(memory_->at(at));
    }
    // Does nothing in a forked child, which destroys its copy of a vector: the memory stays the parent's.
    void deallocate(T* p, std::size_t n) noexcept {
        if (owner_ == ::getpid()) memory_->give_back(memory_->offset_of(p), n * sizeof(T));
    }

    // The job's arena.
    const counted_ptr<arena>& memory() const { return memory_; }
    // The process that may allocate; its forked children may not.
    pid_t owner() const { return owner_; }
    // The rank that errors name: that of the communicator.
    int rank() const { return rank_; }
    template <class U>
    bool operator==(const shared_allocator<U>& o) const {
        return memory_ == o.memory();
    }

private:
    counted_ptr<arena> memory_;
    pid_t owner_;
    int rank_;
};

COLLX_END_NAMESPACE
