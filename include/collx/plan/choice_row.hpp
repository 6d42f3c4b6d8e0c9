// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The words of the table of choices (choices.hpp): venues, algorithms, conditions, and what a row consists of.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/sched/collective.hpp>

COLLX_BEGIN_NAMESPACE
namespace choices {

// Where a call runs. A row may be for several venues.
enum venue : unsigned {
    memory = 1,      // ranks that share memory
    channels = 2,    // ranks that do not; also where hosts, links and rails have no row that applies
    hosts = 4,       // several hosts, some with several ranks
    links = 8,       // one host, or hosts with one rank each, whose links are known
    rails = 16,      // several hosts, some with several ranks, whose links are known
    own_counts = 32, // each rank knows only its own counts: the choice must not depend on a size
    device = 64,     // kernels that reach every peer
    team = 128,      // ranks of one device
    switched = 256   // kernels that reach every peer, through a switch that reduces and multicasts
};
// The bit of a collective in a set of them.
constexpr unsigned bit(collective c) { return 1u << static_cast<unsigned>(c); }
// Sets of collectives.
enum collectives : unsigned {
    all_reduce = bit(collective::all_reduce),
    reduce = bit(collective::reduce),
    broadcast = bit(collective::broadcast),
    all_gather = bit(collective::all_gather),
    reduce_scatter = bit(collective::reduce_scatter),
    gather = bit(collective::gather),
    scatter = bit(collective::scatter),
    all_to_all = bit(collective::all_to_all),
    scan = bit(collective::scan),
    exclusive_scan = bit(collective::exclusive_scan),
    barrier = bit(collective::barrier),
    send_recv = bit(collective::send_recv),
    scans = scan | exclusive_scan,
    rooted_or_parted = reduce | broadcast | all_gather | reduce_scatter
};
// The algorithms that rows name.
enum name : std::uint8_t {
    aggregated,
    binomial,
    bruck,
    chain,
    direct,
    dissemination,
    double_tree,
    doubling,
    flag,
    halving,
    halving_doubling,
    hierarchical_rings,
    hierarchical_trees,
    hierarchical_one_rail,
    leader,
    linear,
    multicast,
    multicast_two_shot,
    one_shot,
    pairwise,
    recursive_doubling,
    ring,
    rings,
    two_shot,
    zero_copy,
    none
};
// Further conditions of a row; all that it names must hold.
enum condition : unsigned {
    in_windows = 1,       // the buffers of all ranks lie in memory that the other ranks can read
    private_buffers = 2,  // they do not
    shared_cores = 4,     // there are more ranks than cores
    own_cores = 8,        // there are not
    any_order = 16,       // the operator is commutative
    rank_order = 32,      // it is not: operands are combined in the order of ranks
    one_by_one = 64,      // operands are combined one after the other in the order of ranks (deterministic)
    power_of_two = 128,   // the number of ranks is a power of two
    rings_pay = 256,      // rings load the machine's links less than exchanges between all pairs do
    by_rail = 512,        // no windows, and the ranks of a host have network cards on several rails
    crowded_hosts = 1024, // there are several hosts, some with several ranks
    whole_sums = 2048,    // the schedule may send partial sums on (it may not where that rounds them, in a wire type
                          // narrower than the sums, and the call is deterministic)
    single_copies = 4096  // ranks are processes, and a long message may be one copy (docs/design/single_copy.md)
};
// The size that is compared with a row's bounds, in bytes on the wire.
enum class measure : std::uint8_t {
    buffer,       // of the whole buffer
    part,         // of the part that one rank has for one other
    between_hosts // of the message from one host to another when a leader sends it
};
enum class protocol : std::uint8_t { simple, packets, multicast }; // of a kernel (exec/device/args.hpp)

// No bound.
inline constexpr std::size_t any_bytes = SIZE_MAX;
inline constexpr int any_ranks = INT32_MAX;
// n KiB, in bytes.
constexpr std::size_t kib(std::size_t n) { return n * 1024; }

// The numbers of ranks from `least` to `most`, both included.
struct range {
    int least = 1, most = any_ranks;
};

// One choice: the calls it is for, the algorithm, and the reason, which docs/algorithms.md and explain() print.
struct row {
    unsigned where, what; // sets of venues and of collectives
    name use;
    unsigned needs = 0; // a set of conditions
    range ranks{};
    int most_hosts = any_ranks;
    measure of = measure::buffer;
    std::size_t above = 0, up_to = any_bytes; // bytes: more than `above`, at most `up_to`
    protocol by = protocol::simple;
    const char* why;

    constexpr bool is_for(unsigned p, collective c) const { return (where & p) != 0 && (what & bit(c)) != 0; }
};

} // namespace choices
COLLX_END_NAMESPACE
