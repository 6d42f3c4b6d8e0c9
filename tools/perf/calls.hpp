// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One operation on one element type, bound to buffers, behind a type without templates. Operation, type, operator and
// algorithm are chosen once for a point; what is timed is a loop around the call itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operation.hpp"
#include "pattern.hpp"

namespace collx::inline v0 {
class communicator;
}

namespace collx::tools::perf {

struct call_request {
    communicator* world = nullptr;
    operation op = operation::all_reduce;
    reduction how = reduction::sum;
    bool in_place = false;
    bool shared = false;         // the buffers come from collx's allocator
    bool attach = false;         // peers' private memory is read through the kernel
    std::size_t piece_bytes = 0; // 0: the library's choice
    std::string algorithm;       // empty: the library's choice
    std::size_t whole = 0;       // elements of the larger buffer of a rank
    std::size_t count = 0;       // elements as MPI counts them
    int rank = 0, ranks = 1;
    int root = -1; // -1: call i has root i mod ranks
    void* send = nullptr;
    void* recv = nullptr;
};

class timed_calls {
public:
    virtual ~timed_calls() = default;
    /// Makes `calls` calls, one after the other.
    virtual void run(int calls) = 0;
    /// Makes one call with this root.
    virtual void run_once(int root) = 0;
};

/// Errors: std::invalid_argument with a sentence if this operation has no such algorithm or operator.
std::unique_ptr<timed_calls> make_calls(element type, const call_request& r);

/// Returns the names of the algorithms that implement `op`; empty if the library has only one way.
std::vector<std::string> algorithm_names(operation op);

/// Those of them that can run. `in_memory`: ranks read each other's windows. `shared`: buffers are shared, not private.
std::vector<std::string> usable_algorithms(operation op, bool in_memory, bool shared);

// make_calls chooses among these; each is instantiated in its own file.
template <class T>
std::unique_ptr<timed_calls> make_reducing_calls(const call_request& r);
template <class Bits>
std::unique_ptr<timed_calls> make_moving_calls(const call_request& r);

} // namespace collx::tools::perf
