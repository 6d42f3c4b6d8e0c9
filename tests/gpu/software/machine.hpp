// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A software GPU for tests: it interprets the PTX that nvcc makes of a kernel, block by block, warp by warp. It shows
// that nvcc's code computes the right results, stays inside its memory, does not hang and reaches no barrier with the
// wrong threads, under many orders of warps and blocks. It does not show the memory order of a real device (here every
// access is visible at once, in program order), or any speed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace software_gpu {

// Addresses are those of this process: global memory is host memory that a kernel may access.
using address = std::uint64_t;

class memory {
public:
    virtual ~memory() = default;
    // Whether [at, at + bytes) is within one live allocation that kernels may access.
    virtual bool holds(address at, std::size_t bytes) const = 0;
    // The memory behind an address of a multicast object: one address for each bound device; empty for other addresses.
    virtual std::vector<address> copies_of(address at, std::size_t bytes) const = 0;
};

// A forbidden action of a kernel. The text names the kernel, the block and thread, and the instruction. (On a GPU
// these end the context: cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorLaunchFailure and so on.)
class fault : public std::runtime_error {
public:
    enum class kind { illegal_address, misaligned_address, illegal_instruction, trap, barrier, unsupported };
    fault(kind k, const std::string& text) : std::runtime_error(text), why(k) {}
    kind why;
};

struct function; // a function of a module; internal

struct kernel_facts {
    std::vector<std::size_t> parameter_offsets, parameter_sizes; // the offset and size of each parameter
    std::size_t parameter_bytes = 0, shared_bytes = 0, local_bytes = 0;
    unsigned max_threads = 1024; // .maxntid
    int arch = 0;                // .target: 90 for sm_90
};

// The PTX of one translation unit; its .global variables live as long as the object.
class module {
public:
    explicit module(std::string_view ptx); // throws fault (unsupported) for text that it cannot read
    ~module();
    module(const module&) = delete;
    module& operator=(const module&) = delete;
    const function* kernel(std::string_view name) const; // null if there is none
    void* variable(std::string_view name, std::size_t& bytes) const;
    bool holds(address at, std::size_t bytes) const; // whether it is a variable of this module

private:
    struct parts;
    std::unique_ptr<parts> parts_;
};
const kernel_facts& facts_of(const function&);

struct extent {
    unsigned x = 1, y = 1, z = 1;
};
struct launch {
    const function* kernel = nullptr;
    std::vector<std::byte> parameters; // laid out as kernel_facts describes
    extent grid, block;
    std::size_t dynamic_shared_bytes = 0;
    bool cooperative = false; // else blocks run in batches of `resident` at most, for they may not wait for each other
    unsigned resident = 16;   // blocks at once
    std::uint64_t seed = 0;   // of the random order in which warps take turns
};
// Runs the launch in the calling thread. Throws fault. Returns early, with the work incomplete, once stop is true.
// While all warps wait and nothing changes, the thread sleeps a little between checks, because they may wait for
// another process or the host.
void run(const launch&, const memory&, const std::atomic<bool>& stop);

} // namespace software_gpu
