// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of choices: which algorithm runs by default, for calls on the host, on devices and on teams. A call takes
// the first row that is for its venue and collective and whose conditions hold. The selectors in plan/,
// gpu/by_kernel.hpp, gpu/fused_team.hpp, docs/algorithms.md and collx::explain read this table; no threshold stands
// anywhere else. A row names its algorithm; plan/algorithm_of.hpp maps names to types, so that a program compiles only
// the algorithms that it may run. The measurement behind a threshold stands in the comment above its row, as times
// relative to the algorithm it was compared with (below 1: faster); docs/performance.md and docs/design/sockets.md say
// how they were taken.
#pragma once

#include <cstddef>

#include <collx/plan/choice_row.hpp>

COLLX_BEGIN_NAMESPACE
namespace choices {

// Four bounds that several rows share.
// Above this size bandwidth decides over channels: a message costs about as much as moving this many bytes.
inline constexpr std::size_t long_message = kib(32);
// Up to four times this size, ranks whose number is no power of two use halving and doubling too. The extra ranks first
// merge into others, which costs two rounds and sends up to the whole buffer twice; a ring costs at least n - 2 more
// rounds. (Time relative to a ring, one TCP connection each way, 2 cores: all_reduce of 96 KiB among 3, 5, 7, 12 ranks
// 0.67, 0.49, 0.50, 0.40; of 256 KiB among 3, 5, 7 ranks 0.83, 1.02, 0.69.)
inline constexpr std::size_t few_rounds = kib(64);
// Up to this size a sum among 2^k ranks uses halving and doubling: it sends as few bytes as a ring in fewer steps, and
// each step waits for a message (and for a time slice where ranks share cores). Above it a ring is faster, because each
// rank has one neighbour. Broadcasts change from one tree to two here, and known links to the machine's rings.
inline constexpr std::size_t few_steps = kib(512);
// Above this size bandwidth decides for calls inside and between hosts.
inline constexpr std::size_t long_among_hosts = kib(64);

// clang-format off
// The rows, in the order in which they are tried.
inline constexpr row rows[] = {
    // ---------------------------------------------------------------------------------------------------- memory
    // One-shot is faster than two-shot while a second synchronisation costs more than reading everything n times. "Near" cores share
    // a last-level cache, "far" cores do not. (Time relative to two_shot, 2 ranks far and near: 16 KiB 0.67 and 0.8, 32 KiB 0.76 and
    // 0.92, 48 KiB 0.81 and 1.04, 64 KiB 0.85 and 1.06. On 2 cores, 24 and 48 KiB: 3 ranks 0.76 and 0.91; 4 ranks 1.03 and 1.00; 8
    // ranks 0.88 and 1.29.)
    {.where = memory, .what = all_reduce, .use = one_shot, .needs = shared_cores | in_windows, .up_to = kib(16),
     .why = "one synchronisation; another would cost a context switch"},
    {.where = memory, .what = all_reduce, .use = one_shot, .needs = shared_cores | private_buffers, .up_to = kib(24),
     .why = "one synchronisation; another would cost a context switch"},
    {.where = memory, .what = all_reduce, .use = one_shot, .needs = shared_cores | private_buffers, .ranks = {1, 4}, .up_to = kib(48),
     .why = "one synchronisation; each rank reads everything of few others"},
    {.where = memory, .what = all_reduce, .use = one_shot, .needs = in_windows | own_cores, .up_to = kib(2),
     .why = "one synchronisation, and few bytes to copy"},
    {.where = memory, .what = all_reduce, .use = one_shot, .needs = private_buffers | own_cores, .ranks = {1, 2}, .up_to = kib(24),
     .why = "one synchronisation costs less than the second half of the sum"},
    // Recursive doubling sends pieces while it sums others; one-shot stages everything first. (Time relative to one_shot up to 48 KiB and
    // to two_shot above, private buffers, near: 20 KiB 0.87, 32 KiB 0.87, 64 KiB 0.82, 100 KiB 0.83, 256 KiB 0.88, 640 KiB 0.94, 1 MiB
    // 0.98, 3 MiB 1.04, 4 MiB 1.11; far, where long messages are single copies: 12 KiB 1.38, 20 KiB 1.0, 32 KiB 0.91, 64 KiB 0.56, 160
    // KiB 1.0, 640 KiB 0.43 to 0.95, 1 MiB 0.38, 3 MiB 0.40, 4 MiB 0.54, 8 MiB 0.74.)
    {.where = memory, .what = all_reduce, .use = recursive_doubling, .needs = private_buffers | own_cores, .ranks = {2, 2},
     .up_to = kib(4096), .why = "two ranks exchange everything, piece by piece, and wait once"},
    {.where = memory, .what = all_reduce, .use = one_shot, .needs = private_buffers | own_cores, .ranks = {3, 4}, .up_to = kib(8),
     .why = "one synchronisation; each rank reads everything of 2 or 3 others"},
    {.where = memory, .what = all_reduce, .use = one_shot, .needs = private_buffers | own_cores, .ranks = {5}, .up_to = kib(4),
     .why = "one synchronisation; each rank reads everything of all others"},
    {.where = memory, .what = all_reduce, .use = zero_copy, .needs = in_windows,
     .why = "each rank sums its part in place, nothing is staged"},
    {.where = memory, .what = all_reduce, .use = two_shot,
     .why = "each rank sums its part and reads the others' sums: the least bytes"},
    // Short calls of the other collectives are one-shot too: one strand and one signal a call. The algorithms of direct.hpp have two
    // strands, one that puts a piece while the other takes one. (one_shot against direct, 8 bytes: all_gather of 2 ranks on far cores
    // 0.31 and 0.53 us, reduce of 4 ranks 1.7 and 2.9 us; equal from 16 KiB.)
    {.where = memory, .what = rooted_or_parted | all_to_all, .use = one_shot, .up_to = kib(16),
     .why = "one strand and one signal a call"},
    {.where = memory, .what = rooted_or_parted | all_to_all, .use = zero_copy, .needs = in_windows,
     .why = "peers read each other's buffers, nothing is staged"},
    // (Time relative to pairwise, 2 ranks near: 17 KiB 0.84 to 0.88, 32 KiB 0.86 to 0.95.)
    // Where ranks share cores, the gain of one strand over two outweighs the overlap up to a larger size. (Time relative to direct, 20,
    // 100 and 300 KiB on 2 cores: all_gather of 3 ranks 0.88, 0.93, 1.04, of 8 ranks 0.87, 0.90, 0.89; reduce_scatter of 4 ranks
    // 0.87, 0.97, 1.08; all_to_all of 8 ranks 0.78, 0.86, 0.96.)
    {.where = memory, .what = all_gather | reduce_scatter | all_to_all, .use = one_shot, .ranks = {1, 2}, .up_to = kib(32),
     .why = "chunks of up to 16 KiB need no task"},
    {.where = memory, .what = all_gather | reduce_scatter | all_to_all, .use = one_shot, .needs = shared_cores, .ranks = {3},
     .up_to = kib(128), .why = "one strand a call: fewer changes between ranks"},
    // (Time relative to direct, near, 256 KiB, 1.5 MiB, 8 MiB: 5 ranks 1.05, 1.08, 1.00, 7 ranks 0.99, 1.06, 0.88, 8 ranks 1.01, 0.99,
    // 0.89; far, 8 ranks: 384 KiB 0.78, 3 MiB 0.95.)
    {.where = memory, .what = all_gather, .use = one_shot, .needs = shared_cores, .ranks = {7}, .above = kib(2048),
     .why = "one strand a call: fewer changes between ranks"},
    // (Time relative to direct, 3 and 6 MiB: 3 ranks 0.87 and 0.75, 4 ranks 0.79 and 0.77; 8 ranks 0.90 and 1.11.)
    {.where = memory, .what = reduce, .use = chain, .needs = shared_cores | whole_sums, .ranks = {3, 4}, .above = kib(2048),
     .why = "each rank passes each byte on once"},
    // Between two ranks a channel moves as many bytes as windows do, and long messages may be single copies. A chain moves its data piece
    // by piece: one is put while another is taken; its messages are never single copies. (Time relative to linear, near, 20, 32, 48,
    // 100 KiB: broadcast 0.80, 0.84, 1.0, 0.9, reduce 0.83, 0.84, 1.0, 0.97.)
    {.where = memory, .what = reduce | broadcast, .use = chain, .ranks = {2, 2}, .up_to = kib(32),
     .why = "between two ranks a channel moves as much, piece by piece"},
    {.where = memory, .what = reduce | broadcast, .use = linear, .ranks = {2, 2},
     .why = "between two ranks a channel moves as much, and may copy once"},
    // A channel to each of two ranks may copy once; then both cores copy while the root waits. (Time relative to direct, 3 ranks on 2
    // cores, near, medians of 7 to 10 launches: 800 KiB 0.88, 1 MiB 1.0, 2 MiB 0.8 and 1.1, 3 MiB 0.8, 4 MiB 0.85, 6 MiB 0.95, 8 MiB
    // 1.1, 16 MiB 1.1 to 1.4; far 300 KiB 1.8, 600 KiB 1.4, 2 MiB 0.64, 4 MiB 0.38, 16 MiB 0.43.)
    {.where = memory, .what = broadcast, .use = linear, .needs = shared_cores | private_buffers, .ranks = {3, 3}, .above = kib(768),
     .up_to = kib(8192), .why = "to two ranks a channel may copy once"},
    {.where = memory, .what = all_gather | reduce_scatter | all_to_all, .use = pairwise, .ranks = {2, 2},
     .why = "between two ranks a channel moves as much, and may copy once"},
    // A part may go by a single copy from 32 KiB on, which on far cores is worth more than windows are on near ones. (Time relative to
    // direct, processes on 2 cores, medians of up to 20 launches near and 2 far, 400 KiB, 1.1 MiB, 3 MiB, 8 MiB: 3 ranks near 1.07, 0.97,
    // 1.10, 0.94, far 0.46, 0.40, 0.60, 0.71; 4 ranks near 1.15, 1.02, 1.11, 1.21, far 0.35, 0.30 and not measured; 5 ranks near 1.08,
    // 1.14, 1.06, 1.00, far 0.30, 0.35, 0.45, 0.83; 6 ranks near 1.10, 1.07, 1.29, 1.12, far 0.50, 0.37, 0.54, 0.77; 8 ranks near 0.89,
    // 0.88, 1.07, 0.99, far 0.64, 0.43, 1.06, 0.93. 400 and 800 KiB, 1.5, 3 MiB, near: 12 ranks 0.69, 0.84, 1.04, 1.42, 32 ranks 0.91,
    // 0.81, 1.03, 1.10.)
    {.where = memory, .what = all_to_all, .use = pairwise, .needs = shared_cores | private_buffers | single_copies, .ranks = {3, 6},
     .above = kib(256), .why = "each long part may be one copy"},
    {.where = memory, .what = all_to_all, .use = pairwise, .needs = shared_cores | private_buffers | single_copies, .ranks = {7},
     .above = kib(384), .up_to = kib(1024), .why = "each long part may be one copy"},
    {.where = memory, .what = all_to_all, .use = pairwise, .needs = shared_cores | private_buffers | single_copies, .ranks = {7, 8},
     .above = kib(1024), .why = "each long part may be one copy"},
    {.where = memory, .what = rooted_or_parted | all_to_all, .use = direct, .why = "one piece is put while another is taken"},
    // (A call whose operator has a post hook, or that has another type on the wire, is one_shot: see call/run.hpp.)
    // In a chain the first ranks can run ahead, and each rank reads one partial sum instead of all inputs before it. (Time relative to
    // one_shot: 4 ranks on 2 cores 100 B 0.20, 20 KiB 0.54, 3 MiB 0.67; 8 ranks 0.20, 0.50, 0.59; 2 ranks 100 B far 0.65, near 1.0, 40 KiB
    // 0.95 to 1.0, 700 KiB 0.80 to 0.95.)
    {.where = memory, .what = scans, .use = chain, .needs = shared_cores, .why = "no rank waits for one that follows it"},
    {.where = memory, .what = scans, .use = one_shot, .ranks = {3}, .up_to = kib(64), .why = "each rank reads what precedes it, in one round"},
    {.where = memory, .what = scans, .use = chain, .why = "each rank passes each byte on once"},
    {.where = memory, .what = barrier, .use = flag, .why = "one flag for each rank, in one round"},
    {.where = memory | channels, .what = gather | scatter, .use = linear, .why = "the root takes or gives each part once"},

    // -------------------------------------------------------------------------------------------------- channels
    // With three ranks the grouping of operands matters; with two there is only one.
    {.where = channels, .what = all_reduce | reduce | reduce_scatter, .use = linear, .needs = one_by_one, .ranks = {3},
     .why = "operands one after the other, as deterministic says"},
    {.where = channels, .what = scans, .use = chain, .needs = one_by_one, .ranks = {3},
     .why = "operands one after the other, as deterministic says"},

    {.where = channels, .what = all_reduce, .use = recursive_doubling, .up_to = few_rounds,
     .why = "fewest rounds; messages cost more than bytes"},
    // Two ranks send the same bytes with either algorithm. Recursive doubling waits once instead of twice, which is worth
    // more than the half of the sum that both ranks compute.
    {.where = channels, .what = all_reduce, .use = recursive_doubling, .ranks = {2, 2}, .up_to = few_steps,
     .why = "two ranks exchange everything at once and wait once"},
    {.where = channels, .what = all_reduce, .use = halving_doubling, .needs = rank_order,
     .why = "few bytes, and operands in rank order"},
    {.where = channels, .what = all_reduce, .use = halving_doubling, .needs = power_of_two, .up_to = few_steps,
     .why = "as few bytes as a ring, in fewer steps"},
    {.where = channels, .what = all_reduce, .use = halving_doubling, .up_to = 4 * few_rounds,
     .why = "fewer steps than a ring"},
    {.where = channels, .what = all_reduce, .use = ring, .why = "fewest bytes, one neighbour"},

    // (Time relative to binomial, one TCP connection each way, 2 cores, 8 B and 20 KiB: 4 ranks 0.76 and 0.87, 6 ranks 0.82 and 0.86, 8
    // ranks 0.87 and 0.83; 3 ranks send the same messages. With a core for each rank the root's link carries n - 1 messages, so
    // longer calls do not use it.)
    {.where = channels, .what = reduce, .use = linear, .ranks = {4, 4}, .up_to = long_message,
     .why = "few ranks: nothing is passed on"},
    {.where = channels, .what = reduce, .use = linear, .ranks = {5, 8}, .up_to = kib(16),
     .why = "few bytes of few ranks: nothing is passed on"},
    // A chain waits for n - 2 messages more than a tree. Each costs as much as sending 25 KiB over a link of 10 Gbit/s, or 250 KiB over
    // one of 100 Gbit/s. (Time relative to a chain, 48, 96, 256, 640 KiB: 3 ranks 0.44, 0.59, 0.74, 0.79; 6 ranks 0.51, 0.54, 0.74,
    // 1.03; 8 ranks 0.48, 0.56, 0.78, 0.83.)
    {.where = channels, .what = reduce, .use = binomial, .up_to = few_steps, .why = "fewest rounds"},
    {.where = channels, .what = reduce, .use = binomial, .ranks = {1, 2}, .why = "one message"},
    {.where = channels, .what = reduce, .use = chain, .why = "each rank passes each byte on once"},

    // Among few ranks the root sends a short broadcast to each rank itself.
    {.where = channels, .what = broadcast, .use = linear, .ranks = {1, 4}, .up_to = long_message,
     .why = "few ranks: nothing is passed on"},
    // (Time relative to binomial, 8 B and 12 KiB: 5 ranks 0.93 and 0.81, 6 ranks 0.83 and 0.90, 8 ranks 0.86 and 0.87.)
    {.where = channels, .what = broadcast, .use = linear, .ranks = {5, 8}, .up_to = kib(16),
     .why = "few bytes to few ranks: nothing is passed on"},
    {.where = channels, .what = broadcast, .use = binomial, .up_to = few_steps, .why = "fewest rounds"},
    {.where = channels, .what = broadcast, .use = binomial, .ranks = {1, 2}, .why = "one message"},
    {.where = channels, .what = broadcast, .use = double_tree, .why = "two trees, each with half: all ranks send"},

    // Two ranks that exchange need fewer context switches than a rank that receives from one and sends to another. (Time relative to
    // bruck, 4, 8, 16 ranks on 2 cores: 192 B 0.63, 0.65, 0.85; 88 KiB, 128 KiB of 16 ranks, 0.63, 0.69, 0.74. Relative to a ring, 640 KiB
    // and 1.5 MiB: 4 ranks 0.78 and 0.87, 8 ranks 0.78 and 0.75.) Other numbers of ranks need a round more than bruck.
    {.where = channels, .what = all_gather, .use = recursive_doubling, .needs = power_of_two, .up_to = 4 * few_steps,
     .why = "fewest rounds, of pairs that exchange"},
    {.where = channels, .what = all_gather, .use = bruck, .up_to = 4 * long_message, .why = "fewest rounds"},
    // (Time relative to a ring: 3 ranks 640 KiB 0.83, 1 MiB 0.93; 6 ranks 160 KiB 0.73, 384 KiB 0.80, 1 MiB 0.81, 3 MiB 1.07.)
    {.where = channels, .what = all_gather, .use = pairwise, .ranks = {3, 8}, .up_to = 2 * few_steps,
     .why = "few ranks: nothing is passed on"},
    {.where = channels, .what = all_gather, .use = ring, .why = "one neighbour"},

    {.where = channels, .what = reduce_scatter, .use = pairwise, .needs = rank_order,
     .why = "operands in rank order, fewest bytes"},
    // (Time relative to halving, and to a ring above 64 KiB: 0.83 for 12 B, 0.72 for 48 KiB, 0.91 for 384 KiB, 1.04 for 2 MiB.)
    {.where = channels, .what = reduce_scatter, .use = pairwise, .ranks = {3, 3}, .up_to = kib(768),
     .why = "few ranks: nothing is passed on"},
    {.where = channels, .what = reduce_scatter, .use = halving, .up_to = few_rounds, .why = "fewest rounds"},
    {.where = channels, .what = reduce_scatter, .use = halving, .needs = power_of_two, .up_to = few_steps,
     .why = "as few bytes as a ring, in fewer steps"},
    // (Time relative to a ring: 6 ranks 96 KiB 0.63, 256 KiB 0.74, 640 KiB 0.87, 1 MiB 1.1.)
    {.where = channels, .what = reduce_scatter, .use = pairwise, .ranks = {5, 7}, .up_to = kib(768),
     .why = "few ranks: nothing is passed on"},
    {.where = channels, .what = reduce_scatter, .use = ring, .why = "one neighbour"},

    // Bruck has log2 n rounds and sends a part up to log2 n times. (Time relative to pairwise, 6, 8, 16 ranks on 2 cores: 192 B 0.83,
    // 0.71, 0.76, 32 KiB 0.90, 0.64, 0.70; 128 KiB among 16 ranks 1.15; 3 and 5 ranks 1.0.)
    {.where = channels, .what = all_to_all, .use = bruck, .ranks = {6}, .up_to = long_message, .why = "fewest rounds"},
    {.where = channels, .what = all_to_all, .use = pairwise, .why = "each part goes straight to its rank"},
    // Among three ranks a chain has as few rounds as doubling, and consecutive calls overlap. (Time relative to doubling, 8 B to 32 KiB:
    // 0.57 to 0.72. Among 4, 6, 8 ranks 0.61, 0.47, 0.51 for 8 B in a loop of calls, but a single call waits for n - 1 messages.)
    {.where = channels, .what = scans, .use = chain, .ranks = {1, 3}, .why = "as few rounds, and each byte is passed on once"},
    {.where = channels, .what = scans, .use = doubling, .up_to = long_message, .why = "fewest rounds"},
    {.where = channels, .what = scans, .use = chain, .why = "each rank passes each byte on once"},
    {.where = channels, .what = barrier, .use = dissemination, .why = "fewest rounds"},

    // ----------------------------------------------------------------------------------------------------- hosts
    // These algorithms send as few messages and bytes between hosts as they can. An all_to_all sends one message from each
    // host to each other host while that message has at most 128 KiB, then one to each rank while parts are short, then
    // one from each rank to each rank. docs/design/hierarchy.md has the measurements.
    {.where = hosts, .what = all_to_all, .use = leader, .of = measure::between_hosts, .up_to = kib(128),
     .why = "one message from host to host"},
    {.where = hosts, .what = all_to_all, .use = aggregated, .of = measure::part, .up_to = kib(32),
     .why = "one message from host to rank"},
    {.where = hosts, .what = barrier, .use = leader, .most_hosts = 8, .why = "few hosts: leaders exchange directly"},
    {.where = hosts, .what = barrier, .use = hierarchical_trees, .why = "one rank of each host meets the others"},
    {.where = hosts, .what = all_gather, .use = leader, .most_hosts = 8, .up_to = long_among_hosts,
     .why = "few hosts: leaders exchange directly"},
    // A short sum is sent between hosts by one rank of each, not by all of them.
    {.where = hosts, .what = all_reduce, .use = hierarchical_one_rail, .needs = any_order, .up_to = kib(16),
     .why = "one message between hosts, of one rank each"},
    {.where = hosts, .what = all_reduce | reduce | reduce_scatter, .use = hierarchical_trees, .needs = any_order,
     .up_to = long_among_hosts, .why = "trees inside and between hosts: few rounds"},
    {.where = hosts, .what = all_reduce | reduce | reduce_scatter, .use = hierarchical_rings, .needs = any_order,
     .why = "rings inside and between hosts: few bytes cross"},
    {.where = hosts, .what = broadcast | all_gather, .use = hierarchical_trees, .up_to = long_among_hosts,
     .why = "trees inside and between hosts: few rounds"},
    {.where = hosts, .what = broadcast | all_gather, .use = hierarchical_rings,
     .why = "rings inside and between hosts: few bytes cross"},

    // --------------------------------------------------------------------------------------------- links and rails
    // Above this size the rates of the links decide.
    {.where = links, .what = all_reduce, .use = rings, .needs = rings_pay | any_order | private_buffers, .above = few_steps,
     .why = "along the machine's rings, a part on each"},
    {.where = links, .what = all_gather | reduce_scatter, .use = ring, .needs = rings_pay | any_order | private_buffers, .above = few_steps,
     .why = "along the machine's ring"},
    {.where = links, .what = broadcast | reduce, .use = chain, .needs = rings_pay | any_order | private_buffers, .above = few_steps,
     .why = "along the machine's ring"},
    // Each rank's traffic goes through its own card, above the size up to which leaders send it (see hosts).
    {.where = rails, .what = all_to_all, .use = aggregated, .needs = by_rail, .of = measure::between_hosts, .above = kib(128),
     .why = "to each rank by its own card"},

    // ------------------------------------------------------------------------------------------------- own counts
    // Leaders send the parts that are short enough, and the ranks themselves send longer ones: each rank decides for its own
    // parts. Leaders are faster up to 256 KiB from host to host.
    {.where = own_counts, .what = all_to_all, .use = leader, .needs = crowded_hosts, .of = measure::between_hosts, .up_to = kib(256),
     .why = "short parts by leaders, longer ones from rank to rank"},
    {.where = own_counts, .what = all_to_all, .use = pairwise, .why = "each part goes straight to its rank"},
    {.where = own_counts, .what = gather | scatter, .use = linear, .why = "the root takes or gives each part once"},

    // -------------------------------------------------------------------------------------------- devices and teams
    // LL words need no signal, but take twice the bytes of the data, and each rank reads those of all ranks. One-shot needs one signal,
    // two-shot two, and a step for each peer. Measured on one H200 that all ranks share (us, LL / one-shot / two-shot): 2 ranks
    // 512 KiB 7.0 / 7.4 / 12.8, 16 MiB - / 44 / 46; 4 ranks 128 KiB 7.1 / 7.8 / 21, 256 KiB 9.5 / 8.0 / 21, 4 MiB - / 26 / 33; 8 ranks
    // 32 KiB 7.0 / 8.9 / 36, 64 KiB 10 / 8.8 / 36, 2 MiB - / 31 / 45. Ranks with a device each have more lanes for the words, and the
    // links carry n - 1 buffers for one-shot and two for two-shot. So the bounds are those of the model (plan/kernel_costs.hpp, a DGX
    // H100): tests/comm/explain_devices_test.cpp asserts that the choice takes at most 1.25 times the best predicted time. Not measured:
    // devices joined by links.
    {.where = device, .what = all_reduce, .use = one_shot, .ranks = {1, 2}, .up_to = kib(512), .by = protocol::packets,
     .why = "one exchange of LL words"},
    {.where = device, .what = all_reduce, .use = one_shot, .ranks = {3, 4}, .up_to = kib(256), .by = protocol::packets,
     .why = "one exchange of LL words"},
    {.where = device, .what = all_reduce, .use = one_shot, .ranks = {5, 6}, .up_to = kib(128), .by = protocol::packets,
     .why = "one exchange of LL words"},
    {.where = device, .what = all_reduce, .use = one_shot, .up_to = kib(64), .by = protocol::packets,
     .why = "one exchange of LL words"},
    // The ranks of a team may read each other's buffers as soon as the kernel starts. (us by LL words and by reading buffers: 8 ranks 16
    // KiB 6.6 and 6.8, 64 KiB 10 and 7.4; 4 ranks 32 KiB 5.7 and 5.8.)
    {.where = team, .what = all_reduce, .use = one_shot, .up_to = kib(32), .by = protocol::packets,
     .why = "one exchange of LL words"},
    {.where = device, .what = all_reduce, .use = one_shot, .ranks = {1, 2}, .up_to = kib(8192),
     .why = "one signal, and as many bytes as two-shot"},
    {.where = device, .what = all_reduce, .use = one_shot, .ranks = {3, 4}, .up_to = kib(2048), .why = "one signal"},
    {.where = device, .what = all_reduce, .use = one_shot, .ranks = {5, 8}, .up_to = kib(512), .why = "one signal"},
    {.where = device, .what = all_reduce, .use = one_shot, .ranks = {9, 16}, .up_to = kib(256), .why = "one signal (not measured)"},
    // Among 8 ranks two-shot by LL words sends half the bytes of one-shot, and saves the 14 signals and steps with a barrier of two-shot.
    {.where = device, .what = all_reduce, .use = two_shot, .ranks = {5, 6}, .up_to = kib(2048), .by = protocol::packets,
     .why = "two exchanges of LL words (not measured)"},
    {.where = device, .what = all_reduce, .use = two_shot, .ranks = {7, 16}, .up_to = kib(3072), .by = protocol::packets,
     .why = "two exchanges of LL words (not measured)"},
    {.where = device, .what = all_reduce, .use = two_shot, .why = "each rank sums its part and reads the others' sums"},
    // This venue is looked up before `device`. A rank sends (1 + 1/n) of the buffer to a switch, at 0.85 of the links' rate (as NCCL
    // assumes and others measured: collx_sim published), and 2(n - 1)/n of it in two-shot: in time 1.41 and 1.60 for 5 ranks, 1.32 and
    // 1.75 for 8. Fewer ranks gain nothing (with NCCL neither, among 4 H100). Steps and signals as in two-shot. Not measured by collx.
    {.where = switched, .what = all_reduce, .use = multicast_two_shot, .ranks = {5, 16}, .above = kib(3072), .by = protocol::multicast,
     .why = "the switch sums and stores to all (not measured)"},
    {.where = device, .what = rooted_or_parted | scans, .use = one_shot, .why = "one signal a call"},
    {.where = device, .what = all_to_all, .use = direct, .why = "one piece is put while another is taken"},
    // Where each rank knows only its own counts, parts move in one exchange: also in gather, scatter and the v-forms.
    {.where = device, .what = send_recv, .use = pairwise, .why = "each part goes straight to its rank; also gather, scatter, v-forms"},
    {.where = team, .what = all_reduce | reduce_scatter | reduce | gather | scatter | all_to_all | send_recv, .use = zero_copy,
     .why = "every input is read once and every output written once"},
    {.where = team, .what = all_gather | broadcast, .use = multicast, .why = "every output is written once, by its owner"},
    {.where = team, .what = scans, .use = one_shot, .why = "each rank reads what precedes it, in one round"},
    {.where = device | team, .what = barrier, .use = flag, .why = "one flag for each rank, in one round"},
};
// clang-format on
// The number of rows.
inline constexpr int row_count = static_cast<int>(sizeof rows / sizeof rows[0]);

} // namespace choices
COLLX_END_NAMESPACE
