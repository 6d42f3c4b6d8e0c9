// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
//
// What the environment may say, and the answer to each way of saying it wrongly. No test touches the real environment.
#include <collx/bootstrap/environment.hpp>

#include <initializer_list>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace collx;

namespace {

struct entries {
    std::vector<const char*> list;
    entries(std::initializer_list<const char*> e) : list(e) { list.push_back(nullptr); }
    operator environment() const { return environment(list.data()); }
};

job_description describe(const entries& e) { return describe_job(e); }

// The text of the error, or "" when there is none; a wrong code is text too.
std::string refusal(const entries& e) {
    try {
        (void)describe_job(e);
    } catch (const error& x) {
        return x.code() == errc::environment ? x.what() : std::string("wrong code: ") + x.what();
    }
    return "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("a process without a launcher is alone") {
    for (const entries& e : {entries{}, entries{"PATH=/bin", "RANK=3", "WORLD_SIZE=4"}}) {
        const job_description d = describe(e);
        CHECK(d.rank == 0);
        CHECK(d.size == 1);
        CHECK(d.local_rank == 0);
        CHECK(d.local_size == 1);
        CHECK(d.job.empty());
        CHECK(d.found_by == std::string("alone"));
        CHECK(d.timeout_ns == 60'000'000'000);
        CHECK(d.checked == -1);
        CHECK(d.arena_bytes == 0);
    }
    CHECK(describe_job(environment(nullptr)).size == 1);
}

TEST_CASE("the variables of collx_run describe a rank") {
    const job_description d =
        describe({"COLLX_RANK=5", "COLLX_SIZE=8", "COLLX_LOCAL_RANK=1", "COLLX_LOCAL_SIZE=4", "COLLX_JOB=0123abc"});
    CHECK(d.rank == 5);
    CHECK(d.size == 8);
    CHECK(d.local_rank == 1);
    CHECK(d.local_size == 4);
    CHECK(d.job == "0123abc");
    CHECK(d.store.empty());
    CHECK(d.found_by == std::string("environment"));
}

TEST_CASE("without local numbers all ranks are on one host") {
    const job_description d = describe({"COLLX_RANK=5", "COLLX_SIZE=8", "COLLX_STORE=file:/some/where"});
    CHECK(d.local_rank == 5);
    CHECK(d.local_size == 8);
    CHECK(d.store == "file:/some/where");
}

TEST_CASE("settings are read in their units") {
    CHECK(describe({"COLLX_TIMEOUT=2"}).timeout_ns == 2'000'000'000);
    CHECK(describe({"COLLX_TIMEOUT=0.25"}).timeout_ns == 250'000'000);
    CHECK(describe({"COLLX_TIMEOUT=1.0000000019"}).timeout_ns == 1'000'000'001);
    CHECK(describe({"COLLX_CHECKED=1"}).checked == 1);
    CHECK(describe({"COLLX_CHECKED=0"}).checked == 0);
    CHECK(describe({"COLLX_ARENA_BYTES=1G"}).arena_bytes == std::size_t{1} << 30);
    CHECK(describe({"COLLX_ARENA_BYTES=1536K"}).arena_bytes == 1536 * 1024);
    CHECK(describe({"COLLX_ARENA_BYTES=64T"}).arena_bytes == std::size_t{1} << 46);
    CHECK(describe({"COLLX_ARENA_BYTES=1048577"}).arena_bytes == 1048577);
    CHECK(describe({"COLLX_WAIT=spin"}).waiting == wait_choice::spin);
    CHECK(describe({"COLLX_WAIT=yield"}).waiting == wait_choice::yield);
    CHECK(describe({"COLLX_WAIT=auto"}).waiting == wait_choice::automatic);
    CHECK(describe({"COLLX_LENDING=never"}).lending == lend_choice::never);
    CHECK(describe({"COLLX_LENDING=always"}).lending == lend_choice::always);
    CHECK(describe({"COLLX_DEBUG=WARN"}).debug == debug_level::warn);
    CHECK(describe({"COLLX_DEBUG=INFO"}).debug == debug_level::info);
    CHECK(describe({"COLLX_DEBUG=TRACE"}).debug == debug_level::trace);
}

TEST_CASE("a way to find the job can be forced") {
    CHECK(describe({"COLLX_BOOTSTRAP=single", "COLLX_RANK=1", "COLLX_SIZE=2", "COLLX_JOB=a"}).size == 1);
    CHECK(describe({"COLLX_BOOTSTRAP=env", "COLLX_RANK=1", "COLLX_SIZE=2", "COLLX_JOB=a"}).size == 2);
    CHECK(has(refusal({"COLLX_BOOTSTRAP=env"}), "COLLX_BOOTSTRAP=env, but nothing of it is set here"));
    CHECK(has(refusal({"COLLX_BOOTSTRAP=pmi"}), "COLLX_BOOTSTRAP=pmi makes no sense (give it one of env|single"));
}

TEST_CASE("numbers that do not fit together are refused with both") {
    CHECK(has(refusal({"COLLX_RANK=1"}), "COLLX_RANK is set but COLLX_SIZE is not"));
    CHECK(has(refusal({"COLLX_SIZE=1"}), "COLLX_SIZE is set but COLLX_RANK is not"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=1", "COLLX_LOCAL_RANK=0"}), "COLLX_LOCAL_SIZE is not"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=1", "COLLX_LOCAL_SIZE=1"}), "COLLX_LOCAL_RANK is not"));
    CHECK(has(refusal({"COLLX_LOCAL_RANK=0", "COLLX_LOCAL_SIZE=1"}), "COLLX_RANK is not"));
    CHECK(has(refusal({"COLLX_RANK=4", "COLLX_SIZE=4", "COLLX_JOB=a"}), "COLLX_RANK=4 is not below COLLX_SIZE=4"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=4", "COLLX_JOB=a", "COLLX_LOCAL_RANK=2", "COLLX_LOCAL_SIZE=2"}),
              "COLLX_LOCAL_RANK=2 is not below"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=4", "COLLX_JOB=a", "COLLX_LOCAL_RANK=0", "COLLX_LOCAL_SIZE=5"}),
              "COLLX_LOCAL_SIZE=5 is above"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=2"}), "neither COLLX_JOB nor COLLX_STORE"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=2", "COLLX_JOB=a", "COLLX_STORE=file:d"}),
              "COLLX_JOB and COLLX_STORE both"));
    CHECK(refusal({"COLLX_RANK=0", "COLLX_SIZE=1"}).empty());
}

TEST_CASE("values that make no sense are refused with a remedy, whichever variable they are in") {
    const std::string huge(100'000, '9');
    const std::vector<std::string> never = {"",   " ",   "-1",  "x",        "1x",       "0x1",
                                            " 1", "1 ",  "+1",  "\xff\xfe", "\x1b[31m", "99999999999999999999",
                                            huge, "nan", "1e3", "NaN"};
    for (const variable& v : variables) {
        if (v.type == variable::kind::foreign) continue;
        for (const std::string& value : never) {
            if (v.type == variable::kind::token &&
                (value == "-1" || value == "x" || value == "1x" || value == "0x1" || value == "99999999999999999999" ||
                 value == "nan" || value == "1e3" || value == "NaN"))
                continue; // names may look like this
            const std::string entry = v.name + ("=" + value);
            const std::string what = refusal({entry.c_str()});
            INFO(v.name << "=" << value.substr(0, 30) << ": " << what);
            CHECK(has(what, v.name));
            CHECK(has(what, value.empty() ? "is empty" : "makes no sense"));
            CHECK(has(what, "give it "));
            bool is_clean = true;
            for (const char c : what) is_clean = is_clean && c >= ' ' && c <= '~';
            CHECK(is_clean);
        }
    }
}

TEST_CASE("values at the edges") {
    CHECK(has(refusal({"COLLX_SIZE=0", "COLLX_RANK=0"}), "COLLX_SIZE=0 makes no sense"));
    CHECK(has(refusal({"COLLX_SIZE=1048577", "COLLX_RANK=0", "COLLX_JOB=a"}), "whole number from 1 to 1048576"));
    CHECK(refusal({"COLLX_SIZE=1048576", "COLLX_RANK=1048575", "COLLX_JOB=a"}).empty());
    for (const char* bad : {"COLLX_TIMEOUT=0",
                            "COLLX_TIMEOUT=0.0",
                            "COLLX_TIMEOUT=.5",
                            "COLLX_TIMEOUT=5.",
                            "COLLX_TIMEOUT=1,5",
                            "COLLX_TIMEOUT=1000000001",
                            "COLLX_TIMEOUT=1.5.5",
                            "COLLX_ARENA_BYTES=65T",
                            "COLLX_ARENA_BYTES=1023K",
                            "COLLX_ARENA_BYTES=1g",
                            "COLLX_ARENA_BYTES=1GB",
                            "COLLX_ARENA_BYTES=G",
                            "COLLX_ARENA_BYTES=9223372036854775807T",
                            "COLLX_CHECKED=2",
                            "COLLX_CHECKED=true",
                            "COLLX_WAIT=Spin",
                            "COLLX_WAIT=spin|yield",
                            "COLLX_DEBUG=3",
                            "COLLX_STORE=file:",
                            "COLLX_STORE=tcp:",
                            "COLLX_STORE=tcp:127.0.0.1",
                            "COLLX_STORE=tcp::80",
                            "COLLX_STORE=tcp:h:0",
                            "COLLX_STORE=tcp:h:65536",
                            "COLLX_STORE=tcp:h:8x",
                            "COLLX_STORE=http:x",
                            "COLLX_JOB=a b",
                            "COLLX_JOB=a/b"})
        CHECK(has(refusal({bad}), "makes no sense"));
    CHECK(has(refusal({("COLLX_JOB=" + std::string(129, 'a')).c_str()}), "makes no sense"));
    CHECK(refusal({("COLLX_JOB=" + std::string(128, 'a')).c_str()}).empty());
    for (const char* good : {"COLLX_STORE=tcp:127.0.0.1:1", "COLLX_STORE=tcp:[::1]:65535", "COLLX_STORE=file:a"})
        CHECK(refusal({good}).empty());
}

TEST_CASE("an unknown name is refused, with the name that was probably meant") {
    CHECK(has(refusal({"COLLX_RANKS=1"}), "unknown variable COLLX_RANKS (did you mean COLLX_RANK?"));
    CHECK(has(refusal({"COLLX_TIME_OUT=1"}), "did you mean COLLX_TIMEOUT?"));
    CHECK(has(refusal({"COLLX_SIEZ=1"}), "did you mean COLLX_SIZE?"));
    CHECK(has(refusal({"COLLX_rank=1"}), "did you mean"));
    CHECK(has(refusal({"COLLX_=1"}), "unknown variable COLLX_"));
    CHECK(has(refusal({"COLLX_COMPLETELY_ELSE=1"}), "unset it"));
    CHECK(has(refusal({("COLLX_" + std::string(5000, 'A') + "=1").c_str()}), "unknown variable"));
    CHECK(refusal({"COLLXY=1", "MY_COLLX_RANK=7", "COLLX", "COLLX_EXAMPLE_SHORT=1"}).empty());
}

TEST_CASE("the table says everything once") {
    for (const variable& v : variables) {
        int found = 0;
        for (const variable& w : variables) found += v.name == std::string(w.name);
        CHECK(found == 1);
        CHECK(std::strlen(v.meaning) > 8);
        CHECK(std::strncmp(v.name, "COLLX_", 6) == 0);
    }
    // The words of COLLX_BOOTSTRAP are the probes.
    std::string words;
    for (const bootstrap_probe& p : bootstrap_probes) words += (words.empty() ? "" : "|") + std::string(p.name);
    CHECK(words == detail::variable_named("COLLX_BOOTSTRAP").choices);
}
