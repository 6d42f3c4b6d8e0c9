// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The PMIx component under Open MPI's mpirun: the program starts itself as ranks, which connect through PMIx's server.
//
// collx-test: needs=pmix serial sanitize=no
#include <collx/bootstrap/meet.hpp>
#include <collx/collx.hpp>
#include <collx/interop/pmix.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

#include "support/patience.hpp"
#include "support/skip.hpp"

using namespace collx;

namespace {

deadline soon(std::int64_t ms = collx_test::patient(30'000)) { return deadline::in_ns(ms * 1'000'000); }

struct output {
    int status = -1;
    std::string text;
};
output mpirun(int ranks, const char* what) {
    char path[4096] = {};
    (void)!::readlink("/proc/self/exe", path, sizeof path - 1);
    const std::string line =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
        "OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm=isolated timeout -k 2 " +
        std::to_string(collx_test::patient_s(30)) + " mpirun.openmpi -n " + std::to_string(ranks) + " '" + path + "' " +
        what + " 2>&1 </dev/null";
    output o;
    std::FILE* pipe = ::popen(line.c_str(), "r");
    if (pipe == nullptr) return o;
    char part[1024];
    while (std::fgets(part, sizeof part, pipe) != nullptr) o.text += part;
    o.status = ::pclose(pipe);
    return o;
}
bool has_mpirun() {
    if (std::system("command -v mpirun.openmpi >/dev/null 2>&1") == 0) return true;
    collx_test::skip("mpirun.openmpi is not installed");
    return false;
}
errc code_of(auto&& f) {
    try {
        f();
    } catch (const error& e) {
        return e.code();
    }
    return errc::forked; // stands for "no error"
}

} // namespace

TEST_CASE("exchange", "[.rank]") {
    STATIC_REQUIRE(CollectiveStore<pmix_store>);
    job_description d = describe_job();
    REQUIRE(d.found_by == std::string("PMIx"));
    REQUIRE(d.store == "pmix:");
    REQUIRE(d.size == 4);
    REQUIRE(d.local_size == 4);
    REQUIRE(d.local_rank == d.rank);
    {
        pmix_store store; // another user of the process's PMIx
        std::string bytes;
        for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
        store.set("of/" + std::to_string(d.rank), bytes + std::to_string(d.rank));
        store.set("empty" + std::to_string(d.rank), "");
        store.barrier("all have set", 4, soon());
        for (int r = 0; r < 4; ++r) {
            CHECK((store.get("of/" + std::to_string(r), soon()) == bytes + std::to_string(r)));
            CHECK(store.get("empty" + std::to_string(r), soon()).empty());
        }
        CHECK(code_of([&] { (void)store.get("never", soon(100)); }) == errc::timeout);
        CHECK(code_of([&] { (void)store.add("n", 1); }) == errc::unsupported);
        CHECK(code_of([&] { store.barrier("b", 3, soon()); }) == errc::invalid_argument);
        CHECK(code_of([&] { store.set("", "v"); }) == errc::invalid_argument);
        store.barrier("before it goes", 4, soon());
    }
    meet(d, soon());
    CHECK(d.job.size() == 32); // random, from the server: a name derived from variables begins with pmix-
    communicator world;
    int x = world.rank() + 1;
    all_reduce(world, value(x));
    CHECK(x == 10);
}

TEST_CASE("late", "[.rank]") {
    pmix_store store;
    if (store.rank == 0) {
        const std::int64_t begin = now_ns();
        CHECK(code_of([&] { store.barrier("no other rank comes", 2, soon(300)); }) == errc::timeout);
        CHECK(now_ns() - begin < collx_test::patient(15'000'000'000));
    } else {
        detail::nap_ns(collx_test::patient(3'000'000'000)); // the other rank has asked by then
    }
}

TEST_CASE("four ranks exchange words and meet through PMIx") {
    if (!has_mpirun()) return;
    const output o = mpirun(4, "exchange");
    INFO(o.text);
    CHECK(o.status == 0);
    std::size_t passed = 0;
    for (auto at = o.text.find("All tests passed"); at != std::string::npos;
         at = o.text.find("All tests passed", at + 1))
        ++passed;
    CHECK(passed == 4);
}

TEST_CASE("a rank that does not come costs the deadline") {
    if (!has_mpirun()) return;
    const output o = mpirun(2, "late");
    INFO(o.text);
    CHECK(o.status == 0);
}

TEST_CASE("without a PMIx server the error says so, and other ways to start are as before") {
    for (const char* name : {"PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI2", "PMIX_SERVER_URI3", "PMIX_SERVER_URI4",
                             "PMIX_SERVER_URI41", "PMIX_SERVER_URI21"})
        ::unsetenv(name);
    CHECK(code_of([] { pmix_store store; }) == errc::environment);
    const char* alone[] = {nullptr};
    CHECK(describe_job(environment(alone)).found_by == std::string("alone"));
    const char* foreign[] = {"PMIX_NAMESPACE=x", "PMIX_RANK=0", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2",
                             nullptr};
    CHECK(code_of([&] { (void)describe_job(environment(foreign)); }) == errc::environment);
}
