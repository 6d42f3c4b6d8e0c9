// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The client of PMI-1 with process managers that follow the protocol, violate it, stop in the middle or are silent.
// Also its parsers, and those of the launchers' variables, with arbitrary text.
//
// collx-test: needs=rapidcheck sanitize=nightly
#include <collx/bootstrap/meet.hpp>

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <rapidcheck.h>

#include "bootstrap/store_contract.hpp"
#include "support/patience.hpp"

using namespace collx;
using namespace collx_test;

static_assert(CollectiveStore<pmi_store>);

namespace {

struct socket_pair {
    descriptor client, manager;
    socket_pair() {
        int fds[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
        client = descriptor(fds[0]);
        manager = descriptor(fds[1]);
    }
};

void say(const descriptor& to, const std::string& text) {
    (void)!::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL);
}
// Receives one line, or "" if the client has disconnected.
std::string hear(const descriptor& from) {
    std::string line;
    for (char c; ::recv(from.get(), &c, 1, 0) == 1;) {
        if (c == '\n') return line;
        line += c;
    }
    return "";
}

// Answers each question with the next of its lines, unchanged; then disconnects or stays silent.
struct scripted {
    socket_pair pair;
    std::vector<std::string> questions;
    std::thread thread;
    explicit scripted(std::vector<std::string> lines, bool hangs_up = true) {
        thread = std::thread([this, lines, hangs_up] {
            for (const auto& line : lines) {
                questions.push_back(hear(pair.manager));
                if (questions.back().empty()) return;
                say(pair.manager, line);
            }
            if (hangs_up) pair.manager.close();
        });
    }
    ~scripted() {
        ::shutdown(pair.client.get(), SHUT_RDWR);
        thread.join();
    }
    const std::vector<std::string>& heard() {
        ::shutdown(pair.client.get(), SHUT_RDWR);
        if (thread.joinable()) thread.join();
        thread = std::thread([] {});
        return questions;
    }
};

const std::string hello = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
                  maxes = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
                  space = "cmd=my_kvsname kvsname=kvs_1\n", goodbye = "cmd=finalize_ack\n";

// The result of a rank that starts, sets, passes the barrier and gets.
struct ended {
    errc code = errc::forked; // stands for "no error"
    std::string what, value;
};
ended run(scripted& manager, std::int64_t ms = 30'000) {
    ended e;
    try {
        pmi_store store(manager.pair.client.get(), 0, 2, soon(ms));
        store.set("key", "a value");
        store.barrier("here", 2, soon(ms));
        e.value = store.get("key", soon(ms));
    } catch (const error& x) {
        e.code = x.code();
        e.what = x.what();
    }
    return e;
}

// A process manager of several ranks that follows the protocol: the barrier publishes values. One thread per rank.
class manager {
public:
    explicit manager(int ranks) : ranks_(ranks), pairs_(static_cast<std::size_t>(ranks)) {
        for (auto& p : pairs_) threads_.emplace_back([&] { serve(p.manager); });
    }
    ~manager() {
        for (auto& p : pairs_) ::shutdown(p.client.get(), SHUT_RDWR);
        for (auto& t : threads_) t.join();
    }
    int fd(int rank) const { return pairs_[static_cast<std::size_t>(rank)].client.get(); }
    std::atomic<int> goodbyes{0};
    void say_mapping(const char* text) {
        const std::lock_guard lock(mutex_);
        mapping_ = text;
    }

private:
    void serve(const descriptor& socket) {
        for (std::string q; !(q = hear(socket)).empty();) {
            const std::string cmd(detail::pmi_value(q, "cmd")), key(detail::pmi_value(q, "key"));
            std::unique_lock lock(mutex_);
            if (cmd == "init") say(socket, hello);
            if (cmd == "get_maxes") say(socket, maxes);
            if (cmd == "get_my_kvsname") say(socket, space);
            if (cmd == "finalize") {
                ++goodbyes;
                say(socket, goodbye);
            }
            if (cmd == "put") {
                new_values_[key] = detail::pmi_value(q, "value");
                say(socket, "cmd=put_result rc=0 msg=success\n");
            }
            if (cmd == "get") {
                const auto found = values_.find(key);
                if (key == "PMI_process_mapping")
                    say(socket, "cmd=get_result rc=0 msg=success value=" + mapping_ + "\n");
                else if (found != values_.end())
                    say(socket, "cmd=get_result rc=0 msg=success value=" + found->second + "\n");
                else say(socket, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
            }
            if (cmd == "barrier_in") {
                const int round = rounds_;
                if (++came_ == ranks_) {
                    came_ = 0;
                    ++rounds_;
                    values_.insert(new_values_.begin(), new_values_.end());
                    changed_.notify_all();
                }
                changed_.wait_for(lock, std::chrono::seconds(30), [&] { return rounds_ != round; });
                if (rounds_ != round) say(socket, "cmd=barrier_out\n");
            }
        }
    }
    int ranks_, came_ = 0, rounds_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_, new_values_;
    std::string mapping_;
    std::vector<socket_pair> pairs_;
    std::vector<std::thread> threads_;
};

} // namespace

TEST_CASE("the protocol, word for word") {
    scripted manager({hello, maxes, space, "cmd=put_result rc=0 msg=success\n", "cmd=barrier_out\n",
                      "cmd=get_result rc=0 msg=success value=ca%20value\n", goodbye});
    const ended e = run(manager);
    INFO(e.what);
    CHECK(e.code == errc::forked);
    CHECK(e.value == "a value");
    const std::vector<std::string> expected = {"cmd=init pmi_version=1 pmi_subversion=1",
                                               "cmd=get_maxes",
                                               "cmd=get_my_kvsname",
                                               "cmd=put kvsname=kvs_1 key=ckey value=ca%20value",
                                               "cmd=barrier_in",
                                               "cmd=get kvsname=kvs_1 key=ckey",
                                               "cmd=finalize"};
    CHECK(manager.heard() == expected);
}

TEST_CASE("answers that are none are refused by name, and nothing is asked after them") {
    const std::string put = "cmd=put_result rc=0\n", out = "cmd=barrier_out\n";
    const std::string big = "cmd=" + std::string(100'000, 'x');
    const std::vector<std::vector<std::string>> scripts = {
        {"\n"},
        {"cmd=\n"},
        {"hello\n"},
        {maxes},
        {"cmd=response_to_init pmi_version=1 pmi_subversion=1\n"},
        {"cmd=response_to_init rc=-1\n"},
        {"cmd=response_to_init rc=00\n"},
        {std::string("cmd=response_to_init\0rc=0\n", 26)},
        {big},
        {big + "\n"},
        {hello, "cmd=maxes kvsname_max=256 keylen_max=64\n"},
        {hello, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=-1\n"},
        {hello, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=99999999999999999999\n"},
        {hello, "cmd=maxes kvsname_max=256 keylen_max=4 vallen_max=1024\n"},
        {hello, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024x\n"},
        {hello, maxes, "cmd=my_kvsname kvsname=\n"},
        {hello, maxes, "cmd=my_kvsname\n"},
        {hello, maxes, "cmd=my_kvsname kvsname=" + std::string(2000, 'k') + "\n"},
        {hello, maxes, space, "cmd=put_result rc=-1 msg=duplicate_key\n"},
        {hello, maxes, space, out},
        {hello, maxes, space, put, put},
        {hello, maxes, space, put, out, "cmd=get_result rc=0 msg=success\n"},
        {hello, maxes, space, put, out, "cmd=get_result rc=0 value=\n"},
        {hello, maxes, space, put, out, "cmd=get_result rc=0 value=a%20value\n"},
        {hello, maxes, space, put, out, "cmd=get_result rc=0 value=ca%2\n"},
        {hello, maxes, space, put, out, "cmd=get_result rc=0 value=ca%zz\n"},
        // The answer to a question that was not asked yet.
        {hello, maxes, space, put + put, out},
    };
    for (const auto& script : scripts) {
        scripted manager(script);
        const ended e = run(manager);
        INFO(script.back().substr(0, 80) << " -> " << e.what);
        CHECK(e.code == errc::protocol);
        CHECK(e.what.find("process manager says '") != std::string::npos);
        CHECK(e.what.size() < 400);
        CHECK(manager.heard().size() <= script.size());
    }
}

TEST_CASE("a manager that goes is named, wherever it goes; one that is silent costs the deadline") {
    const std::vector<std::string> all = {hello, maxes, space, "cmd=put_result rc=0\n", "cmd=barrier_out\n"};
    for (std::size_t n = 0; n <= all.size(); ++n) {
        scripted manager({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)});
        const ended e = run(manager);
        INFO(n << ": " << e.what);
        CHECK(e.code == errc::peer_failed);
        CHECK(e.what.find("has closed its connection") != std::string::npos);
    }
    {
        scripted manager({"cmd=respo"}); // half a line
        CHECK(run(manager).code == errc::peer_failed);
    }
    for (const std::size_t n : {0, 1, 4}) { // the other answers have their own limit
        scripted manager({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)}, false);
        // Before the barrier's silence come answers, for which this thread needs a core.
        const std::int64_t limit_ms = n == 4 ? collx_test::heard_within(std::chrono::milliseconds(3000)).count() : 1000;
        const std::int64_t begin = now_ns();
        const ended e = run(manager, limit_ms);
        INFO(n << ": " << e.what);
        CHECK(e.code == errc::timeout);
        CHECK((e.what.find("PMI barrier 'here'") != std::string::npos) == (n == 4));
        CHECK(now_ns() - begin >= limit_ms * 1'000'000);
        CHECK(now_ns() - begin < collx_test::patient(15'000'000'000));
    }
}

TEST_CASE("answers in pieces and interrupted calls are whole answers") {
    struct sigaction noted {
    }, before{};
    noted.sa_handler = [](int) {}; // without SA_RESTART: calls fail with EINTR
    ::sigaction(SIGALRM, &noted, &before);
    const itimerval often{{0, 2000}, {0, 2000}}, never{};
    socket_pair pair;
    std::thread manager([&] {
        sigset_t alarm;
        ::sigemptyset(&alarm);
        ::sigaddset(&alarm, SIGALRM);
        ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
        for (const std::string& line :
             {hello, maxes, space, std::string("cmd=put_result rc=0\n"), std::string("cmd=barrier_out\n"),
              std::string("cmd=get_result rc=0 value=ca%20value\n"), goodbye}) {
            (void)hear(pair.manager);
            for (const char c : line) {
                say(pair.manager, std::string(1, c));
                detail::nap_ns(200'000);
            }
        }
    });
    ::setitimer(ITIMER_REAL, &often, nullptr);
    std::string value;
    CHECK_NOTHROW([&] {
        pmi_store store(pair.client.get(), 0, 2, soon());
        store.set("key", "a value");
        store.barrier("here", 2, soon());
        value = store.get("key", soon());
    }());
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &before, nullptr);
    manager.join();
    CHECK(value == "a value");
}

TEST_CASE("ranks exchange words through a manager and say goodbye") {
    constexpr int ranks = 4;
    manager m(ranks);
    std::vector<std::string> thrown(ranks), names(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            const auto me = static_cast<std::size_t>(r);
            try {
                pmi_store store(m.fd(r), r, ranks, soon());
                std::string bytes;
                for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
                const std::string long_key(most_key_bytes, 'k');
                store.set("rank " + std::to_string(r), bytes + std::to_string(r));
                store.set(long_key + std::to_string(r), "");
            } catch (const invalid_argument&) {
                thrown[me] = "limit";
            } catch (const std::exception& e) {
                thrown[me] = e.what();
            }
        });
    for (auto& t : threads) t.join();
    for (const auto& t : thrown) CHECK(t == "limit");
    CHECK(m.goodbyes == ranks);

    threads.clear();
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            const auto me = static_cast<std::size_t>(r);
            try {
                pmi_store store(m.fd(r), r, ranks, soon());
                const std::string long_key(most_key_bytes - 1, 'k');
                store.set(long_key + std::to_string(r), "of " + std::to_string(r));
                names[me] = rendezvous(store, r, ranks, soon());
                for (int k = 0; k < ranks; ++k)
                    if (store.get(long_key + std::to_string(k), soon()) != "of " + std::to_string(k))
                        throw std::runtime_error("another value");
                names[me] += rendezvous(store, r, ranks, soon());
                thrown[me] = "";
            } catch (const std::exception& e) {
                thrown[me] = e.what();
            }
        });
    for (auto& t : threads) t.join();
    for (const auto& t : thrown) CHECK(t == "");
    for (const auto& n : names) {
        CHECK(n.size() == 64);
        CHECK(n == names[0]);
    }
    CHECK(names[0].substr(0, 32) != names[0].substr(32));
}

TEST_CASE("what PMI cannot do is said") {
    manager m(1);
    {
        pmi_store store(m.fd(0), 0, 1, soon());
        CHECK(code_thrown([&] { (void)store.add("n", 1); }) == errc::unsupported);
        CHECK(code_thrown([&] { store.barrier("b", 2, soon()); }) == errc::invalid_argument);
        CHECK(code_thrown([&] { store.set("", "v"); }) == errc::invalid_argument);
        // The manager takes 1023 bytes and a zero; a word has one letter more than its value.
        CHECK(code_thrown([&] { store.set("k", std::string(1023, 'v')); }) == errc::invalid_argument);
        CHECK(code_thrown([&] { store.set("k", std::string(400, '/')); }) == errc::invalid_argument);
        CHECK(code_thrown([&] { (void)store.get("never", soon(50)); }) == errc::timeout);
        store.set("k", std::string(1022, 'v'));
        store.barrier("b", 1, soon());
        CHECK(store.get("k", soon()).size() == 1022);
        if (const pid_t child = ::fork(); child == 0) {
            store.~pmi_store(); // a child must not finalize PMI for its parent
            ::_exit(0);
        } else {
            ::waitpid(child, nullptr, 0);
        }
        CHECK(m.goodbyes == 0);
    }
    CHECK(m.goodbyes == 1);
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    for (const int fd : {pipe[0], 1 << 20})
        CHECK(code_thrown([&] { pmi_store store(fd, 0, 1, soon()); }) == errc::environment);
    ::close(pipe[0]);
    ::close(pipe[1]);
}

TEST_CASE("a value has the room that the manager says, at most 2047 bytes") {
    const std::string is_put = "cmd=put_result rc=0\n";
    const auto maxes_of = [](int bytes) {
        return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=" + std::to_string(bytes) + "\n";
    };
    struct row {
        int said;
        std::size_t room;
    };
    for (const row& r : {row{64, 63}, row{2047, 2046}, row{2048, 2047}, row{2049, 2047}, row{1 << 20, 2047}}) {
        scripted by({hello, maxes_of(r.said), space, is_put, goodbye});
        pmi_store store(by.pair.client.get(), 0, 1, soon());
        INFO(r.said << " bytes");
        store.set("k", std::string(r.room - 1, 'v')); // a word has one letter more than its value
        CHECK(code_thrown([&] { store.set("k", std::string(r.room, 'v')); }) == errc::invalid_argument);
    }
}

TEST_CASE("the manager's mapping says who is on a host") {
    manager m(1);
    const struct {
        const char* mapping;
        int rank, local_rank, local_size;
    } table[] = {
        {"(vector,(0,1,1))", 2, 2, 4}, // hydra's form of "all ranks are here"
        {"(vector,(0,1,4))", 2, 2, 4}, // Slurm's
        {"(vector,(0,2,2))", 2, 0, 2},
        {"(vector,(0,2,1))", 2, 1, 2},
        {"(vector,(0,1,3),(1,1,1))", 3, 0, 1},
        {"(vector,(0,1,2),(5,2,1))", 3, 0, 1},
        {"(vector,(1,0,9),(0,1,0),(0,1,4))", 2, 2, 4},
        {"nonsense", 1, 7, 7}, // invalid: nothing is changed
        {"(vector,(0,0,0))", 1, 7, 7},
        {"(vector,(0,1,1)", 1, 7, 7},
        {"(vector,(0,1,1))x", 1, 7, 7},
        {"(vector,(0,99999999999,1))", 1, 7, 7},
    };
    for (const auto& t : table) {
        m.say_mapping(t.mapping);
        pmi_store store(m.fd(0), 0, 1, soon());
        job_description d;
        d.rank = t.rank;
        d.size = 4;
        d.local_rank = d.local_size = 7;
        detail::read_pmi_locals(store, d);
        INFO(t.mapping);
        CHECK(d.local_rank == t.local_rank);
        CHECK(d.local_size == t.local_size);
    }
}

// ------------------------------------------------------------------------------------------------- any text

namespace {

// Text that resembles the protocol often enough to get far.
rc::Gen<std::string> protocol_text() {
    const auto word = rc::gen::element<std::string>("cmd=", "rc=0", "rc=", "value=", "value=c", "%20", "%", "=", " ",
                                                    "\n", "response_to_init", "maxes", "keylen_max=64",
                                                    "vallen_max=1024", "kvsname=k", "my_kvsname", "(vector,", "(0,1,1)",
                                                    ")", ",", "(x", "4", "99999999999999999999", "-1");
    const auto piece = rc::gen::oneOf(word, word, word, rc::gen::arbitrary<std::string>());
    return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece), [](const std::vector<std::string>& parts) {
        std::string all;
        for (const auto& p : parts) all += p;
        return all;
    });
}

} // namespace

TEST_CASE("any text goes through the parsers") {
    CHECK(rc::check("words come back as they were", [](const std::string& bytes) {
        collx::kept_text back;
        const std::string word = detail::pmi_word(bytes);
        RC_ASSERT(word.find_first_of(" =\n\r\t") == std::string::npos);
        RC_ASSERT(detail::read_pmi_word(word, back));
        RC_ASSERT(back == bytes);
        RC_ASSERT(detail::pmi_key(bytes, 63).size() <= 63);
    }));
    collx::kept_text cut;
    CHECK_FALSE(detail::read_pmi_word(std::string_view("ca%20", 4), cut)); // the text beyond the end is not read
    CHECK(rc::check("a line's values are parts of it", [] {
        const std::string line = *protocol_text(), key = *rc::gen::element<std::string>("cmd", "rc", "value", "", "=");
        bool is_there = false;
        const auto value = detail::pmi_value(line, key, &is_there);
        RC_ASSERT(is_there == (value.data() != nullptr));
        if (is_there) RC_ASSERT((" " + line).find(" " + key + "=" + std::string(value)) != std::string::npos);
        collx::kept_text bytes;
        if (detail::read_pmi_word(value, bytes)) RC_ASSERT(bytes.size() < value.size());
        const auto n = detail::pmi_number(line, 1000);
        RC_ASSERT(n >= -1 && n <= 1000);
    }));
    CHECK(rc::check("a mapping that is read gives each rank a node", [] {
        std::string text = *rc::gen::oneOf(
            protocol_text(), rc::gen::map(protocol_text(), [](std::string t) { return "(vector,(0,1,1)" + t + ")"; }));
        detail::pmi_mapping mapping;
        if (!mapping.read(text)) return;
        for (const int r : {0, 1, 1000, most_ranks - 1}) RC_ASSERT(mapping.node_of(r) >= 0);
    }));
    CHECK(rc::check("a list of tasks", [] {
        const int n = detail::tasks_on_node(*protocol_text(), *rc::gen::inRange(0, 5));
        RC_ASSERT(n >= -1 && n <= most_ranks);
    }));
}

TEST_CASE("any environment describes a rank of its job or is refused") {
    const bool holds = rc::check("launchers", [] {
        // Some of the groups of variables that launchers set, with up to two values changed.
        static const std::vector<std::vector<std::string>> groups = {
            {"COLLX_RANK=1", "COLLX_SIZE=4", "COLLX_JOB=j"},
            {"TORCHELASTIC_RUN_ID=x"},
            {"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=1", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4"},
            {"PMI_FD=6", "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4"},
            {"PMIX_NAMESPACE=x", "PMIX_RANK=1"},
            {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
             "OMPI_COMM_WORLD_LOCAL_SIZE=4"},
            {"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=4"},
            {"SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_NODEID=0", "SLURM_LOCALID=1"},
            {"JOB_COMPLETION_INDEX=1"},
            {"COLLX_SIZE=4"},
            {"COLLX_BOOTSTRAP=pmi"},
            {"COLLX_STORE=file:d"}};
        const auto value = rc::gen::oneOf(
            rc::gen::element<std::string>("0", "1", "2", "3", "4", "", "-1", "4(x2)", "2,2", "pmi", "torch", "slurm"),
            rc::gen::map(rc::gen::arbitrary<std::string>(), [](std::string t) { return t.substr(0, t.find('\0')); }));
        std::vector<std::string> entries;
        for (const auto& group : groups)
            if (*rc::gen::inRange(0, 3) == 0) entries.insert(entries.end(), group.begin(), group.end());
        for (int changes = *rc::gen::inRange(0, 3); changes > 0 && !entries.empty(); --changes) {
            auto& entry = entries[*rc::gen::inRange(std::size_t{0}, entries.size())];
            entry = entry.substr(0, entry.find('=') + 1) + *value;
        }
        std::vector<const char*> list;
        for (const auto& e : entries) list.push_back(e.c_str());
        list.push_back(nullptr);
        try {
            const job_description d = describe_job(environment(list.data()));
            RC_ASSERT(d.rank >= 0 && d.rank < d.size && d.size <= most_ranks);
            RC_ASSERT(d.local_rank >= 0 && d.local_rank < d.local_size && d.local_size <= d.size);
            RC_CLASSIFY(d.size > 1, "a job");
        } catch (const error& e) {
            RC_ASSERT(e.code() == errc::environment);
            for (const char c : std::string(e.what())) RC_ASSERT(c >= ' ' && c <= '~');
            RC_CLASSIFY(true, "refused");
        }
    });
    CHECK(holds);
}
