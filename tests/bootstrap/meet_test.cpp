// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the environment to the job's name, with processes: through a directory, through a port, from a launcher.
//
// collx-test: sanitize=address serial
#include <collx/bootstrap/meet.hpp>

#include <map>
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

namespace {

// An alarm far away: each look takes as long as the answer travels.
struct distant_alarm final : store_alarm {
    std::map<std::string, std::string> values;
    void appear(int, int, const deadline&) override {}
    void watch(std::int64_t, name_view) override {}
    void leave() override {}
    kept_text claim(name_view key, name_view value, bool& is_mine) override {
        const auto there = values.try_emplace(std::string(key), std::string(value));
        is_mine = there.second;
        return kept_text(there.first->second);
    }
    bool get_or_bell(name_view key, name_view bell, const deadline&, kept_text& value) override {
        detail::nap_ns(300'000);
        if (has(key, value)) return true;
        if (!bell.empty() && has(bell, value)) return false;
        detail::fail_store_timeout(key);
    }
    bool arrive(name_view, name_view, const deadline&, kept_text&) override { return false; }
    bool is_rung(name_view bell, kept_text& value) override { return has(bell, value); }
    bool has_ended() const override { return true; }
    bool has(name_view key, kept_text& value) const {
        const auto at = values.find(std::string(key));
        if (at != values.end()) value = kept_text(at->second);
        return at != values.end();
    }
};

} // namespace

TEST_CASE("of many ranks the one that does not answer is named, although a look at each takes long") {
    constexpr int n = 2000;
    for (const bool has_come : {false, true}) {
        distant_alarm alarm;
        for (int r = 1; r < n - 1; ++r) {
            alarm.values["collx/turn/" + std::to_string(r)] = "1";
            alarm.values["collx/1/here/" + std::to_string(r)] = "";
        }
        if (has_come) alarm.values["collx/turn/" + std::to_string(n - 1)] = "1";
        start_watch all(&alarm, 0, n, deadline{1});
        all.begin(1, "collx/1/");
        int peer = -2;
        std::string said;
        try {
            all.guard([&] { return all.get("collx/1/sum/1", 1); }); // rank 1 itself waits for those below it
        } catch (const timed_out& e) {
            peer = e.peer();
            said = e.what();
        }
        INFO(said);
        CHECK(peer == n - 1);
        CHECK(said.find(has_come ? "rank 1999 came to the store and says no more" : "1 of 2000 ranks did not come") !=
              std::string::npos);
    }
}

TEST_CASE("a number of ranks that do not answer is said to be the least where there was no time to look at all") {
    distant_alarm alarm;
    start_watch all(&alarm, 0, 5000, deadline{1});
    all.begin(1, "collx/1/");
    int peer = -2;
    std::string said;
    try {
        all.guard([&] { return all.get("collx/1/sum/1", 1); });
    } catch (const timed_out& e) {
        peer = e.peer();
        said = e.what();
    }
    INFO(said);
    CHECK(peer == 1);
    CHECK(said.find("at least ") != std::string::npos);
    CHECK(said.find(" of 5000 ranks did not come to the store: 1") != std::string::npos);
}
