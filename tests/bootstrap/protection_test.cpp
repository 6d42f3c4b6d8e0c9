// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a job's key comes from and which keys are refused; ranks that disagree; the store with a key, and clients
// with another key or none.
//
// collx-test: serial timeout=240
#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/meet.hpp>

#include <sys/mman.h>

#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "bootstrap/store_support.hpp"
#include "support/processes.hpp"
#include "support/skip.hpp"
#include "support/toy_macs.hpp"

using namespace collx;
using namespace collx_test;

namespace {

deadline soon(std::int64_t ms = collx_test::patient(30'000)) { return deadline::in_ns(ms * 1'000'000); }
const std::string text(64, 'k'), another(64, 'a');

struct caught {
    errc code = errc::forked; // no error
    int peer = -1;
    std::string what;
};
template <class F>
caught error_of(F&& f) {
    try {
        f();
    } catch (const error& e) {
        return {e.code(), e.peer(), e.what()};
    }
    return {};
}
bool says(const caught& c, const char* words) { return c.what.find(words) != std::string::npos; }

struct no_listener {
    std::string open(const host_description&) { return "127.0.0.1 1"; }
    std::vector<std::uint64_t> meet(const std::string&, int, int size, std::uint64_t, const std::string&,
                                    const deadline&) {
        return std::vector<std::uint64_t>(static_cast<std::size_t>(size));
    }
};
struct variables_of {
    std::vector<std::string> texts;
    std::vector<const char*> entries;
    explicit variables_of(std::vector<std::string> all) : texts(std::move(all)) {
        for (const auto& t : texts) entries.push_back(t.c_str());
        entries.push_back(nullptr);
    }
    environment env() const { return environment(entries.data()); }
};
job_protection protection_from(std::vector<std::string> all) {
    return find_protection(variables_of(std::move(all)).env());
}

descriptor memory_file(const std::string& content) {
    descriptor f(::memfd_create("key", MFD_CLOEXEC));
    if (::write(f.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) std::abort();
    return f;
}
std::string write_file(const std::string& path, const std::string& content, mode_t mode) {
    const descriptor f(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
    (void)!::write(f.get(), content.data(), content.size());
    ::fchmod(f.get(), mode);
    return "COLLX_KEY_FILE=" + path;
}

} // namespace

TEST_CASE("a key without a component is refused with the remedy, an optional one is not used") {
    REQUIRE(detail::macs == nullptr);
    const auto e = error_of([] { (void)protection_from({"COLLX_KEY=" + text}); });
    CHECK(e.code == errc::unsupported);
    CHECK(says(e, "collx/interop/sodium.hpp"));
    CHECK(!protection_from({"COLLX_KEY=optional:" + text}).key);
    CHECK(!protection_from({}).key);
    const auto optional = error_of([] {
        (void)protection_from({"COLLX_KEY=optional:" + text, "COLLX_SECURITY=encrypted"});
    });
    CHECK(optional.code == errc::unsupported);
    CHECK(says(optional, "COLLX_KEY gives a key"));
    CHECK(says(optional, "collx/interop/openssl.hpp"));
    const with_toy_macs toy;
    CHECK(protection_from({"COLLX_KEY=optional:" + text}).key);
    CHECK(protection_from({"COLLX_KEY=optional:" + text}).key.fingerprint("j") == job_key(text).fingerprint("j"));
    // Made of a file, it has the end of the file's line.
    CHECK(protection_from({"COLLX_KEY=" + text + "\n"}).key.fingerprint("j") == job_key(text).fingerprint("j"));
}

TEST_CASE("a descriptor goes before a file, a file before the environment") {
    const with_toy_macs toy;
    scratch_directory d;
    const auto name = [&](std::vector<std::string> all) {
        return protection_from(std::move(all)).key.fingerprint("j");
    };
    const auto of = [](char c) { return job_key(std::string(64, c)).fingerprint("j"); };
    const descriptor f = memory_file(std::string(64, 'd') + "\n");
    const std::string fd = "COLLX_KEY_FD=" + std::to_string(f.get());
    const std::string file = write_file(d.path + "/key", std::string(64, 'f') + "\r\n", 0600);
    const std::string own = "COLLX_KEY=" + std::string(64, 'e');
    CHECK(name({own, file, fd}) == of('d'));
    CHECK(name({own, file, fd}) == of('d')); // reading does not move its position
    CHECK(name({own, file}) == of('f'));
    CHECK(name({own}) == of('e'));
    CHECK(name({}) == "-");
    CHECK(of('d') != of('e'));
    CHECK(job_key(text).fingerprint("this job") != job_key(text).fingerprint("that job"));
    CHECK(protection_from({own}).level == protection::auth_only);
    CHECK(protection_from({}).level == protection::none);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], text.data(), text.size()) == 64);
    ::close(ends[1]);
    const descriptor pipe_end(ends[0]);
    CHECK(name({"COLLX_KEY_FD=" + std::to_string(ends[0])}) == of('k'));
    // Another rank that has inherited the same end.
    const auto empty = error_of([&] { (void)protection_from({"COLLX_KEY_FD=" + std::to_string(ends[0])}); });
    CHECK(empty.code == errc::environment);
    CHECK(says(empty, "nothing is left in the pipe of COLLX_KEY_FD"));
}

TEST_CASE("a key in place of the name of its file does not get into the message") {
    const std::string key(32, 'k');
    const auto slip = error_of([&] { (void)protection_from({"COLLX_KEY_FILE=" + key}); });
    const auto path = error_of([&] { (void)protection_from({"COLLX_KEY_FILE=/none/" + key}); });
    CHECK(slip.code == errc::environment);
    CHECK(!says(slip, "kkk"));
    CHECK(says(path, "/none/kkk"));
}

TEST_CASE("keys that are none") {
    const with_toy_macs toy;
    scratch_directory d;
    const auto code = [](std::vector<std::string> all) {
        return error_of([&] { (void)protection_from(std::move(all)); }).code;
    };
    CHECK(code({"COLLX_KEY="}) == errc::environment);
    CHECK(code({"COLLX_KEY=short"}) == errc::environment);
    CHECK(code({"COLLX_KEY=" + std::string(31, 'x')}) == errc::environment);
    CHECK(code({"COLLX_KEY=" + std::string(32, 'x')}) == errc::forked);
    CHECK(code({"COLLX_KEY=" + std::string(1024, 'x')}) == errc::forked);
    CHECK(code({"COLLX_KEY=" + std::string(1025, 'x')}) == errc::invalid_argument);
    CHECK(code({"COLLX_KEY_FD=900000"}) == errc::environment);
    CHECK(code({"COLLX_KEY_FD=x"}) == errc::environment);
    CHECK(code({"COLLX_KEY_FD=-1"}) == errc::environment);
    CHECK(code({"COLLX_KEY_FILE="}) == errc::environment);
    CHECK(code({"COLLX_KEY_FILE=" + d.path + "/none"}) == errc::environment);
    CHECK(code({"COLLX_KEY_FILE=" + d.path}) == errc::environment);
    CHECK(code({write_file(d.path + "/a", text, 0600)}) == errc::forked);
    CHECK(code({write_file(d.path + "/b", text, 0400)}) == errc::forked);
    for (const mode_t open : {0640, 0604, 0660, 0666, 0610})
        CHECK(code({write_file(d.path + "/c", text, open)}) == errc::environment);
    CHECK(code({write_file(d.path + "/d", "", 0600)}) == errc::invalid_argument);
    CHECK(code({write_file(d.path + "/e", std::string(100'000, 'x'), 0600)}) == errc::invalid_argument);
    CHECK(code({"COLLX_SECURITY=auth_only"}) == errc::environment);                      // no key to authenticate with
    CHECK(code({"COLLX_SECURITY=encrypted", "COLLX_KEY=" + text}) == errc::unsupported); // no component can encrypt
    CHECK(code({"COLLX_SECURITY=most", "COLLX_KEY=" + text}) == errc::environment);
    const auto e = error_of([] { (void)protection_from({"COLLX_KEY=" + std::string(20, 's')}); });
    CHECK(!says(e, "sss")); // an error text must not contain the key
}

TEST_CASE("a key file of another user is refused") {
    const with_toy_macs toy;
    scratch_directory d;
    const std::string entry = write_file(d.path + "/key", text, 0600);
    CHECK(protection_from({entry}).key);
    if (::geteuid() != 0 || ::chown((d.path + "/key").c_str(), 65534, static_cast<gid_t>(-1)) != 0)
        return skip("only root can give a file to another user");
    const auto e = error_of([&] { (void)protection_from({entry}); });
    CHECK(e.code == errc::environment);
    CHECK(says(e, "is not for its owner alone"));
}

TEST_CASE("a key is taken out of the environment once it is read") {
    processes p;
    const std::string mark = "collx-mark-" + std::to_string(::getpid()) + std::string(40, 'm');
    p.start(0, [&] {
        const with_toy_macs toy;
        ::setenv("COLLX_KEY", mark.c_str(), 1);
        const char* at = ::getenv("COLLX_KEY");
        if (!detail::process_protection().key || ::getenv("COLLX_KEY") != nullptr) return 2;
        if (std::memchr(at, 'm', mark.size()) != nullptr) return 3; // nor in the environment's memory
        return detail::process_protection().key.fingerprint("j") == job_key(mark).fingerprint("j") ? 0 : 4;
    });
    p.start(1, [&] {
        const with_toy_macs toy;
        const int fd = memory_file(text).release();
        ::setenv("COLLX_KEY_FD", std::to_string(fd).c_str(), 1);
        if (!detail::process_protection().key || ::getenv("COLLX_KEY_FD") != nullptr) return 2;
        return ::fcntl(fd, F_GETFD) == -1 ? 0 : 3;
    });
    p.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(i << " " << p[i].what);
        CHECK(p[i].exit_code == 0);
    }
}

TEST_CASE("an address that others can reach needs a key or a word") {
    const with_toy_macs toy;
    const variables_of far({"COLLX_ADDRESS=10.1.2.3"}), insecure({"COLLX_ADDRESS=10.1.2.3", "COLLX_INSECURE=1"});
    CHECK(error_of([&] { (void)describe_host(far.env()); }).code == errc::environment);
    CHECK(describe_host(far.env(), toy_protection('k')).has_address);
    CHECK(describe_host(insecure.env()).has_address);
    job_description d;
    d.store = "tcp:10.1.2.3:5000";
    CHECK(error_of([&] { detail::require_protection_of_store(d, {}, variables_of({}).env()); }).code ==
          errc::environment);
    detail::require_protection_of_store(d, job_key(text), variables_of({}).env());
    detail::require_protection_of_store(d, {}, variables_of({"COLLX_INSECURE=1"}).env());
    d.store = "tcp:[::1]:5000";
    detail::require_protection_of_store(d, {}, variables_of({}).env());
}

TEST_CASE("all ranks of a job that disagree get an error that says so, whatever the store") {
    const with_toy_macs toy;
    scratch_directory dir;
    const auto meets = [&](int odd, const job_protection& of_odd, errc code, const char* words) {
        std::vector<caught> seen(3);
        std::vector<std::thread> ranks;
        const std::string path = dir.path + "/" + std::to_string(odd) + words;
        for (int r = 0; r < 3; ++r)
            ranks.emplace_back([&, r] {
                file_store store(path);
                host_description h{"host" + std::to_string(r), "m", "127.0.0.1", true, {}};
                h.by = r == odd ? of_odd : toy_protection('k');
                seen[static_cast<std::size_t>(r)] =
                    error_of([&] { (void)meet_at(store, r, 3, soon(), h, "set=1", no_listener{}); });
            });
        for (auto& r : ranks) r.join();
        for (int r = 0; r < 3; ++r) {
            const caught& c = seen[static_cast<std::size_t>(r)];
            INFO(r << ": " << c.what);
            CHECK(c.code == code);
            if (code == errc::forked) continue;
            CHECK(says(c, words));
            CHECK(c.peer == (odd == 0 ? 1 : odd)); // the first rank that differs from rank 0
        }
    };
    meets(1, toy_protection('k'), errc::forked, "");
    meets(1, toy_protection('x'), errc::security, "says key=");
    meets(2, {}, errc::security, "protection=none");
    meets(0, toy_protection('x'), errc::security, "say key=");
    meets(2, {protection::encrypted, job_key(std::string(64, 'k'))}, errc::security, "protection=encrypted");
}

TEST_CASE("a store behind a key: those who have it, those who have another, and those who have none") {
    const with_toy_macs toy;
    const job_key key(text), wrong(another);
    tcp_server server("127.0.0.1", 0, key), open;
    tcp_store a("127.0.0.1", server.port(), soon(), 0, key), b("127.0.0.1", server.port(), soon(), 1, key);
    a.set("k", "v");
    CHECK(b.get("k", soon()) == "v");
    CHECK(b.add("n", 2) == 2);
    const struct {
        int port, rank;
        job_key key;
        const char* words;
    } table[] = {{server.port(), 2, wrong, "another key"},
                 {server.port(), 3, {}, "this rank has none"},
                 {open.port(), 4, key, "this rank has one"}};
    caught seen[3];
    const std::int64_t begin = now_ns();
    std::vector<std::thread> all; // each tries for two seconds
    for (int i = 0; i < 3; ++i)
        all.emplace_back([&, i] {
            const auto& row = table[i];
            seen[i] = error_of([&] { tcp_store s("127.0.0.1", row.port, soon(), row.rank, row.key); });
        });
    for (auto& t : all) t.join();
    CHECK(now_ns() - begin < collx_test::patient(20'000'000'000));
    for (int i = 0; i < 3; ++i) {
        INFO(seen[i].what);
        CHECK(seen[i].code == errc::security);
        CHECK(seen[i].peer == 0);
        CHECK(says(seen[i], table[i].words));
        CHECK(says(seen[i], "COLLX_KEY_FILE"));
    }
    CHECK(a.get("k", soon()) == "v");
}

TEST_CASE("at a TCP store every rank hears which one has another key, long before its time is over") {
    const with_toy_macs toy;
    const job_key k(text), other(another), none;
    const struct {
        job_key keys[4];
        int odd;
    } table[] = {{{k, k, other, k}, 2},
                 {{k, none, k, k}, 1},
                 {{none, none, none, k}, 3},
                 {{other, k, k, k}, 0},
                 {{none, k, k, k}, 0}};
    std::vector<std::thread> jobs; // each takes the two seconds for which an odd rank tries
    caught seen[5][4];
    std::int64_t took_ns[5] = {}, gone_took_ns = 0;
    caught gone;
    jobs.emplace_back([&] { // refused, and then the store that could give the reason has ended
        auto server = make_sole<tcp_server>("127.0.0.1", 0, k);
        std::thread late([&, port = server->port()] {
            const std::int64_t begin = now_ns();
            gone = error_of([&] { tcp_store("127.0.0.1", port, soon(collx_test::patient(60'000)), 1, other); });
            gone_took_ns = now_ns() - begin;
        });
        ::usleep(static_cast<useconds_t>(std::min(collx_test::patient(1'500'000), std::int64_t{7'000'000})));
        server = nullptr;
        late.join();
    });
    for (int t = 0; t < 5; ++t)
        jobs.emplace_back([&, t] {
            const int port = tcp_server().port();
            const std::int64_t begin = now_ns();
            std::vector<std::thread> ranks;
            for (int r = 0; r < 4; ++r)
                ranks.emplace_back([&, r] {
                    job_description d;
                    d.rank = r;
                    d.size = 4;
                    d.store = "tcp:127.0.0.1:" + std::to_string(port);
                    seen[t][r] = error_of([&] { meet(d, soon(collx_test::patient(60'000)), table[t].keys[r]); });
                });
            for (auto& rank : ranks) rank.join();
            took_ns[t] = now_ns() - begin;
        });
    for (auto& job : jobs) job.join();
    INFO(gone.what);
    CHECK(gone.code == errc::security);
    CHECK(gone_took_ns < collx_test::patient(45'000'000'000));
    for (int t = 0; t < 5; ++t) {
        CHECK(took_ns[t] < collx_test::patient(45'000'000'000)); // well before the limit of 60 s
        for (int r = 0; r < 4; ++r) {
            const caught& c = seen[t][r];
            INFO("job " << t << ", rank " << r << ": " << c.what);
            CHECK(c.code == errc::security);
            CHECK(says(c, "COLLX_KEY_FILE"));
            if (table[t].odd != 0) CHECK(c.peer == (r == table[t].odd ? 0 : table[t].odd));
            else CHECK((r == 0 ? c.peer > 0 : c.peer == 0));
        }
    }
}

TEST_CASE("a stranger that claims to be a rank which is there ends nothing, and its claim is forgotten") {
    const with_toy_macs toy;
    const job_key key(text);
    tcp_server server("127.0.0.1", 0, key);
    tcp_store zero("127.0.0.1", server.port(), soon(), 0, key), one("127.0.0.1", server.port(), soon(), 1, key);
    std::string heard;
    std::thread waits([&] { heard = zero.get("late", soon(collx_test::patient(20'000))); });
    const auto e = error_of([&] { tcp_store("127.0.0.1", server.port(), soon(), 1, job_key(another)); });
    CHECK(e.code == errc::security); // after trying for two seconds
    one.set("late", "came");
    waits.join();
    CHECK(heard == "came");
}

TEST_CASE("what a stranger may say to a store behind a key, and what the store answers") {
    const with_toy_macs toy;
    const job_key key(text);
    tcp_server server("127.0.0.1", 0, key);
    const auto connected = [&] {
        auto a = detail::numeric_address("127.0.0.1", server.port());
        descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(s.get(), a.get(), a.bytes) == 0);
        return s;
    };
    const auto say = [](const descriptor& s, const void* what, std::size_t n) {
        (void)::send(s.get(), what, n, MSG_NOSIGNAL);
    };
    const auto hears = [](const descriptor& s, void* to, std::size_t n) {
        return ::recv(s.get(), to, n, MSG_WAITALL) == static_cast<ssize_t>(n);
    };
    const auto is_over = [](const descriptor& s) {
        char c;
        return ::recv(s.get(), &c, 1, 0) <= 0;
    };
    detail::tcp_keyed_hello h;
    detail::tcp_reply r;
    detail::auth_answer a;

    detail::tcp_request get;
    get.word = detail::tcp_word::get;
    get.key_bytes = 1;
    descriptor s = connected(); // a request without a proof
    say(s, (std::string(reinterpret_cast<char*>(&get), sizeof get) + "k").data(), sizeof get + 1);
    REQUIRE(hears(s, &r, sizeof r));
    CHECK(r.status == detail::tcp_status::has_key);
    CHECK(is_over(s));

    s = connected(); // the server's own tag, sent back
    say(s, &h, sizeof h);
    REQUIRE(hears(s, &r, sizeof r));
    CHECK(r.status == detail::tcp_status::answer);
    REQUIRE(hears(s, &a, sizeof a));
    say(s, a.tag, sizeof a.tag);
    REQUIRE(hears(s, &r, sizeof r));
    CHECK(r.status == detail::tcp_status::wrong_key);
    CHECK(is_over(s));

    detail::auth_proof heard; // a proof of an earlier connection
    {
        const descriptor good = connected();
        say(good, &h, sizeof h);
        REQUIRE((hears(good, &r, sizeof r) && hears(good, &a, sizeof a)));
        CHECK(key.is_right(h, a));
        heard = key.prove(h, a);
        say(good, &heard, sizeof heard);
        REQUIRE(hears(good, &r, sizeof r));
        CHECK(r.status == detail::tcp_status::ok);
    }
    s = connected();
    say(s, &h, sizeof h);
    REQUIRE((hears(s, &r, sizeof r) && hears(s, &a, sizeof a)));
    say(s, &heard, sizeof heard);
    REQUIRE(hears(s, &r, sizeof r));
    CHECK(r.status == detail::tcp_status::wrong_key);
    CHECK(is_over(s));

    std::vector<descriptor> others; // that have said nothing
    for (int i = 0; i < 16; ++i) others.push_back(connected());
    s = connected(); // half a proof: one of many, closed after two seconds in all
    say(s, &h, sizeof h);
    REQUIRE((hears(s, &r, sizeof r) && hears(s, &a, sizeof a)));
    say(s, &heard, 16);
    const std::int64_t begin = now_ns();
    CHECK(is_over(s));
    CHECK(now_ns() - begin < collx_test::patient(15'000'000'000));
}
