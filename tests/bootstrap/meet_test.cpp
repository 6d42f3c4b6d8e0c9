// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the environment to the job's name, with processes: through a directory, through a port, from a launcher.
//
// collx-test: sanitize=address serial
#include <collx/bootstrap/meet.hpp>

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "bootstrap/store_support.hpp"
#include "support/processes.hpp"

using namespace collx;
using namespace collx_test;

namespace {

job_description describe(int rank, int size, const std::string& more) {
    const std::string r = "COLLX_RANK=" + std::to_string(rank), s = "COLLX_SIZE=" + std::to_string(size);
    const char* entries[] = {r.c_str(), s.c_str(), more.c_str(), nullptr};
    return describe_job(environment(entries));
}
deadline soon(std::int64_t ms = collx_test::patient(30'000)) { return deadline::in_ns(ms * 1'000'000); }

kept_text agree_on_job(job_description d, const deadline& until) {
    meet(d, until);
    return d.job;
}

// A port that was free a moment ago.
int some_port() { return tcp_server().port(); }

// All ranks as processes agree on a name three times; a file store of the test compares the names.
void meet(int ranks, const std::string& store) {
    scratch_directory results;
    processes p;
    for (int r = 0; r < ranks; ++r)
        p.start(r, [&] {
            file_store out(results.path + "/out");
            std::string names;
            for (int i = 0; i < 3; ++i) names += agree_on_job(describe(r, ranks, store), soon()) + " ";
            out.set(std::to_string(r), names);
            return 0;
        });
    p.wait();
    for (int r = 0; r < ranks; ++r) {
        INFO("rank " << r << " of " << ranks << ", " << store << ": " << p[r].what);
        REQUIRE(p[r].is_ok());
    }
    file_store out(results.path + "/out");
    const std::string first = out.get("0", soon());
    CHECK(first.size() == 3 * 33);
    CHECK(first.substr(0, 33) != first.substr(33, 33));
    for (int r = 1; r < ranks; ++r) CHECK(out.get(std::to_string(r), soon()) == first);
}

} // namespace

TEST_CASE("processes meet in a directory") {
    for (const int ranks : {2, 4}) {
        scratch_directory d;
        meet(ranks, "COLLX_STORE=file:" + d.path + "/store");
    }
}

TEST_CASE("processes meet at a port") {
    for (const int ranks : {2, 4}) meet(ranks, "COLLX_STORE=tcp:127.0.0.1:" + std::to_string(some_port()));
    meet(2, "COLLX_STORE=tcp:localhost:" + std::to_string(some_port())); // by host name
}

TEST_CASE("a name given by a launcher is the name, and who is alone needs none") {
    CHECK(agree_on_job(describe(1, 3, "COLLX_JOB=abc"), soon()) == "abc");
    CHECK(agree_on_job(describe(0, 1, "COLLX_STORE=file:/no/such/directory"), soon()).empty());
    CHECK(agree_on_job(job_description{}, soon()).empty());
    job_description nothing;
    nothing.size = 2;
    CHECK_THROWS_AS(agree_on_job(nothing, soon()), error);
}

TEST_CASE("ranks that do not come to the store are named") {
    scratch_directory d;
    const std::string stores[] = {"COLLX_STORE=file:" + d.path + "/store",
                                  "COLLX_STORE=tcp:127.0.0.1:" + std::to_string(some_port())};
    const std::int64_t limit_ms = collx_test::heard_within(std::chrono::milliseconds(3000)).count();
    processes both[2]; // at the same time: they mostly wait
    for (int i = 0; i < 2; ++i)
        for (const int r : {0, 2})
            both[i].start(r, [&] {
                (void)agree_on_job(describe(r, 4, stores[i]),
                                   soon(r == 0 ? limit_ms : collx_test::patient(std::int64_t{30'000})));
                return 0;
            });
    for (processes& one : both) {
        one.wait();
        for (const int r : {0, 2}) {
            INFO(one[r].what);
            CHECK(one[r].code == errc::timeout);
            CHECK(one[r].says("2 of 4 ranks did not come to the store: 1, 3"));
            CHECK(one[r].took_ns > 250'000'000);
            CHECK(one[r].took_ns < collx_test::patient(15'000'000'000));
        }
    }
    processes p;
    p.start(1, [&] {
        (void)agree_on_job(describe(1, 2, "COLLX_STORE=tcp:127.0.0.1:" + std::to_string(some_port())), soon(200));
        return 0;
    });
    p.wait();
    CHECK(p[1].code == errc::timeout);
    CHECK(p[1].peer == 0);
}
