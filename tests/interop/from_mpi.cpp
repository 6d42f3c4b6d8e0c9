// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank of an MPI program that makes collx communicators from MPI's, before and after collx's own start-up. ctest
// starts four ranks with each installed MPI: from_mpi (collx_first|mpi_first|hosts) RANKS, and one without a launcher:
// from_mpi single 1.
#define OMPI_SKIP_MPICXX // the C++ bindings that Open MPI still ships
#define MPICH_SKIP_MPICXX
#include <collx/collx.hpp>
#include <collx/interop/mpi.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

int failures = 0;
void expect(bool holds, const char* what, int line) {
    if (holds) return;
    std::fprintf(stderr, "from_mpi.cpp:%d: %s\n", line, what);
    ++failures;
}
#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__, __LINE__)

template <class F>
std::string refusal(collx::errc code, F&& f) {
    try {
        f();
    } catch (const collx::error& e) {
        return e.code() == code ? e.what() : std::string("wrong code: ") + e.what();
    }
    return "";
}
int sum_of_ranks(collx::communicator& c) {
    int x = c.rank() + 1;
    collx::all_reduce(c, collx::value(x));
    return x;
}

void check(int ranks, bool is_first, int argc, char** argv) {
    const std::string early = refusal(collx::errc::environment, [] { (void)collx::from_mpi(MPI_COMM_WORLD); });
    EXPECT(early.find("MPI is not running (call from_mpi between MPI_Init and MPI_Finalize)") != std::string::npos);
    const int sum = ranks * (ranks + 1) / 2;
    if (is_first) {
        collx::communicator world;
        EXPECT(sum_of_ranks(world) == sum);
    }
    MPI_Init(&argc, &argv);
    int rank = -1, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    EXPECT(size == ranks);
    {
        // [doc:from_mpi]
        auto c = collx::from_mpi(MPI_COMM_WORLD);
        // [doc:end]
        EXPECT(c.rank() == rank && c.size() == ranks);
        EXPECT(sum_of_ranks(c) == sum);

        // Half of the ranks, in reverse order.
        MPI_Comm half;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
        int half_rank = -1;
        MPI_Comm_rank(half, &half_rank);
        auto h = collx::from_mpi(half, std::chrono::seconds(20));
        MPI_Comm_free(&half); // not needed any more
        EXPECT(h.rank() == half_rank && h.size() == ranks / 2);
        int first = rank;
        collx::broadcast(h, collx::value(first));
        EXPECT(first == ranks - 2 + rank % 2);

        auto apart = collx::from_mpi(MPI_COMM_WORLD, std::chrono::seconds(20), collx::per_peer{collx::sockets{}});
        EXPECT(sum_of_ranks(apart) == sum && !apart.internals().net.is_one_host());

        const auto limit_of = [](collx::communicator& x) { return x.internals().settings.timeout_ns; };
        EXPECT(limit_of(c) == 60'000'000'000 && limit_of(h) == 20'000'000'000);
        EXPECT(limit_of(apart) == 20'000'000'000);
        for (const char* name : {"COLLX_TIMEOUT", "COLLX_CHECKED", "COLLX_RECORD"}) ::setenv(name, "1", 1);
        auto settled = collx::from_mpi(MPI_COMM_WORLD);
        EXPECT(limit_of(settled) == 1'000'000'000 && settled.internals().settings.checked == 1);
        EXPECT(sum_of_ranks(settled) == sum && settled.recent_calls().size() == 1);
        for (const char* name : {"COLLX_TIMEOUT", "COLLX_CHECKED", "COLLX_RECORD"}) ::unsetenv(name);

        MPI_Comm part, between;
        MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, rank, &part);
        MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 7, &between);
        const std::string two_groups = refusal(collx::errc::invalid_argument, [&] { (void)collx::from_mpi(between); });
        EXPECT(two_groups.find("MPI_Intercomm_merge") != std::string::npos);
        MPI_Comm_free(&between);
        MPI_Comm_free(&part);

        auto self = collx::from_mpi(MPI_COMM_SELF);
        EXPECT(self.size() == 1 && sum_of_ranks(self) == 1);
        EXPECT(!refusal(collx::errc::invalid_argument, [] { (void)collx::from_mpi(MPI_COMM_NULL); }).empty());
    }
    collx::communicator world; // made through the launcher, besides MPI
    EXPECT(world.rank() == rank && sum_of_ranks(world) == sum);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    EXPECT(sum_of_ranks(world) == sum); // does not need MPI any more
    EXPECT(!refusal(collx::errc::environment, [] { (void)collx::from_mpi(MPI_COMM_WORLD); }).empty());
}

// Two ranks per host, 2k and 2k + 1: addresses go through MPI, everything else over sockets.
void check_hosts(int ranks, int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ::setenv("COLLX_HOST_ID", ("host" + std::to_string(rank / 2)).c_str(), 1);
    const auto far = [](collx::communicator& c) { return !c.internals().net.is_one_host(); };
    {
        auto c = collx::from_mpi(MPI_COMM_WORLD);
        EXPECT(c.rank() == rank && c.size() == ranks && far(c));
        EXPECT(sum_of_ranks(c) == ranks * (ranks + 1) / 2);
        auto here = c.split(rank / 2);
        EXPECT(!far(here) && sum_of_ranks(here) == 3);
        MPI_Comm half; // one rank of each host
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
        auto h = collx::from_mpi(half, std::chrono::seconds(20));
        MPI_Comm_free(&half);
        EXPECT(far(h) && sum_of_ranks(h) == 3);
    }
    // If ranks would act differently, all of them get an error.
    const collx::transports near_only = collx::per_peer{collx::shm{}};
    std::string text = refusal(collx::errc::mismatch, [&] {
        (void)collx::from_mpi(MPI_COMM_WORLD, {}, rank == 1 ? near_only : collx::transports());
    });
    EXPECT(text.find("MPI ranks 0 and 1 have other settings, keys or transports") != std::string::npos);
    text = refusal(collx::errc::unsupported, [&] { (void)collx::from_mpi(MPI_COMM_WORLD, {}, near_only); });
    EXPECT(text.find("this program's per_peer has no transport that goes there") != std::string::npos);
    if (rank == 1) ::setenv("COLLX_TOPOLOGY", "/none", 1);
    text = refusal(collx::errc::mismatch, [] { (void)collx::from_mpi(MPI_COMM_WORLD); });
    EXPECT(text.find("MPI ranks 0 and 1 have other settings, keys or transports") != std::string::npos);
    ::unsetenv("COLLX_TOPOLOGY");
    if (rank == 1) ::setenv("COLLX_ADDRESS", "192.0.2.7", 1);
    text = refusal(rank == 1 ? collx::errc::environment : collx::errc::peer_failed,
                   [] { (void)collx::from_mpi(MPI_COMM_WORLD); });
    EXPECT(text.find(rank == 1 ? "COLLX_INSECURE=1" : "MPI rank 1 refuses its variables or arguments") !=
           std::string::npos);
    if (rank == 1) ::setenv("COLLX_INSECURE", "1", 1);
    text = refusal(rank == 1 ? collx::errc::environment : collx::errc::peer_failed,
                   [] { (void)collx::from_mpi(MPI_COMM_WORLD); });
    EXPECT(text.find(rank == 1 ? "cannot listen on this rank's address" : "MPI rank 1 cannot talk to other hosts") !=
           std::string::npos);
    MPI_Finalize();
}

// Another launcher has started two ranks, and MPI sees one process.
void check_single(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    auto alone = collx::from_mpi(MPI_COMM_WORLD);
    EXPECT(alone.size() == 1);
    ::setenv("COLLX_JOB", "single", 1);
    ::setenv("COLLX_RANK", "1", 1);
    ::setenv("COLLX_SIZE", "2", 1);
    for (MPI_Comm c : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
        const std::string text = refusal(collx::errc::environment, [&] { (void)collx::from_mpi(c); });
        EXPECT(text.find("MPI_COMM_WORLD is this process alone, and this is rank 1 of 2 ranks") != std::string::npos);
    }
    MPI_Finalize();
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    try {
        if (std::strcmp(argv[1], "hosts") == 0) check_hosts(std::atoi(argv[2]), argc, argv);
        else if (std::strcmp(argv[1], "single") == 0) check_single(argc, argv);
        else check(std::atoi(argv[2]), std::strcmp(argv[1], "collx_first") == 0, argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "from_mpi: %s\n", e.what());
        return 1;
    }
    return failures == 0 ? 0 : 1;
}
