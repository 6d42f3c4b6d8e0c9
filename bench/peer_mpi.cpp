// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-bench: needs=mpi
//
// The operations of `collx_perf --ops` through MPI: the same buffers, patterns, checks, samples and CSV columns, from
// the same headers (tools/perf/), so that only the library differs. Any MPI-3 will do; its launcher starts the ranks
// and says where they run. Uses nothing of collx but its tools.

// The C++ bindings of old are not wanted.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "perf/csv.hpp"
#include "perf/harness.hpp"
#include "perf/operation.hpp"
#include "perf/pattern.hpp"
#include "perf/sampling.hpp"
#include "support/format.hpp"

namespace {

using namespace collx::tools;
using namespace collx::tools::perf;

constexpr int exit_usage = 2, exit_wrong = 3;

struct settings {
    std::vector<operation> operations;
    std::vector<std::size_t> sizes_bytes{8, 4096, std::size_t{1} << 20};
    sampling_rules rules;
    std::string transport = "shm", peer = "mpi", variant = "default";
    bool out_of_place = true, in_place = false, check = true, header = true;
};

void add_operations(settings& s, const std::string& words) {
    for (const auto& word : split_list(words)) {
        if (word == "all") {
            for (int k = 0; k < compared_operations; ++k) s.operations.push_back(operation(k));
            continue;
        }
        const auto op = parse_operation(word);
        if (!op || static_cast<int>(*op) >= compared_operations)
            throw std::invalid_argument("'" + word + "' is not an operation that peers are compared in.");
        s.operations.push_back(*op);
    }
}

settings read_settings(int argc, char** argv) {
    settings s;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--no-header") {
            s.header = false;
            continue;
        }
        if (++i == argc) throw std::invalid_argument("'" + word + "' is unknown or lacks its value.");
        const std::string value = argv[i];
        if (word == "--ops") add_operations(s, value);
        else if (word == "--sizes") {
            s.sizes_bytes.clear();
            for (const auto& size : split_list(value)) s.sizes_bytes.push_back(parse_size(size));
        } else if (word == "--place") {
            s.out_of_place = value != "in";
            s.in_place = value != "out";
        } else if (word == "--transport") s.transport = value;
        else if (word == "--peer") s.peer = value;
        else if (word == "--variant") s.variant = value;
        else if (word == "--check") s.check = value != "0";
        else if (word == "--budget-ms") s.rules.budget_ms = std::stod(value);
        else if (word == "--sample-us") s.rules.sample_us = std::stod(value);
        else if (word == "--min-samples") s.rules.min_samples = std::stoi(value);
        else if (word == "--max-samples") s.rules.max_samples = std::min(std::stoi(value), harness::sample_limit);
        else throw std::invalid_argument("'" + word + "' is no option of peer_mpi; see bench/README.md.");
    }
    if (s.operations.empty()) throw std::invalid_argument("Name operations with --ops, for example --ops allreduce.");
    return s;
}

std::byte* zeroed_pages(std::size_t bytes) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        throw std::runtime_error("There is not enough memory for " + std::to_string(bytes) + " bytes.");
    return static_cast<std::byte*>(std::memset(p, 0, bytes));
}

// The ranks meet in memory of their own, not through MPI: waiting there is part of no measurement.
void* meeting_memory(MPI_Comm world, int rank, int ranks) {
    char name[64] = {};
    if (rank == 0)
        std::snprintf(name, sizeof name, "/collx-bench-%d-%llx", static_cast<int>(::getpid()),
                      static_cast<unsigned long long>(collx::now_ns()));
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, world);
    int fd = -1;
    if (rank == 0) fd = ::shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    int good = rank != 0 || (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(harness::bytes(ranks))) == 0);
    MPI_Bcast(&good, 1, MPI_INT, 0, world);
    if (good && rank != 0) fd = ::shm_open(name, O_RDWR, 0600);
    void* p = good && fd >= 0
                  ? ::mmap(nullptr, harness::bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0)
                  : MAP_FAILED;
    if (fd >= 0) ::close(fd);
    int mapped = p != MAP_FAILED, all = 0;
    MPI_Allreduce(&mapped, &all, 1, MPI_INT, MPI_MIN, world);
    if (rank == 0) ::shm_unlink(name);
    if (!all) throw std::runtime_error("The ranks share no memory: peer_mpi measures ranks of one host.");
    return p;
}

class peer {
public:
    peer(const settings& s, int rank, int ranks)
        : s_(s), rank_(rank), ranks_(ranks), meeting_(meeting_memory(MPI_COMM_WORLD, rank, ranks), rank, ranks,
                                                      static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))) {
        MPI_Comm_dup(MPI_COMM_WORLD, &world_);
        MPI_Comm_dup(MPI_COMM_WORLD, &idle_);
        top_bytes_ = largest_rounded(s.operations, s.sizes_bytes, sizeof(float), ranks);
        send_ = reinterpret_cast<float*>(zeroed_pages(top_bytes_ + 8192));
        recv_ = reinterpret_cast<float*>(zeroed_pages(2 * top_bytes_ + 8192)); // alltoallv may bring more than it sends
    }
    ~peer() {
        MPI_Comm_free(&idle_);
        MPI_Comm_free(&world_);
    }

    int run() {
        if (rank_ == 0 && s_.header) std::fputs(csv_header().c_str(), stdout);
        for (operation op : s_.operations)
            for (const std::size_t bytes : rounded_sizes(op, s_.sizes_bytes, sizeof(float), ranks_)) {
                if (s_.out_of_place) measure(op, bytes, false);
                if (s_.in_place && has_in_place(op)) measure(op, bytes, true);
            }
        return meeting_.wrong().load() == 0 ? 0 : exit_wrong;
    }

private:
    void wait() {
        // MPI moves unfinished sends on only inside MPI.
        meeting_.barrier(
            [this] {
                int found = 0;
                MPI_Iprobe(MPI_ANY_SOURCE, 0, idle_, &found, MPI_STATUS_IGNORE);
            },
            100'000);
    }

    void measure(operation op, std::size_t bytes, bool in_place) {
        op_ = op;
        in_place_ = in_place;
        whole_ = bytes / sizeof(float);
        count_ = static_cast<int>(count_of(op, bytes, sizeof(float), ranks_));
        if (op == operation::all_to_all_v) lay_out_unevenly();
        if (s_.check && op != operation::barrier) check();
        std::memset(send_, 0, bytes);
        std::memset(recv_, 0, 2 * bytes);
        sampler samples(meeting_, s_.rules, [this] { wait(); });
        const timing t = samples.measure(
            [this](int calls) {
                for (int i = 0, root = 0; i < calls; ++i) {
                    call(root);
                    if (++root == ranks_) root = 0;
                }
            },
            op == operation::pingpong ? 0.5 : 1);
        if (rank_ != 0) return;
        std::fputs(csv_text({.op = op,
                             .bytes = bytes,
                             .ranks = ranks_,
                             .transport = s_.transport,
                             .peer = s_.peer,
                             .variant = s_.variant,
                             .in_place = in_place,
                             .t = t})
                       .c_str(),
                   stdout);
        std::fflush(stdout);
    }

    void lay_out_unevenly() {
        const auto counts = uneven_counts_of(whole_, rank_, ranks_);
        const auto fill = [](const std::vector<std::size_t>& from, std::vector<int>& count, std::vector<int>& at) {
            count.assign(from.begin(), from.end());
            at.assign(from.size(), 0);
            for (std::size_t k = 1; k < from.size(); ++k) at[k] = at[k - 1] + count[k - 1];
        };
        fill(counts.send, send_counts_, send_at_);
        fill(counts.receive, recv_counts_, recv_at_);
    }

    // Where the result lies: collx_perf uses its buffers in the same way.
    [[nodiscard]] float* result() const {
        return op_ == operation::broadcast || (in_place_ && op_ != operation::all_gather) ? send_ : recv_;
    }

    void call(int root) {
        const int right = (rank_ + 1) % ranks_, left = (rank_ + ranks_ - 1) % ranks_;
        const void* from = in_place_ ? MPI_IN_PLACE : static_cast<const void*>(send_);
        float* to = result();
        switch (op_) {
            case operation::all_reduce: MPI_Allreduce(from, to, count_, MPI_FLOAT, MPI_SUM, world_); break;
            case operation::reduce_scatter:
                MPI_Reduce_scatter_block(from, to, count_, MPI_FLOAT, MPI_SUM, world_);
                break;
            case operation::all_gather: MPI_Allgather(from, count_, MPI_FLOAT, to, count_, MPI_FLOAT, world_); break;
            case operation::broadcast: MPI_Bcast(to, count_, MPI_FLOAT, root, world_); break;
            case operation::reduce: MPI_Reduce(from, to, count_, MPI_FLOAT, MPI_SUM, root, world_); break;
            case operation::all_to_all: MPI_Alltoall(from, count_, MPI_FLOAT, to, count_, MPI_FLOAT, world_); break;
            case operation::all_to_all_v:
                MPI_Alltoallv(from, send_counts_.data(), send_at_.data(), MPI_FLOAT, to, recv_counts_.data(),
                              recv_at_.data(), MPI_FLOAT, world_);
                break;
            case operation::barrier: MPI_Barrier(world_); break;
            case operation::pingpong:
                if (rank_ == 0) MPI_Send(send_, count_, MPI_FLOAT, 1, 0, world_);
                if (rank_ < 2) MPI_Recv(recv_, count_, MPI_FLOAT, 1 - rank_, 0, world_, MPI_STATUS_IGNORE);
                if (rank_ == 1) MPI_Send(send_, count_, MPI_FLOAT, 0, 0, world_);
                break;
            default:
                MPI_Sendrecv(send_, count_, MPI_FLOAT, right, 0, recv_, count_, MPI_FLOAT, left, 0, world_,
                             MPI_STATUS_IGNORE);
        }
    }

    void check() {
        const int root = ranks_ - 1;
        const pattern<float> data(pattern_kind::exact, reduction::sum, ranks_);
        float* out = result();
        if (out != send_) std::memset(out, 0xA5, 2 * whole_ * sizeof(float));
        if (op_ == operation::all_gather) {
            const auto part = static_cast<std::size_t>(count_);
            data.fill(in_place_ ? recv_ + static_cast<std::size_t>(rank_) * part : send_, part, rank_);
        } else if (op_ == operation::broadcast && rank_ != root) std::memset(send_, 0xA5, whole_ * sizeof(float));
        else data.fill(send_, whole_, rank_);
        wait();
        call(root);
        auto parts = expected_parts(op_, whole_, rank_, ranks_, root, in_place_);
        // MPI leaves the block of a reduce-scatter in place at the front, collx where the rank's part lies.
        if (op_ == operation::reduce_scatter) parts.front().at = 0;
        std::uint64_t wrong = 0;
        for (const auto& part : parts) wrong += data.count_wrong(out, part);
        if (wrong != 0) {
            meeting_.wrong().fetch_add(wrong);
            std::fprintf(stderr, "peer_mpi: rank %d: WRONG RESULT: %s of %zu bytes%s: %llu elements\n", rank_,
                         long_name(op_), whole_ * sizeof(float), in_place_ ? " in place" : "",
                         static_cast<unsigned long long>(wrong));
        }
        wait();
    }

    settings s_;
    int rank_, ranks_;
    harness meeting_;
    MPI_Comm world_ = MPI_COMM_NULL, idle_ = MPI_COMM_NULL;
    float *send_ = nullptr, *recv_ = nullptr;
    std::size_t top_bytes_ = 0;

    // The point being measured.
    operation op_ = operation::barrier;
    bool in_place_ = false;
    std::size_t whole_ = 0;
    int count_ = 0;
    std::vector<int> send_counts_, send_at_, recv_counts_, recv_at_;
};

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 1, code = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    try {
        const settings s = read_settings(argc, argv);
        peer p(s, rank, ranks);
        code = p.run();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "peer_mpi: rank %d: %s\n", rank, e.what());
        MPI_Abort(MPI_COMM_WORLD, exit_usage);
    }
    MPI_Finalize();
    return code;
}
