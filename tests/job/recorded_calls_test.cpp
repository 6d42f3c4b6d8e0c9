// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 serial sanitize=no
//
// The files of flight recorders: read after a rank was killed, compared, refused if a file is not one.
#include "comm/support.hpp"
#include "faults/support.hpp"

#include <collx/comm/window.hpp>
#include <collx/job/recorded_calls.hpp>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

using namespace collx_test;
using Catch::Contains;
using collx::call_outcome;
using collx::call_record;
using collx::recorded_calls;

namespace {

struct folder {
    std::string path = (std::filesystem::temp_directory_path() / "collx_records_XXXXXX").string();
    folder() {
        if (::mkdtemp(path.data()) == nullptr) std::abort();
    }
    ~folder() { std::filesystem::remove_all(path); }
};

std::string content(const std::filesystem::path& p) {
    std::ifstream file(p, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}
std::vector<recorded_calls> read_all(const std::string& directory) {
    std::vector<recorded_calls> all;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        const std::string bytes = content(entry.path());
        all.push_back(collx::read_recorded_calls(bytes.data(), bytes.size()));
    }
    return all;
}
bool is_refused(const std::string& bytes, const char* why) {
    try {
        (void)collx::read_recorded_calls(bytes.data(), bytes.size());
    } catch (const collx::error& e) {
        return e.code() == collx::errc::protocol && std::string(e.what()).find(why) != std::string::npos;
    }
    return false;
}
void put(std::string& bytes, std::size_t at, std::int32_t value) { std::memcpy(&bytes[at], &value, sizeof value); }
// The file of a rank that has kept the last four of six calls.
std::string some_bytes() {
    const folder here;
    collx::run_threads(1, [&](collx::communicator& w) {
        w.record_calls(4, here.path.c_str());
        for (int i = 0; i < 6; ++i) collx::barrier(w);
    });
    return content(std::filesystem::directory_iterator(here.path)->path());
}
std::vector<call_record> calls_in(const std::string& bytes) {
    return collx::read_recorded_calls(bytes.data(), bytes.size()).calls;
}
// Records of a rank whose call k begins at k us and, unless it is under way, ends half of one later.
recorded_calls made_up(int rank, int size, const std::vector<call_outcome>& outcomes) {
    recorded_calls r{};
    r.head.rank = rank;
    r.head.size = size;
    r.head.monotonic_ns = 1000;
    for (const call_outcome outcome : outcomes) {
        call_record c;
        c.ordinal = c.number = c.collective = r.calls.size() + 1;
        c.begin_ns = static_cast<std::int64_t>(c.ordinal) * 1000;
        c.end_ns = outcome == call_outcome::under_way ? 0 : c.begin_ns + 500;
        c.outcome = outcome;
        std::strcpy(c.verb, "barrier");
        r.calls.push_back(c);
    }
    return r;
}

} // namespace

TEST_CASE("the record of a killed rank says which call it had come to, those of the others that they wait for it") {
    const folder here;
    const std::string name = new_job();
    processes all;
    for (int r = 0; r < 3; ++r)
        all.start(r, [&, r] {
            collx::communicator w(join(name, r, 3));
            w.record_calls(16, here.path.c_str());
            std::vector<double> x(512, 1.0);
            for (int i = 0; i < 5; ++i) collx::all_reduce(w, x);
            if (r == 2) ::raise(SIGKILL);
            collx::broadcast(w, x);
            collx::barrier(w);
            return 0;
        });
    all.wait();
    CHECK(all[2].exit_code == 128 + SIGKILL);
    const auto found = read_all(here.path);
    REQUIRE(found.size() == 3);
    for (const recorded_calls& r : found) {
        const collx::call_record* const c = collx::place_of(r);
        REQUIRE(c != nullptr);
        if (r.head.rank == 2) {
            CHECK(c->outcome == call_outcome::done);
            CHECK(std::string(c->verb) == "all_reduce");
            CHECK(c->bytes == 4096);
            CHECK(r.calls.size() == 5);
        } else {
            CHECK(c->outcome == call_outcome::failed);
            CHECK(c->code == collx::errc::peer_failed);
            CHECK(c->collective > 5);
        }
    }
    const std::string text = collx::compare_places(found);
    CHECK_THAT(text, Contains("communicator 1, 3 ranks:\n  rank 2: ended collective 5 (all_reduce, 4096 bytes)\n"));
    CHECK_THAT(text, Contains("failed in collective 7 (barrier)") && Contains("waits for 2"));
}

TEST_CASE("a rank that does not come is seen while the others wait for it") {
    const folder here;
    collx::run_threads(2, [&](collx::communicator& w) {
        w.record_calls(16, here.path.c_str());
        collx::barrier(w);
        if (w.rank() == 0) return collx::barrier(w);
        const std::int64_t until = collx::now_ns() + patient(std::int64_t{30'000} * ms);
        std::string text;
        while (text.find("in collective 2 (barrier); 0 waits for 1") == std::string::npos && collx::now_ns() < until) {
            text = collx::compare_places(read_all(here.path));
            ::usleep(1000);
        }
        collx::barrier(w);
        if (text != "communicator 1, 2 ranks:\n  rank 1: ended collective 1 (barrier)\n"
                    "  rank 0: in collective 2 (barrier); 0 waits for 1\n")
            throw std::runtime_error(text);
    });
}

TEST_CASE("communicators that collx makes for itself have no record") {
    const folder here;
    auto jobs = collx::detail::thread_jobs(2);
    std::vector<std::thread> ranks;
    for (auto& j : jobs)
        ranks.emplace_back([&here, j] {
            j->settings.record = 8;
            j->settings.record_directory = here.path.c_str();
            collx::communicator w(j);
            collx::window<int> x(w, 4); // exchanges over a communicator of its own
            x.fence();
            auto half = w.dup();
            collx::barrier(half);
        });
    for (auto& r : ranks) r.join();
    CHECK(read_all(here.path).size() == 4); // of each rank: the first communicator's and the copy's
}

TEST_CASE("records that are begun anew take the place of the file") {
    const folder here;
    on_ranks(2, [&](collx::communicator& w) {
        w.record_calls(4, here.path.c_str());
        collx::barrier(w);
        w.record_calls(4, here.path.c_str());
        collx::barrier(w);
        EXPECT(w.recent_calls().size() == 1);
    });
    const auto found = read_all(here.path);
    CHECK(found.size() == 2); // one of each rank
    for (const recorded_calls& r : found) CHECK(r.calls.size() == 1);
}

TEST_CASE("what is no file of records is refused") {
    const std::string bytes = some_bytes();
    REQUIRE(bytes.size() == 128 + 4 * 120);
    REQUIRE(calls_in(bytes).size() == 4);
    CHECK(calls_in(bytes)[0].ordinal == 3);
    CHECK(is_refused("", "too short"));
    CHECK(is_refused(bytes.substr(0, 127), "too short"));
    CHECK(is_refused("x" + bytes, "begins otherwise"));
    CHECK(is_refused(bytes.substr(0, bytes.size() - 1), "shorter than it says"));
    for (const auto& [at, value, why] :
         {std::tuple(8, 2, "another version"), std::tuple(12, 64, "another version"), std::tuple(56, 1, "rank is none"),
          std::tuple(56, -1, "rank is none"), std::tuple(60, 0, "rank is none"),
          std::tuple(60, 1 << 21, "rank is none"), std::tuple(36, -1, "clocks are none"),
          std::tuple(36, 1 << 30, "clocks are none"), std::tuple(44, -1, "clocks are none"),
          std::tuple(44, 1 << 30, "clocks are none"), std::tuple(68, 0, "shorter than it says"),
          std::tuple(68, -1, "shorter than it says")}) {
        std::string bad = bytes;
        put(bad, static_cast<std::size_t>(at), value);
        CAPTURE(at, value);
        CHECK(is_refused(bad, why));
    }
}

TEST_CASE("records that make no sense are left out, and texts in them are made fit to print") {
    const std::string bytes = some_bytes();
    REQUIRE(calls_in(bytes).size() == 4);
    for (const std::size_t at : {offsetof(call_record, ordinal), offsetof(call_record, kind),
                                 offsetof(call_record, outcome), offsetof(call_record, code)}) {
        std::string torn = bytes;
        torn[128 + at] = 99;
        CAPTURE(at);
        CHECK(calls_in(torn).size() == 3);
    }
    std::string long_word = bytes;
    for (std::size_t i = 48; i < 96; ++i) long_word[128 + i] = 'a'; // texts without an end
    CHECK(std::strlen(calls_in(long_word)[2].verb) == 23);
    std::string commands = bytes; // control sequences for a terminal
    commands.replace(128 + 48, 7, "\x1b[2J\x07\xff\x7f");
    commands.replace(128 + 72, 4, std::string("\n\r\t\0", 4));
    CHECK(calls_in(commands)[2].verb == std::string("?[2J???"));
    CHECK(calls_in(commands)[2].algorithm == std::string("???"));
}

TEST_CASE("a rank is in the last of its calls that have not ended, and ranks without records are named") {
    using enum call_outcome;
    const auto place = [](const std::vector<call_outcome>& outcomes) {
        const recorded_calls r = made_up(0, 1, outcomes);
        const call_record* const c = collx::place_of(r);
        return c == nullptr ? 0 : c->ordinal;
    };
    CHECK(place({}) == 0);
    CHECK(place({done, done}) == 2);
    CHECK(place({done, under_way, done}) == 2);
    CHECK(place({done, under_way, under_way}) == 3);
    CHECK(place({done, failed}) == 2);
    CHECK(place({failed, done, done}) == 3); // the rank went on, for example after a time limit
    CHECK(place({under_way, failed}) == 1);
    const std::string text = collx::compare_places({made_up(0, 3, {done}), made_up(1, 3, {under_way})});
    CHECK(text == "communicator 1, 3 ranks:\n  rank 2: no records\n  rank 0: ended collective 1 (barrier)\n"
                  "  rank 1: in collective 1 (barrier)\n");
    const std::string later =
        collx::compare_places({made_up(0, 2, {failed, done}), made_up(1, 2, {failed, under_way})});
    CHECK(later == "communicator 1, 2 ranks:\n  rank 0: ended collective 2 (barrier)\n"
                   "  rank 1: in collective 2 (barrier)\n");
}

TEST_CASE("a call under way lasts in the trace until the last time that is known") {
    using enum call_outcome;
    const std::string trace = collx::to_chrome_trace({made_up(0, 2, {under_way}), made_up(1, 2, {done, done})});
    CHECK(trace.find("\"dur\":-") == std::string::npos);
    CHECK_THAT(trace, Contains("\"tid\":0,\"ts\":0.000000,\"dur\":1.500000"));
    CHECK_THAT(trace, Contains("\"outcome\":\"under way\""));
}

TEST_CASE("the ranks of a host share a line of time; those of another are moved by their wall clocks") {
    const auto calls = [](int rank, std::uint64_t host, std::int64_t mono, std::int64_t real, std::int64_t begin) {
        recorded_calls r{};
        r.head.rank = rank;
        r.head.size = 3;
        r.head.host = host;
        r.head.monotonic_ns = mono;
        r.head.real_ns = real;
        collx::call_record c;
        c.ordinal = c.number = c.collective = 1;
        c.begin_ns = begin;
        c.end_ns = begin + 2000;
        c.outcome = call_outcome::done;
        std::strcpy(c.verb, "barrier");
        r.calls.push_back(c);
        return r;
    };
    const std::string trace = collx::to_chrome_trace(
        {calls(0, 7, 1000, 500'000, 5000), calls(1, 7, 1000, 500'900, 6000), calls(2, 9, 90'000, 500'000, 97'000)});
    CHECK_THAT(trace, Contains("\"pid\":1,\"tid\":0,\"ts\":0.000000,\"dur\":2.000000"));
    CHECK_THAT(trace, Contains("\"pid\":1,\"tid\":1,\"ts\":1.000000,\"dur\":2.000000")); // whatever its wall clock says
    CHECK_THAT(trace, Contains("\"pid\":1,\"tid\":2,\"ts\":3.000000,\"dur\":2.000000"));
}
