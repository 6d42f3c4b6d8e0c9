// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A GPU in software, for tests: it interprets the PTX that nvcc makes of a kernel, block by block, warp by warp. What
// it shows: that the code nvcc emitted computes what it should, stays inside its memory, and neither hangs nor meets a
// barrier with the wrong threads, under many orders of warps and blocks. What it does not show: that a real device
// orders memory as the PTX model promises (here every access is seen at once, in program order), or any speed.
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

// Addresses are those of this process: global memory is memory of the host that a kernel may touch.
using address = std::uint64_t;

class memory {
public:
    virtual ~memory() = default;
    // Whether all of [at, at + bytes) lies in one live allocation that kernels may touch.
    virtual bool holds(address at, std::size_t bytes) const = 0;
    // The memory behind an address of a multicast object: one address for each device bound to it; none elsewhere.
    virtual std::vector<address> copies_of(address at, std::size_t bytes) const = 0;
};

// What a kernel did that it must not: text names the kernel, the block and thread, and the instruction. (On a GPU these
// end the context: cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorLaunchFailure and so on.)
class fault : public std::runtime_error {
public:
    enum class kind { illegal_address, misaligned_address, illegal_instruction, trap, barrier, unsupported };
    fault(kind k, const std::string& text) : std::runtime_error(text), why(k) {}
    kind why;
};

struct function; // of a module; machine-internal

struct kernel_facts {
    std::vector<std::size_t> parameter_offsets, parameter_sizes; // where each is in the parameters
    std::size_t parameter_bytes = 0, shared_bytes = 0, local_bytes = 0;
    unsigned max_threads = 1024; // .maxntid
};

// The PTX of one translation unit; its .global variables live as long as it does.
class module {
public:
    explicit module(std::string_view ptx); // throws fault (unsupported) for text it cannot read
    ~module();
    module(const module&) = delete;
    module& operator=(const module&) = delete;
    const function* kernel(std::string_view name) const; // null where there is none
    void* variable(std::string_view name, std::size_t& bytes) const;
    bool holds(address at, std::size_t bytes) const; // a variable of this module

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
    std::vector<std::byte> parameters; // laid out as kernel_facts says
    extent grid, block;
    std::size_t dynamic_shared_bytes = 0;
    bool cooperative = false; // else blocks run in batches of at most `resident`, for they may not wait for each other
    unsigned resident = 16;   // blocks at once
    std::uint64_t seed = 0;   // of the order in which warps take turns
};
// Runs all of it in the calling thread. Throws fault. Returns early, having done part of it, once stop is true.
// Where all warps wait and nothing has changed for a while the thread sleeps a little between looks, for another
// process or the host may be what they wait for.
void run(const launch&, const memory&, const std::atomic<bool>& stop);

} // namespace software_gpu
